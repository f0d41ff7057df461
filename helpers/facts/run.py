"""Facts under one editor's edits: each fact's answers, made as it is edited and kept in a results store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import Any

import pandas as pd

from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.facts.answers import Answers, answers_to, diagnostics_for_row
from helpers.facts.fact import Fact
from helpers.models import LanguageModel
from helpers.models.batching import records_at_once
from helpers.paths import digest_of
from helpers.results.store import Cases, ResultsStore
from helpers.scoring.answers import Question
from helpers.scoring.responses import Sampling


def content_number(content: object) -> int:
    """63 bits of a digest of a fact, or of facts: what its rows are stored under, whatever its line."""
    text = json.dumps(content, default=asdict, sort_keys=True, ensure_ascii=False)
    return int(digest_of(text.encode()), 16) >> 1


@dataclass(frozen=True)
class Answered:
    """A model's answers for a fact, and the diagnostics of their edit that their row depends on."""

    answers: Answers
    diagnostics: Mapping[str, Any]


@dataclass
class FactRun:
    """Facts under one editor's edits, one each or one for all, or without an editor under none."""

    lm: LanguageModel
    facts: tuple[Fact, ...]
    editor: Editor | None
    store: ResultsStore | None
    together: bool = False
    _made: dict[int, Edit] = field(default_factory=dict)  # by the fact's index
    _answers: dict[tuple[int, ...], list[Answered]] = field(default_factory=dict)  # by edited facts

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All that the answers depend on besides the facts."""
        versions = {
            "answers": Answers.version,
            "scores": Question.version,
            "texts": Sampling.version,
        }
        common_settings = {"facts": versions, **self.lm.identity}
        if not self.editor:
            return {**common_settings, "editor": "none"}
        mode = "together" if self.together else "independent"
        return {**common_settings, "mode": mode, **self.editor.settings()}

    @property
    def own_edits(self) -> range:
        """For each fact the fact whose edit is its own."""
        return range(len(self.facts))

    def edits(self) -> tuple[Edit, ...]:
        """One edit each, or one for all; made again where only their answers are stored."""
        return tuple(self._edits([0] if self.together else self.own_edits))

    @cached_property
    def _edit_of_all(self) -> Edit:
        assert self.editor is not None
        return self.editor.edit_jointly([fact.request for fact in self.facts])

    def _edits(self, indices: Sequence[int]) -> list[Edit]:
        """The edits of these facts; each is made once."""
        if not self.editor:
            return []
        if self.together:
            return [self._edit_of_all for _ in indices]
        unmade = [index for index in dict.fromkeys(indices) if index not in self._made]
        if unmade:
            edits = self.editor.edit([self.facts[index].request for index in unmade])
            self._made |= zip(unmade, edits, strict=True)
        return [self._made[index] for index in indices]

    def missing(self, edited: Sequence[int]) -> int:
        """How many facts have no answers yet under the edit of the fact that ``edited`` names for them."""
        if not self.store or tuple(edited) in self._answers:
            return len(self.facts)
        return len(self._cases(edited).missing(self.store.open(self.settings)))

    def answers(self, edited: Sequence[int]) -> list[Answered]:
        """The answers for all facts, each under the edit of the fact that ``edited`` names for it."""
        edited_indices = tuple(edited)
        if edited_indices not in self._answers:
            cases = self._cases(edited)
            answer_missing = partial(self._rows, edited)
            if self.store:
                table = cases.completed(self.store.open(self.settings), answer_missing)
            else:
                table = answer_missing(list(cases.by_id.values()))["scores"]
            rows = {row["case_id"]: row for row in table.to_dict("records")}
            rows_of_facts = [rows[number] for number in self._numbers(edited)]
            self._answers[edited_indices] = [
                Answered(Answers.from_row(row), json.loads(row["noted"])) for row in rows_of_facts
            ]
        return self._answers[edited_indices]

    def _numbers(self, edited: Sequence[int]) -> list[int]:
        """What each fact's answers are stored under: its content, and that of the facts that are edited."""
        numbers = []
        for fact, edited_index in zip(self.facts, edited, strict=True):
            content = [fact]
            if self.together:
                content += self.facts
            elif self.editor:
                content.append(self.facts[edited_index])
            numbers.append(content_number(content))
        return numbers

    def _cases(self, edited: Sequence[int]) -> Cases[int]:
        """The facts' indices by number; one by one on a CPU: an interruption costs what is made together."""
        by_id = dict(zip(self._numbers(edited), range(len(self.facts)), strict=True))
        is_resumable = self.editor and self.store and not self.together
        return Cases(by_id, records_at_once(self.lm.device, 1) if is_resumable else None)

    def _rows(self, edited: Sequence[int], indices: Sequence[int]) -> dict[str, pd.DataFrame]:
        """The answers for the facts of these indices, as the store keeps them."""
        numbers = self._numbers(edited)
        edits = self._edits([edited[index] for index in indices])
        owners = list(range(len(edits))) if edits else [-1] * len(indices)
        answers = answers_to(self.lm, [self.facts[index] for index in indices], edits, owners)
        rows = []
        for row_index, (index, fact_answers) in enumerate(zip(indices, answers, strict=True)):
            diagnostics_text = json.dumps(diagnostics_for_row(edits[row_index]) if edits else {})
            rows.append(
                {"case_id": numbers[index], **fact_answers.to_row(), "noted": diagnostics_text}
            )
        return {"scores": pd.DataFrame(rows)}
