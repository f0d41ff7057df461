"""Prompt templates of relations: packaged ones, rules they obey, and drafts by a language model.

A template holds one ``{}`` for the subject, and the answer follows at its end: a cloze breaks off
where the answer stands, a question ends with "?" (PEAK, Section 5.1, Tables 6 and 7). The wordings
are our own. ``re_`` before a relation marks its inverse, whose subject is usually an object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers import UserError
from helpers.paths import PACKAGED
from helpers.records import load_yaml

TEMPLATES = PACKAGED / "templates" / "peak.yaml"
SLOT = "{}"
INVERSE = "re_"
LEAST_WORDINGS = 4
_WORD = re.compile(r"[^\W_]+")
_QUESTION_WORDS = ("who", "whom", "whose", "what", "which", "where", "when", "how", "in", "of",
                   "to", "from", "for", "with", "on", "at", "by")  # fmt: skip


class TemplateError(UserError):
    """A relation without templates, or a template that breaks the rules."""


@dataclass(frozen=True)
class PromptTemplates:
    """The wordings of one relation."""

    clozes: tuple[str, ...]
    questions: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """Clozes, then questions."""
        return self.clozes + self.questions


@dataclass(frozen=True)
class Draft:
    """What a language model proposed: templates to use, and the others with their faults."""

    accepted: tuple[str, ...]
    rejected: tuple[tuple[str, str], ...]


def faults(template: str, *, answers: Iterable[str] = ()) -> list[str]:
    """Rules a template breaks; an empty list means that it can be used.

    Args:
        template: text with a slot.
        answers: answers of the relation; none may stand in the template.
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
    if "?" in template[:-1] or (template.endswith("?") and not _asks(template)):
        found.append("a question mark without a question")
    if len(template.replace(SLOT, " ").split()) < 2:
        found.append("fewer than two words besides the subject")
    words = _words(template)
    for answer in answers:
        if _words(answer) in words:
            found.append(f"holds the answer {answer!r}")
    return found


def packaged_templates() -> dict[str, PromptTemplates]:
    """The packaged templates by relation."""
    return read_templates(TEMPLATES)


def read_templates(path: Path) -> dict[str, PromptTemplates]:
    """Read ``relation: {clozes: [...], questions: [...]}`` from YAML.

    Raises:
        TemplateError: not such a file, fewer than four wordings, or a template with faults.
    """
    content = load_yaml(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise TemplateError(f"{path}: expected a mapping of relations to clozes and questions")
    templates = {}
    for relation, lists in content.items():
        if not isinstance(lists, dict) or set(lists) - {"clozes", "questions"}:
            raise TemplateError(f"{path}, {relation}: give lists named clozes and questions")
        wordings = PromptTemplates(
            tuple(lists.get("clozes") or ()), tuple(lists.get("questions") or ())
        )
        _check(wordings, where=f"{path}, {relation}")
        templates[str(relation)] = wordings
    return templates


def templates_of(templates: Mapping[str, PromptTemplates], relation: str) -> PromptTemplates:
    """The wordings of a relation.

    Raises:
        TemplateError: there are none; the message says how to add or draft them.
    """
    if relation not in templates:
        raise TemplateError(
            f"relation {relation} has no templates: add at least {LEAST_WORDINGS} to a templates"
            " file, draft them with draft_templates, or leave the relation out"
        )
    return templates[relation]


def draft_prompt(label: str, examples: Sequence[tuple[str, str]], *, number: int = 8) -> str:
    """The request a language model gets for templates of a relation."""
    shown = "\n".join(f"- {subject}: {answer}" for subject, answer in examples)
    return (
        f"The relation '{label}' connects a subject with its answers, for example\n{shown}\n"
        f"Write {number} different short sentence beginnings, one per line, that ask for an answer."
        f" Put {SLOT} where the subject goes, use it once per line, and stop right before the"
        " answer. At least two lines should be questions. Write nothing else."
    )


def draft_templates(
    label: str,
    examples: Sequence[tuple[str, str]],
    generate: Callable[[str], str],
    *,
    answers: Iterable[str] = (),
    number: int = 8,
) -> Draft:
    """Have any language model draft templates, and keep those that obey the rules.

    Args:
        label: the relation in words.
        examples: a few (subject, answer) pairs.
        generate: text in, text out; any model, local or remote.
        answers: further answers that no template may hold.
        number: how many to ask for.
    """
    forbidden = {answer for _, answer in examples} | set(answers)
    accepted: list[str] = []
    rejected: list[tuple[str, str]] = []
    for line in generate(draft_prompt(label, examples, number=number)).splitlines():
        template = re.sub(r"^\s*([-*•]|\d+[.)])\s*", "", line).strip().strip('"“”').rstrip(" .…_")
        if not template or template in accepted:
            continue
        if problems := faults(template, answers=forbidden):
            rejected.append((template, "; ".join(problems)))
        else:
            accepted.append(template)
    return Draft(tuple(accepted), tuple(rejected))


def _words(text: str) -> str:
    """Lower-case words between single blanks, so that whole words can be looked for."""
    return " ".join(["", *_WORD.findall(text.lower()), ""])


def _asks(template: str) -> bool:
    first = re.split(r"\W+", template.lower(), maxsplit=1)[0]
    auxiliary = ("is", "was", "are", "were", "does", "did", "do", "has", "have", "can")
    return first in (*_QUESTION_WORDS, *auxiliary) or ", wh" in template.lower()


def _check(wordings: PromptTemplates, *, where: str) -> None:
    texts = wordings.all
    if len(set(texts)) < LEAST_WORDINGS:
        raise TemplateError(f"{where}: {len(set(texts))} wordings, {LEAST_WORDINGS} are needed")
    if not wordings.clozes:
        raise TemplateError(f"{where}: at least one cloze is needed for the edit prompt")
    for text in texts:
        if problems := faults(text):
            raise TemplateError(f"{where}: {text!r}: {'; '.join(problems)}")
    if [text for text in wordings.questions if not text.endswith("?")]:
        raise TemplateError(f"{where}: questions must end with a question mark")
