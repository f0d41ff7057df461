"""What a model generates when asked for a record's answers: sampled responses, and the answers they name.

The edit prompt is continued before and after the edit with the same random numbers. Texts stay in the
results store. Measures: ``ablations.said_metrics``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import pandas as pd

from helpers.editing.editor import Editor
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun, diagnostics_table, edit_request
from helpers.scoring.naming import fold, starts
from helpers.scoring.responses import Sampling, sample_responses

VERSION = 1  # raise it when what counts as naming an answer changes
CONTINUATION = Sampling(temperature=0.7, max_new_tokens=16, stop="\n", chat=False)
NOTHING = ("none", -1)  # list and answer_index of a sample that names no known answer


@dataclass(frozen=True)
class AnswerLists:
    """Sampled continuations of each record's edit prompt, and the known answers they name."""

    run: PeakRun
    samples: int = 30
    sampling: Sampling = CONTINUATION

    def said(self, editor: Editor | None = None) -> pd.DataFrame:
        """Answers named after each record's own edit, or by the unedited model, a row each.

        Columns case_id, sample, list (``none`` for a sample that names no known answer) and
        answer_index, without edits that were given up.
        """
        drawn = {"samples": self.samples, "sampling": asdict(self.sampling), "naming": VERSION}
        how = {"mode": "said", **drawn, "scored_by": {"responses": Sampling.version}}
        how |= editor.settings() if editor else {"editor": "none"}
        results = self.run.open(how)
        table = self.run.completed(results, partial(self._sampled, editor))
        edits = self.run.cases.read(results, "edits")
        if len(edits):
            table = table[~table["case_id"].isin(edits.loc[edits["failure"] != "", "case_id"])]
        return table.reset_index(drop=True)

    def again(self) -> AnswerLists:
        """The same with other random numbers: how much two draws of one model differ."""
        return replace(self, sampling=replace(self.sampling, seed=self.sampling.seed + 1))

    def _sampled(
        self, editor: Editor | None, records: Sequence[PeakRecord]
    ) -> dict[str, pd.DataFrame]:
        updates = editor.edit([edit_request(record) for record in records]) if editor else []
        responses = sample_responses(
            self.run.language_model,
            [record.edit_prompt for record in records],
            updates,
            range(len(records)) if updates else None,
            n=self.samples,
            sampling=self.sampling,
            progress=self.run.progress,
        )
        texts, rows = [], []
        for record, drawn in zip(records, responses, strict=True):
            for index, text in enumerate(drawn):
                texts.append({"case_id": record.case_id, "sample": index, "text": text})
                places = named_answers(text, record) or [NOTHING]
                rows += [(record.case_id, index, *place) for place in places]
        named = pd.DataFrame(rows, columns=["case_id", "sample", "list", "answer_index"])
        tables = {"texts": pd.DataFrame(texts), "scores": named}
        return tables | ({"edits": diagnostics_table(records, updates)} if updates else {})


def named_answers(text: str, record: PeakRecord) -> list[tuple[str, int]]:
    """The known answers of a record that occur in a text, each once, in order of appearance.

    As ``mentions`` compares them; where one answer is part of another ("Guinea", "Guinea-Bissau") the
    longer one counts. An answer that is in several lists counts in the first of: target, correct,
    hard false, random false.
    """
    places: dict[str, tuple[str, int]] = {}
    for name, answers in record.lists.items():
        for index, answer in enumerate(answers):
            places.setdefault(fold(answer), (name, index))
    folded, end, named = fold(text), 0, []
    hits = ((start, -len(answer), answer) for answer in places for start in starts(folded, answer))
    for start, length, answer in sorted(hits):  # at each place the longest
        if start >= end:
            named.append(places[answer])
            end = start - length
    return list(dict.fromkeys(named))
