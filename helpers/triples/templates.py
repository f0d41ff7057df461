"""Prompt templates of relations: packaged ones, rules they obey, and drafts by a language model.

A template holds one ``{}`` for the subject, and the answer follows at its end: a cloze breaks off
before the answer, a question ends with "?" (PEAK, Section 5.1, Tables 6 and 7). The wordings are our
own. ``re_`` before a relation marks its inverse, whose subject is usually an object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from helpers import UserError
from helpers.paths import PACKAGED
from helpers.records import load_yaml

TEMPLATES = PACKAGED / "templates" / "peak.yaml"
SLOT = "{}"
INVERSE = "re_"
_QUESTION = re.compile(
    r"(who|whom|whose|what|which|where|when|how|in|of|to|from|for|with|on|at|by|is|was|are|were|does|did"
    r"|do|has|have|can)\b|.*, wh",
    re.IGNORECASE | re.DOTALL,
)


class PromptTemplates(NamedTuple):
    """The wordings of one relation."""

    clozes: tuple[str, ...]
    questions: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """Clozes, then questions."""
        return self.clozes + self.questions


class Draft(NamedTuple):
    """What a language model proposed: templates to use, and the others with their faults."""

    accepted: tuple[str, ...]
    rejected: tuple[tuple[str, str], ...]


def faults(template: str, *, answers: Iterable[str] = ()) -> list[str]:
    """Rules a template breaks; an empty list means that it can be used.

    Args:
        template: text with a slot.
        answers: answers of the relation; the template may hold none of them.
    """
    found = []
    if (slots := template.count(SLOT)) != 1:
        found.append(f"{slots} slots instead of one {SLOT}")
    if template != " ".join(template.split()):
        found.append("blanks at an end, doubled, or line breaks")
    if template.endswith(SLOT):
        found.append("ends with the subject, not where the answer follows")
    elif not re.search(r"[\w,:?]$", template):
        found.append("does not end where the answer follows: end a cloze in a word, or ask with ?")
    if "?" in template[:-1] or (template.endswith("?") and not _QUESTION.match(template)):
        found.append("a question mark without a question")
    if len(template.replace(SLOT, " ").split()) < 2:
        found.append("fewer than two words besides the subject")
    leaks = (answer for answer in answers if _words(answer) in _words(template))
    return found + [f"holds the answer {answer!r}" for answer in leaks]


def packaged_templates() -> dict[str, PromptTemplates]:
    """The packaged templates by relation."""
    content = load_yaml(TEMPLATES.read_text(encoding="utf-8"))
    return {
        str(relation): PromptTemplates(tuple(lists["clozes"]), tuple(lists.get("questions", ())))
        for relation, lists in content.items()
    }


def templates_of(templates: Mapping[str, PromptTemplates], relation: str) -> PromptTemplates:
    """The wordings of a relation; where there are none, a UserError tells how to add or draft them."""
    if relation not in templates:
        raise UserError(
            f"relation {relation} has no templates: add at least four to {TEMPLATES.name}, draft them"
            " with draft_templates, or omit the relation"
        )
    return templates[relation]


def draft_templates(
    label: str,
    examples: Sequence[tuple[str, str]],
    generate: Callable[[str], str],
    *,
    number: int = 8,
) -> Draft:
    """Have any language model draft templates, and keep those that obey the rules.

    Args:
        label: the relation in words.
        examples: a few (subject, answer) pairs.
        generate: text in, text out; any model, local or remote.
        number: how many to ask for.
    """
    shown = "\n".join(f"- {subject}: {answer}" for subject, answer in examples)
    request = (
        f"The relation '{label}' connects a subject with its answers, for example\n{shown}\n"
        f"Write {number} different short sentence beginnings, one per line, that ask for an answer."
        f" Put {SLOT} where the subject goes, use it once per line, and stop right before the"
        " answer. At least two lines should be questions. Write nothing else."
    )
    judged: dict[str, list[str]] = {}
    for line in generate(request).splitlines():
        template = re.sub(r"^\s*([-*•]|\d+[.)])\s*", "", line).strip().strip('"“”').rstrip(" .…_")
        if template:
            judged[template] = faults(template, answers=[answer for _, answer in examples])
    return Draft(
        tuple(template for template, found in judged.items() if not found),
        tuple((template, "; ".join(found)) for template, found in judged.items() if found),
    )


def _words(text: str) -> str:
    """Lower-case words between single blanks, so that whole words can be looked for."""
    return " ".join(["", *re.findall(r"[^\W_]+", text.lower()), ""])
