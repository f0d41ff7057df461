"""What a params file of notebook 10 asks for: methods along a stream, and what that will cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

import pandas as pd

from helpers import UserError
from helpers.editing.build import build_editors
from helpers.editing.editors import method_label, split_method
from helpers.fetch import require_local
from helpers.lifelong.checkpoints import SAMPLE, LifelongRun
from helpers.lifelong.measures import TABLES_KIND
from helpers.lifelong.probes import ProbeCounts, ProbedModel, Probes, drawn_probes
from helpers.lifelong.streams import COUNTERFACT, STREAMS, stream_named
from helpers.lifelong.track import Track
from helpers.models import LanguageModel
from helpers.params import check_one_of
from helpers.paths import REPOSITORY
from helpers.results.archive import TableKey, archive
from helpers.results.store import ResultsStore
from helpers.values import NotebookParams, ValueChecks, at_least

# CPU seconds of an edit on SmolLM2 in fp32, by the editor's name; others are taken to cost as MEMIT.
EDIT_SECONDS = {
    "mend": 0.07,
    "ultraedit": 0.07,
    "ft-bf": 1.8,
    "ft-m": 1.7,
    "ft-l": 1.7,
    "simie": 1.7,
    "grace": 2.5,
    "lora": 5.0,
    "memoir": 10.0,
    "rome": 10.0,
    "memit": 6.5,
    **dict.fromkeys(("in-context", "memory-bm25", "memory-hidden"), 0.0),
}
# CPU seconds of one probe, or of one token of text, on SmolLM2 in fp32.
PROBE_SECONDS = {
    "peak_cf": 2.0,
    "peak_t": 2.0,
    "chains": 0.7,
    "known": 0.05,
    "tokens": 0.003,
    "exam": 0.1,
}
ASKED_AGAIN_SECONDS = 60.0  # of the SAMPLE requests of a checkpoint that are asked again
_SMOLLM2 = 134_515_008  # parameters, of which these seconds are


@dataclass(frozen=True)
class LifelongPlan:
    """The parameters of notebook 10 that determine its runs, under the names that they have there."""

    stream: str
    methods: Sequence[str]
    in_turns: Sequence[str]
    turn_size: int
    checkpoints: Sequence[int]
    orders: Sequence[int]
    dataset: str
    temporal: str
    peak_cf: int
    peak_t: int
    chains: int
    known: int
    tokens: int
    exam: int
    preset: str
    corpus: str
    results: str
    seed: int

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> LifelongPlan:
        """The plan of a notebook's parameters, which may have others as well."""
        return cls(**{field.name: values[field.name] for field in fields(cls)})

    def probes(self) -> Probes:
        """What is asked at every checkpoint."""
        counts = ProbeCounts(
            self.peak_cf, self.peak_t, self.chains, self.known, self.tokens, self.exam
        )
        return drawn_probes((self.dataset, self.temporal), counts, seed=self.seed)

    def runs(self, lm: LanguageModel) -> dict[TableKey, LifelongRun]:
        """Every method along every order of the stream, by the table that it is published as."""
        probes = self.probes()
        probed = ProbedModel(lm, probes)
        store = ResultsStore(REPOSITORY / self.results)
        streams = [
            stream_named(self.stream, order=order, probe_subjects=probes.subjects)
            for order in self.orders
        ]
        runs = {}
        for methods, turn_size in ((self.methods, 1), (self.in_turns, self.turn_size)):
            editors = build_editors(
                methods, lm, preset=self.preset, corpus=self.corpus, seed=self.seed
            )
            for stream in streams:
                for method, editor in editors.items():
                    size = 1 if editor.sees_all else turn_size
                    track = Track(lm, editor, stream, store, size)
                    checkpoints = tuple(
                        count for count in sorted(set(self.checkpoints)) if count % size == 0
                    )
                    stream.first(checkpoints[-1])  # refuses a stream that is too short
                    key = table_key(method, turn_size, stream.order)
                    runs[key] = LifelongRun(track, probed, checkpoints)
        return runs


def table_key(method: str, turn_size: int, order: int) -> TableKey:
    """The name of a published table: ``measures: memit, turns of 100, order 0``."""
    return TableKey(TABLES_KIND, method, f"turns of {turn_size}, order {order}")


