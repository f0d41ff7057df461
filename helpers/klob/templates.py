"""KLoB's sentence templates (Table 3), three wordings of each relation, as printed and corrected.

The table as printed has slips: two relations have the templates of another one (P36 those of P1376, P17
those of P159), a product's name is left in a template, and there are blanks and letters too many.
``packaged/klob/templates.yaml`` has both wordings and what is wrong with the printed one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from helpers.paths import PACKAGED
from helpers.records import SLOT, read_yaml

Wording = Literal["corrected", "paper"]
FILE = PACKAGED / "klob" / "templates.yaml"


@dataclass(frozen=True)
class RelationTemplates:
    """Three wordings of one relation; ``slip`` is what was corrected in Table 3's, "" if nothing."""

    label: str
    description: str
    templates: tuple[str, ...]
    table_3: bool
    slip: str

    def clozes(self, subject: str) -> tuple[str, ...]:
        """The three sentences about ``subject``, each ending in its slot."""
        sentences = (template.replace("[X]", subject) for template in self.templates)
        return tuple(sentence.removesuffix(" [Y]") + SLOT for sentence in sentences)


def load_templates(wording: Wording = "corrected") -> dict[str, RelationTemplates]:
    """Templates by relation, corrected where Table 3 has a slip, or as the ``"paper"`` prints them."""
    by_relation = {}
    for relation, yaml_entry in read_yaml(FILE).items():
        templates = yaml_entry["templates"]
        if wording == "paper":
            templates = yaml_entry.get("paper", templates)
        by_relation[relation] = RelationTemplates(
            label=f"{yaml_entry['keyword']}_({relation})",
            description=yaml_entry["description"],
            templates=tuple(templates),
            table_3=yaml_entry.get("table_3", True),
            slip=yaml_entry.get("slip", ""),
        )
    return by_relation


def corrected_relations() -> set[str]:
    """Labels of the relations whose templates are not those that Table 3 prints."""
    return {templates.label for templates in load_templates().values() if templates.slip}
