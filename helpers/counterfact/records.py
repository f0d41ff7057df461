"""CounterFact records (Meng et al. 2022): one fact with a counterfactual answer in the place of the true one.

``counterfact`` is the authors' file: two paraphrases a record, mostly behind an unrelated sentence, and ten
neighbourhood prompts. ``counterfact-val`` is the split of 1,919 of its records that others evaluate on, in
a flat schema: one paraphrase and one neighbourhood prompt each, and no relation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, AliasPath, BeforeValidator, Field, Strict, TypeAdapter

from helpers.editing.request import EditRequest
from helpers.records import read_all, read_json, read_text


def _either(flat: str, *path: str) -> Any:
    return Field(validation_alias=AliasChoices(AliasPath(*path), flat))


_as_list = BeforeValidator(lambda texts: [texts] if isinstance(texts, str) else texts)
Texts = Annotated[tuple[str, ...], _as_list]


@dataclass(frozen=True)
class CounterFactRecord:
    """A fact to be rewritten; ``neighbourhood`` are prompts about others of which ``target_true`` is true."""

    case_id: Annotated[int, Strict()]
    prompt: Annotated[str, _either("prompt", "requested_rewrite", "prompt")]  # perhaps filled in
    subject: Annotated[str, _either("subject", "requested_rewrite", "subject")]
    target_new: Annotated[str, _either("target_new", "requested_rewrite", "target_new", "str")]
    target_true: Annotated[str, _either("ground_truth", "requested_rewrite", "target_true", "str")]
    paraphrases: Annotated[Texts, _either("rephrase_prompt", "paraphrase_prompts")]
    neighbourhood: Annotated[Texts, _either("locality_prompt", "neighborhood_prompts")]
    relation: Annotated[str | None, _either("relation", "requested_rewrite", "relation_id")] = None

    @property
    def request(self) -> EditRequest:
        """The record as an edit; KN subtracts the true answer, APP would protect it."""
        is_template = "{}" in self.prompt
        return EditRequest(
            subject=self.subject,
            prompt=self.prompt if is_template else self.prompt.replace(self.subject, "{}"),
            target=self.target_new,
            correct=(self.target_true,),
            record=str(self.case_id),
        )


def read_records(path: Path, limit: int | None = None) -> list[CounterFactRecord]:
    """The first records of a file in either schema; a ``UserError`` names those that break it."""
    items = read_json(read_text(path), str(path))[:limit]
    placed_items = [(f"{path}, record {index}", item) for index, item in enumerate(items)]
    return read_all(placed_items, TypeAdapter(CounterFactRecord).validate_python)