def cost_table(runs: Mapping[TableKey, LifelongRun]) -> pd.DataFrame:
    """What every run still has to make, and CPU minutes that it will take, by SmolLM2's measured costs.

    Columns: ``method``, ``mode``, ``edits`` (at the last checkpoint), ``to make`` (checkpoints),
    ``information``, ``editing`` and ``asking`` (CPU minutes, in proportion to the model's parameters).
    """
    rows = []
    for key, run in runs.items():
        editor, _ = split_method(key.method)
        parameters = sum(p.numel() for p in run.track.lm.network.parameters())
        scale = parameters / _SMOLLM2 / 60
        done = run.finished()
        missing = [count for count in run.counts if count not in done]
        seconds_each = EDIT_SECONDS.get(editor.name, EDIT_SECONDS["memit"])
        edits_left = sum(missing) if run.track.editor.sees_all else max(missing, default=0)
        if not run.track.editor.sees_all:
            edits_left = max(0, edits_left - max(done, default=0))
        counts = run.probed.probes.counts
        probe_seconds = {
            name: getattr(counts, name) * seconds for name, seconds in PROBE_SECONDS.items()
        }
        edits_on_top = counts.peak_cf + counts.peak_t + counts.chains
        asking = 0.0
        for count in missing:
            asking += sum(probe_seconds[name] for name in ("known", "tokens", "exam"))
            asking += ASKED_AGAIN_SECONDS * min(count, SAMPLE) / SAMPLE
            if count in run.counts_on_top:
                asking += probe_seconds["peak_cf"] + probe_seconds["peak_t"]
                asking += probe_seconds["chains"] + edits_on_top * seconds_each
        rows.append(
            {
                "method": method_label(key.method),
                "mode": key.mode,
                "edits": max(run.checkpoints),
                "to make": len(missing),
                "information": editor.information,
                "editing": seconds_each * edits_left * scale,
                "asking": asking * scale,
            }
        )
    return pd.DataFrame(rows)


class LifelongParams(NotebookParams):
    """Parameters of notebook 10, and what they must be."""

    value_checks: ClassVar[ValueChecks] = {
        **NotebookParams.value_checks,
        "stream": partial(check_one_of, "stream", known=tuple(STREAMS)),
        **dict.fromkeys(("methods", "in_turns"), method_label),
        **at_least(1, "turn_size", "checkpoints"),
        **at_least(0, "orders", "peak_cf", "peak_t", "chains", "known", "tokens", "exam"),
    }

    @property
    def methods(self) -> list[str]:
        """Those edited one by one, then those edited in turns."""
        return [*self.values["methods"], *self.values["in_turns"]]

    def needed_lists(self) -> tuple[str, ...]:
        """What there must be at least one of."""
        has_turns = bool(self.values["in_turns"])
        return ("checkpoints", "orders") if has_turns else ("methods", "checkpoints", "orders")

    def joint_checks(self) -> Iterator[Callable[[], object]]:
        """The methods, the checkpoints, the stream's length, and the published runs."""
        yield from super().joint_checks()
        yield self._check_methods
        yield self._check_turns
        yield self._check_modes
        yield self._check_length
        for name in self.values["published"]:
            yield partial(archive("lifelong").get, name)

    def _check_methods(self) -> None:
        for method in self.methods:
            editor, suffix = split_method(method)
            if suffix == "icd" or editor.name == "ike":
                raise UserError(f"{method}: it is of single edits; omit it from a sequence")

    def _check_turns(self) -> None:
        """Refuse turns that end at no checkpoint."""
        turn_size = self.values["turn_size"]
        checkpoints = self.values["checkpoints"]
        if self.values["in_turns"] and not any(count % turn_size == 0 for count in checkpoints):
            raise UserError(
                f"turn_size {turn_size}: no checkpoint of {checkpoints} is a multiple of it; give one"
            )

    def _check_modes(self) -> None:
        """Refuse turns of a method that has none, and two runs of one name."""
        for method in self.values["in_turns"]:
            editor, _ = split_method(method)
            if editor.information == "all":
                raise UserError(
                    f"in_turns: {method} is trained on all requests at once; name it under methods"
                )
            if self.values["turn_size"] == 1 and method in self.values["methods"]:
                raise UserError(
                    f"in_turns: {method} is in methods as well; omit it here, or raise turn_size above 1"
                )

    def _check_length(self) -> None:
        """Refuse a stream that is shorter than a checkpoint; data that is not here yet is not judged."""
        plan = LifelongPlan.of(self.values)
        for dataset in (plan.dataset, plan.temporal):
            require_local(dataset)
        if plan.stream == "counterfact":
            require_local(COUNTERFACT)
        stream = stream_named(plan.stream, probe_subjects=plan.probes().subjects)
        stream.first(max(plan.checkpoints))
