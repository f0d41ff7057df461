"""PEAK under sequential edits: what is left of all edited records after n of them.

At each checkpoint every record edited so far is scored under the cumulative update and compared with
the unedited model, so that additivity takes in what later edits did to earlier records. The cumulative
update is kept beside the scores: a longer sequence goes on where a shorter one ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from helpers.editing.editor import Editor
from helpers.editing.overlay import overlay_all
from helpers.editing.update import Update
from helpers.kept import kept_whole, sound
from helpers.peak.asked import askable
from helpers.peak.run import KEYS, PeakRun, diagnostics_table, edit_request, score_records
from helpers.peak.schema import PeakRecord
from helpers.results.store import Results

_FILE = "update.safetensors"


@dataclass(frozen=True)
class PeakSequence:
    """Edits of a run's records, in file order, by one editor."""

    run: PeakRun
    editor: Editor

    def scores(self, checkpoints: Sequence[int]) -> dict[int, pd.DataFrame]:
        """Scores before all edits and after the first n, of those n records, for each checkpoint.

        Columns as the metrics take them. What is missing is computed.

        Raises:
            ValueError: a checkpoint below 1 or beyond the records at hand.
        """
        wanted = sorted(set(checkpoints))
        if not wanted or wanted[0] < 1 or wanted[-1] > len(self.run.data.records):
            raise ValueError(
                f"checkpoints {list(checkpoints)} must lie in 1 … {len(self.run.data.records)}, the"
                " number of records"
            )
        self._complete(wanted)
        before = self.run.before().rename(columns={"sum": "sum_before"})
        joined = {}
        for count in wanted:
            after = self.results(count).read().rename(columns={"sum": "sum_after"})
            joined[count] = before.merge(after.drop(columns="tokens"), on=KEYS, validate="1:1")
        return joined

    def edits(self, count: int) -> pd.DataFrame:
        """Diagnostics of the edits between the checkpoint before and this one."""
        return self.results(count).read("edits")

    def results(self, count: int) -> Results:
        """Where the scores after ``count`` edits are kept."""
        records = self.run.data.records[:count]
        edited = [record.case_id for record in records]
        how = {"mode": "sequential", "edited": edited, **self.editor.settings()}
        return self.run.open_together(how, records)

    def _complete(self, checkpoints: Sequence[int]) -> None:
        missing = [count for count in checkpoints if not self.results(count).done()]
        if not missing:
            return
        edited = self.run.data.records[: missing[-1]]
        askable(self.run.language_model, edited, where=str(self.run.data.path)).checked()
        start, total = self._start(checkpoints, missing[0])
        made: list[Update] = []
        updates = self._updates(total, edited[start:])
        for count, total in enumerate(updates, start + 1):
            made.append(Update({}, total.diagnostics))
            if count in missing:
                self._store(count, total, made)
                made = []

    def _start(self, checkpoints: Sequence[int], first: int) -> tuple[int, Update]:
        """The last checkpoint below ``first`` whose cumulative update is intact, and that update."""
        earlier = [count for count in checkpoints if count < first and self._resumable]
        for count in sorted(earlier, reverse=True):
            stored = sound(self.results(count).folder / _FILE, Update.load)
            if stored is not None:
                return count, stored.to(self.run.language_model.device)
        return 0, Update({})

    @property
    def _resumable(self) -> bool:
        """Whether the cumulative update is all that an editor remembers of its earlier edits."""
        return type(self.editor).edit_sequentially is Editor.edit_sequentially

    def _updates(self, total: Update, records: Sequence[PeakRecord]) -> Iterator[Update]:
        """Cumulative updates on top of ``total``, one per record."""
        requests = [edit_request(record) for record in records]
        if not self._resumable:
            yield from self.editor.edit_sequentially(requests)
            return
        for request in requests:
            total = total.plus(self.editor.edit_after(total, [request]))
            yield total

    def _store(self, count: int, total: Update, made: Sequence[Update]) -> None:
        results, records = self.results(count), self.run.data.records[:count]
        with kept_whole(results.folder / _FILE) as scratch:
            total.save(scratch)
        edits = diagnostics_table(records[-len(made) :], made)
        with overlay_all(self.run.language_model, total):
            scores = score_records(self.run.language_model, records, progress=self.run.progress)
        results.add({"edits": edits, "scores": scores})
