"""Every message that a user can meet, in one file, to be read at once: what, where, remedy.

``python -m tests.test_messages`` writes the file anew after a message changed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from helpers.paths import REPOSITORY

PACKAGE = REPOSITORY / "helpers"
FILE = Path(__file__).with_name("messages.txt")


def package_trees() -> dict[str, ast.Module]:
    """The package's modules, parsed, by their names without ``helpers``."""
    trees = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        trees[module] = ast.parse(path.read_text("utf-8"))
    return trees


def user_errors(trees: dict[str, ast.Module]) -> set[str]:
    """``UserError`` and the names of all classes below it."""
    bases = {
        node.name: {ast.unparse(base) for base in node.bases}
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    errors = {"UserError"}
    while below := {name for name in bases if bases[name] & errors} - errors:
        errors |= below
    return errors


def message_lines() -> list[str]:
    """One line for each raised error: module and function, class, text with ``{variable}`` parts."""
    trees = package_trees()
    errors = user_errors(trees)
    lines = []
    for module, tree in trees.items():
        constants = texts_by_name(tree.body)
        for function, raised, texts in raised_errors(tree, (), constants):
            if isinstance(raised.func, ast.Name) and raised.func.id in errors:
                text = text_of(raised.args[0], texts) if raised.args else ""
                text = text.replace("\n", "\\n")
                place = ".".join((module, *function))
                lines.append(f"{place}: {raised.func.id}: {text}")
    return lines


def raised_errors(
    node: ast.AST, function: tuple[str, ...], texts: dict[str, ast.expr]
) -> Iterator[tuple[tuple[str, ...], ast.Call, dict[str, ast.expr]]]:
    """Each raised call below a node, with its function's name and the texts that local names stand for."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = texts | texts_by_name(list(ast.walk(child)))
            yield from raised_errors(child, (*function, child.name), inner)
        elif isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call):
            yield function, child.exc, texts
        else:
            yield from raised_errors(child, function, texts)


def texts_by_name(nodes: list[ast.AST] | list[ast.stmt]) -> dict[str, ast.expr]:
    """Names that are given one text, as expressions; a name with several texts stays a variable."""
    values: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, []).append(node.value)
    return {
        name: given[0] for name, given in values.items() if len(given) == 1 and is_text(given[0])
    }


def is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return is_text(node.left) or is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def text_of(node: ast.expr, texts: dict[str, ast.expr]) -> str:
    """A text as a reader sees it; what is only known in a run stands in braces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(value, texts) for value in node.values)
    if isinstance(node, ast.FormattedValue):
        text = text_of(node.value, texts)
        is_quoted = node.conversion == ord("r") and text.endswith("}")
        return f"{text[:-1]}!r}}" if is_quoted else text
    if isinstance(node, ast.BinOp) and is_text(node):
        return text_of(node.left, texts) + text_of(node.right, texts)
    if isinstance(node, ast.Name) and node.id in texts:
        others = {name: text for name, text in texts.items() if name != node.id}
        return text_of(texts[node.id], others)
    return "{" + ast.unparse(node) + "}"


def test_messages_are_those_that_were_read():
    """What changes here is read as text, by whoever changed it: what is wrong, where, and the remedy."""
    assert message_lines() == FILE.read_text("utf-8").splitlines(), (
        "a message changed: python -m tests.test_messages, then read the difference"
    )


def test_every_class_of_errors_is_found():
    assert {"ModelError", "TokenError", "UntrainedError", "RunError"} <= user_errors(
        package_trees()
    )


def test_texts_are_put_together():
    tree = ast.parse(
        'HINT = "use b"\n'
        "def f(a):\n"
        '    words = f"{a.name!r} is long"\n'
        "    if a:\n"
        '        raise UserError(f"{words}: " + HINT)\n'
        '    raise UserError(f"{a:.1f}")\n'
    )
    found = list(raised_errors(tree, (), texts_by_name(tree.body)))
    lines = [text_of(call.args[0], texts) for _, call, texts in found]
    assert lines == ["{a.name!r} is long: use b", "{a}"]


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for line in message_lines()), "utf-8")
