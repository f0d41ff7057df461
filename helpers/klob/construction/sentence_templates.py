"""KLoB's sentence templates per relation (Table 3), as printed or with its copy slips corrected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from helpers import UserError
from helpers.klob.examples import PROMPTS_PER_FACT
from helpers.paths import PACKAGED
from helpers.records import SLOT, load_yaml

Variant = Literal["corrected", "paper"]

TEMPLATES = PACKAGED / "klob" / "templates.yaml"
SUBJECT, ANSWER = "[X]", "[Y]"


class TemplateError(UserError):
    """Raised for a relation without templates, or a template that cannot be filled."""


@dataclass(frozen=True)
class RelationTemplates:
    """Three wordings of one relation.

    Attributes:
        relation: Wikidata property, ``"P103"``.
        keyword: word before it in the published files.
        templates: with ``[X]`` for the subject, ending in ``[Y]``.
        description: noun phrase for the object by way of the subject, with ``[X]``.
        table_3: whether the paper's table has the relation.
        slip: how the printed wording differs, "" where it does not.
    """

    relation: str
    keyword: str
    templates: tuple[str, ...]
    description: str
    table_3: bool
    slip: str

    def __post_init__(self) -> None:
        if len(self.templates) != PROMPTS_PER_FACT:
            raise TemplateError(f"{self.relation} has {len(self.templates)} templates, not three")
        for template in self.templates:
            if template.count(SUBJECT) != 1 or not template.endswith(f" {ANSWER}"):
                raise TemplateError(
                    f"{self.relation}: template {template!r} must hold one [X] and end in ' [Y]'"
                )
        if self.description.count(SUBJECT) != 1:
            raise TemplateError(f"{self.relation}: description {self.description!r} needs one [X]")

    @property
    def label(self) -> str:
        """The relation as the published files write it, ``"native_(P103)"``."""
        return f"{self.keyword}_({self.relation})"

    def clozes(self, subject: str) -> tuple[str, ...]:
        """The three sentences about ``subject``, each ending in its slot."""
        filled = (template.replace(SUBJECT, subject) for template in self.templates)
        return tuple(text.removesuffix(f" {ANSWER}") + SLOT for text in filled)

    def describe(self, subject: str) -> str:
        """The object without its name: ``"the capital of France"``."""
        return self.description.replace(SUBJECT, subject)


def load_templates(variant: Variant = "corrected") -> dict[str, RelationTemplates]:
    """Templates by relation.

    Args:
        variant: ``"corrected"``, or ``"paper"`` for Table 3 as printed (relations the table lacks
            are then left out).

    Raises:
        TemplateError: an unknown variant.
    """
    if variant not in ("corrected", "paper"):
        raise TemplateError(f"templates must be 'corrected' or 'paper', not {variant!r}")
    entries: Mapping[str, Any] = load_yaml(TEMPLATES.read_text(encoding="utf-8"))
    return {
        relation: RelationTemplates(
            relation=relation,
            keyword=entry["keyword"],
            templates=tuple(entry.get("paper", entry["templates"]))
            if variant == "paper"
            else tuple(entry["templates"]),
            description=entry["description"],
            table_3=entry.get("table_3", True),
            slip=entry.get("slip", ""),
        )
        for relation, entry in entries.items()
        if variant == "corrected" or entry.get("table_3", True)
    }
