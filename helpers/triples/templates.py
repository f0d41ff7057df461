"""The packaged prompt templates of relations, worded by us.

A template holds one ``{}`` for the subject, and the answer follows at its end (PEAK, Section 5.1,
Tables 6 and 7). ``re_`` before a relation marks its inverse, whose subject is usually an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import yaml

from helpers import UserError
from helpers.paths import PACKAGED

TEMPLATES = PACKAGED / "templates" / "peak.yaml"
SLOT = "{}"
INVERSE = "re_"


class PromptTemplates(NamedTuple):
    """The wordings of one relation."""

    clozes: tuple[str, ...]
    questions: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """Clozes, then questions."""
        return self.clozes + self.questions


def packaged_templates() -> dict[str, PromptTemplates]:
    """The packaged templates by relation."""
    yaml_content = yaml.safe_load(TEMPLATES.read_text("utf-8"))
    return {
        str(relation): PromptTemplates(
            tuple(prompts_of_relation["clozes"]), tuple(prompts_of_relation.get("questions", ()))
        )
        for relation, prompts_of_relation in yaml_content.items()
    }


def templates_of(templates: Mapping[str, PromptTemplates], relation: str) -> PromptTemplates:
    """The wordings of a relation, or a UserError that tells how to add them."""
    if relation not in templates:
        raise UserError(
            f"relation {relation} has no templates: add four to {TEMPLATES.name}, or omit"
            " the relation"
        )
    return templates[relation]
