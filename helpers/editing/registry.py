"""The editors by name, each declared by its class as one of its ``varieties``.

Figures need labels and looks but no torch. What a class declares is therefore read from its module's
text; the module itself is imported when an editor is built, or its hyperparameters are read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from helpers.editing.hyperparameters import HyperparameterError, Hyperparameters

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Variety:
    """One editor, as its class declares it.

    Attributes:
        name: by which it is built.
        label: how tables and figures call it.
        colour: number in the palette; varieties of one class share theirs.
        marker: of its points.
        hatch: of its bars.
        values: hyperparameters that the name itself stands for.
        loss: whether it optimises one, which APP and further targets can join.
        large: whether its marks are large and hollow, because they often lie on another editor's.
    """

    name: str
    label: str
    colour: int
    marker: str
    hatch: str
    values: Mapping[str, Any] = field(default_factory=dict)
    loss: bool = True
    large: bool = False


@dataclass(frozen=True, kw_only=True)
class Entry(Variety):
    """An editor with the place of its class.

    Attributes:
        section: of ``params/models/<model>.yaml``; varieties of one class share theirs.
        module: where the class is.
        class_name: its name there.
    """

    section: str
    module: str
    class_name: str

    @property
    def kind(self) -> Any:
        """The editor's class."""
        return getattr(import_module(self.module), self.class_name)

    @property
    def hyperparameters(self) -> type[Hyperparameters]:
        """The class its hyperparameters are checked with."""
        kind: type[Hyperparameters] = get_type_hints(self.kind)["hyperparameters"]
        return kind


@cache
def editors() -> dict[str, Entry]:
    """Every editor by name, in the order of their colours."""
    found = [
        entry
        for path in sorted(_FOLDER.rglob("*.py"))
        if "    varieties = " in (text := path.read_text("utf-8"))
        for entry in _declared(ast.parse(text), path)
    ]
    return {entry.name: entry for entry in sorted(found, key=lambda entry: entry.colour)}


def entry(editor: str) -> Entry:
    """The entry of an editor.

    Raises:
        HyperparameterError: no editor of that name; the message lists those there are.
    """
    if editor not in editors():
        raise HyperparameterError(f"no editor {editor!r}; known: {', '.join(editors())}")
    return editors()[editor]


def check_loss(editor: str) -> None:
    """Refuse APP for an editor without a loss that it could join.

    Raises:
        HyperparameterError: no editor of that name, or it optimises nothing.
    """
    known = entry(editor)
    if not known.loss:
        raise HyperparameterError(
            f"{known.label} optimises no loss that APP could join; leave APP out"
        )


def _declared(tree: ast.Module, path: Path) -> Iterator[Entry]:
    """The editors that the classes of a module declare."""
    module = ".".join((__package__, *path.relative_to(_FOLDER).with_suffix("").parts))
    for node in (each for each in tree.body if isinstance(each, ast.ClassDef)):
        given = _assigned(node)
        for call in getattr(given.get("varieties"), "elts", ()):
            values = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
            section = ast.literal_eval(given["name"])
            yield Entry(**values, section=section, module=module, class_name=node.name)


def _assigned(node: ast.ClassDef) -> dict[str, Any]:
    """What stands in the class's body for each name."""
    return {
        target.id: statement.value
        for statement in node.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
