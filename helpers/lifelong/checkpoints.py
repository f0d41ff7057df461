"""Checkpoints of a track: after T edits the stream's requests and the probes are asked, and what it took.

Raw answers are kept in the store, a part for each checkpoint and one more where probes are edited on top;
``measures`` makes one long table of those that a run asks for, whatever other runs have stored. A method that
has collapsed (``measures.collapse``) or cannot be asked any more is stopped.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from helpers.editing.edit import Edit
from helpers.editing.interventions import Delta
from helpers.editing.sequence import SequenceState
from helpers.editing.weight_edit import WeightEdit
from helpers.lifelong.measures import COLUMNS, collapse
from helpers.lifelong.probes import ProbedModel
from helpers.lifelong.streams import Stream, StreamRequest, check_stream
from helpers.lifelong.track import Track, asked_requests
from helpers.models import LanguageModel
from helpers.models.tokens import TokenError
from helpers.peak.metrics import metrics_table
from helpers.records import comparable
from helpers.results.store import Results
from helpers.scoring.naming import mentions
from helpers.scoring.responses import Sampling, sample_responses
from helpers.thinkedit.metrics import OWN, capped_ratios, chain_index, sums_of, terms_of

LATEST = 30  # requests whose success right after their turn is reported at a checkpoint
SAMPLE = 100  # requests that are asked again, evenly by age
ON_TOP_AT = (0, 1, 100, 1000, 10_000)  # and at a run's last checkpoint
WORDINGS = 2  # of a request, in addition to its prompt
FREE_TEXT = Sampling(max_new_tokens=20, stop=r"[.\n]", chat=False)
# Kinds of tables: those that complete a checkpoint and what is edited on top of it, and why none follow.
STATE = "state"
ON_TOP = "on_top"
ENDED = "ended"
_PROBE = "probe"  # the number of a record or graph, where ``case_id`` is the checkpoint
CHAIN_MEASURES = {"IFR": "IFR", "CKP": "CKP", "own": OWN}
PEAK_MEASURES = {"ES": "ES", "AFF": "AFF_hard", "ANF": "ANF_hard"}


@dataclass(frozen=True)
class LifelongRun:
    """One method along one stream, and what is asked of it after several numbers of edits.

    At each of the ``checkpoints``, and before the first edit, the stream's requests and the probes are asked.
    """

    track: Track
    probed: ProbedModel
    checkpoints: tuple[int, ...]

    def __post_init__(self) -> None:
        check_stream(self.track.stream, self.probed.probes.subjects)

    @property
    def settings(self) -> dict[str, Any]:
        """All that the answers depend on."""
        return {
            **self.track.settings,
            "probes": self.probed.probes.settings,
            "on_top_at": list(ON_TOP_AT),
            "sample": SAMPLE,
            "wordings": WORDINGS,
            "free_text": {"version": Sampling.version, **asdict(FREE_TEXT)},
        }

    @cached_property
    def results(self) -> Results:
        """Where the answers are kept."""
        return self.track.store.open(self.settings)

    @property
    def counts(self) -> list[int]:
        """The numbers of edits that are asked about, in order."""
        return sorted({0, *self.checkpoints})

    @property
    def counts_on_top(self) -> set[int]:
        """The numbers of edits on top of which further edits, of the probes, are made."""
        return set(self.counts) & {*ON_TOP_AT, max(self.counts)}

    def finished(self) -> set[int]:
        """The numbers of edits at which everything is asked and stored."""
        lacking = self.counts_on_top - self.results.done(ON_TOP)
        return set(self.counts) & self.results.done(STATE) - lacking

    def complete(self) -> None:
        """Make what is missing of the checkpoints, until the method collapses or cannot be asked."""
        finished = self.finished()
        missing = [count for count in self.counts if count not in finished]
        states = self.track.states(missing)
        for count in missing:
            if self._ends_before(count):
                return
            try:
                _, edit, state = next(states)
                self._make(count, edit, state)
            except TokenError as error:  # what it puts before a prompt has outgrown the context
                if count == 0:  # nothing is put there: the probes themselves are too long
                    raise
                self._note_end(count, error)
                return
            self.track.thin(self.checkpoints)

    def _make(self, count: int, edit: Edit, state: SequenceState) -> None:
        """Store what is missing of one checkpoint."""
        if count not in self.results.done(STATE):
            self._add(count, self._tables(count, edit, state), completes=STATE)
        if count in self.counts_on_top - self.results.done(ON_TOP):
            self._add(count, self._tables_on_top(state), completes=ON_TOP)

    def _add(self, count: int, tables: dict[str, pd.DataFrame], *, completes: str) -> None:
        numbered = {kind: table.assign(case_id=count) for kind, table in tables.items()}
        self.results.add(numbered, completes=completes)

    def _note_end(self, count: int, error: TokenError) -> None:
        """Keep why a checkpoint cannot be asked, and whether only what is edited on top cannot."""
        is_on_top = count in self.results.done(STATE)
        reason = pd.DataFrame({"reason": [str(error)], "on_top": [is_on_top]})
        self._add(count, {ENDED: reason}, completes=ENDED)

    def _ends_before(self, count: int) -> bool:
        """Whether the method collapsed or outgrew the context before a checkpoint is complete."""
        outgrown_at = self._outgrown_at()
        if outgrown_at and outgrown_at <= count:
            return True
        return 0 < collapse(self.measures()) < count

    def _outgrown_at(self) -> int:
        """The first of ``counts`` that could not be asked; 0: there is none."""
        ended = self.results.read(ENDED)
        if not len(ended):
            return 0
        whole_counts = ended.loc[~ended["on_top"], "case_id"]
        counts_on_top = ended.loc[ended["on_top"], "case_id"]
        outgrown = set(whole_counts) & set(self.counts) | set(counts_on_top) & self.counts_on_top
        return min(outgrown, default=0)

    def _tables(self, count: int, edit: Edit, state: SequenceState) -> dict[str, pd.DataFrame]:
        """All that is kept of one checkpoint, by kind, without what is edited on top."""
        tables = dict(self.probed.unrelated(edit) if count else self.probed.unedited)
        if count:
            tables["now"] = self._asked_again(count, edit)
        tables[STATE] = state_table(self.track.lm, edit, state)
        return tables

    def _tables_on_top(self, state: SequenceState) -> dict[str, pd.DataFrame]:
        """What is kept of the probes that are edited upon one checkpoint, by kind."""
        tables = {
            kind: table.rename(columns={"case_id": _PROBE})
            for kind, table in self.probed.edited_on_top(self.track.editor, state).items()
            if len(table)
        }
        sizes = {kind: [len(table)] for kind, table in tables.items()}
        return {**tables, ON_TOP: pd.DataFrame(sizes, index=[0])}

    def _asked_again(self, count: int, edit: Edit) -> pd.DataFrame:
        """The sample of the requests so far, with their ``position`` and what free text names."""
        positions = sampled_positions(self.track.stream, count)
        requests = [self.track.stream.requests[position - 1] for position in positions]
        table = asked_requests(self.track.lm, requests, edit, wordings=WORDINGS)
        return table.assign(
            item=positions,
            named=named_in_free_text(self.track.lm, requests, edit),
            unit=self._units(positions),
        )

    def _units(self, positions: Sequence[int]) -> list[int]:
        """A number for each position's subject, which requests about it share."""
        numbers: dict[str, int] = {}
        for request in self.track.stream.requests:
            numbers.setdefault(comparable(request.request.subject), len(numbers))
        subjects = [
            self.track.stream.requests[position - 1].request.subject for position in positions
        ]
        return [numbers[comparable(subject)] for subject in subjects]

    def measures(self) -> pd.DataFrame:
        """What is finished of the checkpoints, up to a collapse, as a long table: a row a number.

        Columns: ``case_id``, the edits made; ``measure``; ``item``, what it was measured at: of the stream's
        requests the position; ``unit``, which items that are alike share; ``value``.
        """
        counts = self._shown_counts()
        tables = [
            *self._measures_of_requests(counts),
            *self._measures_of_probes(counts),
            *self._measures_of_chains(counts & self.counts_on_top),
        ]
        outgrown_at = self._outgrown_at()
        if outgrown_at and counts:
            tables.append(_single(max(counts), "outgrew", float(outgrown_at)))
        filled = [table for table in tables if len(table)]
        if not filled:
            return pd.DataFrame(columns=COLUMNS)
        joint = pd.concat(filled, ignore_index=True).reindex(columns=COLUMNS)
        table = joint.assign(unit=joint["unit"].fillna(joint["item"]))
        collapsed_at = collapse(table)
        return table[table["case_id"] <= collapsed_at] if collapsed_at else table

    def _shown_counts(self) -> set[int]:
        """The finished checkpoints before the context was outgrown; none without the unedited model's."""
        finished = self.finished()
        if 0 not in finished:
            return set()
        outgrown_at = self._outgrown_at()
        return {count for count in finished if not outgrown_at or count < outgrown_at}

    def _read(self, kind: str, counts: set[int]) -> pd.DataFrame:
        """What is stored of a kind at some checkpoints."""
        stored = self.results.read(kind)
        return stored[stored["case_id"].isin(counts)]

    def _measures_of_requests(self, counts: set[int]) -> Iterator[pd.DataFrame]:
        """Of the stream's own requests right after their turns, and of the sample now."""
        at_once = self.track.at_once(counts)
        if not len(at_once):
            return
        matched_at_once = at_once.set_index("position")["matched"]
        earlier_count = 0
        for count in sorted(counts - {0}):
            latest = list(range(max(1, count - LATEST + 1), count + 1))
            of_latest = pd.DataFrame(
                {"case_id": count, "item": latest, "unit": self._units(latest)}
            )
            yield of_latest.assign(
                measure="at once", value=matched_at_once.reindex(latest).to_numpy(float)
            )
            is_new = at_once["position"].between(earlier_count + 1, count)
            seconds = at_once.loc[is_new, "seconds"].mean()
            yield _single(count, "seconds", seconds)
            earlier_count = count
        asked_again = self._read("now", counts)
        if not len(asked_again):
            return
        probability = np.exp(asked_again["target"])
        is_new_above_old = (asked_again["target"] > asked_again["original"]).where(
            asked_again["original"].notna()
        )
        contradicts = asked_again["item"].isin(self.track.stream.contradicting())
        columns = {
            "made": asked_again["item"].map(matched_at_once).astype(float),
            "now": asked_again["matched"].astype(float),
            "generality": asked_again["matched_paraphrase"],
            "free text": asked_again["named"].astype(float),
            "P(new)": probability,
            "new above old": is_new_above_old.mask(contradicts),
            "newest above older": is_new_above_old.where(contradicts),
        }
        for measure, values in columns.items():
            table = asked_again[["case_id", "item", "unit"]].assign(
                measure=measure, value=values.astype(float)
            )
            yield table.dropna(subset=["value"])

    def _measures_of_probes(self, counts: set[int]) -> Iterator[pd.DataFrame]:
        """Of what is not edited, next to the unedited model's answers, and of the state."""
        known_facts = self._read("known", counts)
        if len(known_facts):
            for measure, values in {
                "locality": known_facts["same"].astype(float),
                "KL": known_facts["kl"],
                "P(known)": np.exp(known_facts["sum"]),
            }.items():
                yield known_facts[["case_id", "item"]].assign(measure=measure, value=values)
        text = self._read("text", counts)
        if len(text):
            loss = (-text["sum"] / text["tokens"]).rename("loss")
            unedited = text.assign(loss=loss).query("case_id == 0").set_index("item")["loss"]
            change = loss - text["item"].map(unedited)
            yield text[["case_id", "item"]].assign(measure="text", value=change)
        exam = self._read("exam", counts)
        if len(exam):
            yield exam[["case_id", "item"]].assign(
                measure="exam", value=exam["right"].astype(float)
            )
            yield exam[["case_id", "item"]].assign(measure="fired", value=exam["fired"])
        state = self._read(STATE, counts)
        if len(state):
            yield state[["case_id", "item", "measure", "value"]]

    def _measures_of_chains(self, counts: set[int]) -> Iterator[pd.DataFrame]:
        """Of probes that are edited on top, a checkpoint after the other."""
        peak = self._read("peak", counts)
        if len(peak):  # a collapsed model's scores may be no numbers
            is_undefined = peak[["sum_before", "sum_after"]].isna().any(axis=1)
            probe_at_checkpoint = [peak["case_id"], peak[_PROBE]]
            peak = peak[~is_undefined.groupby(probe_at_checkpoint).transform("any")]
        for count, scores in peak.groupby("case_id"):
            metrics = metrics_table(_by_probe(scores))
            for measure, metric in PEAK_MEASURES.items():
                yield _of_items(int(str(count)), measure, metrics[metric])
        chains = self._read("chains", counts)
        steps = chain_index(self.probed.probes.asked_graphs)
        for count, facts in chains.groupby("case_id"):
            terms = terms_of(_by_probe(facts), steps)
            for measure, name in CHAIN_MEASURES.items():
                sums = sums_of(terms[terms["measure"] == name])
                yield _of_items(int(str(count)), measure, capped_ratios(sums))


def sampled_positions(stream: Stream, count: int) -> list[int]:
    """Positions, from 1, of the requests that are asked again after ``count``: all, or evenly by age.

    Without those that a later one has contradicted.
    """
    holding = np.array(stream.holding(count))
    if count <= SAMPLE:
        return holding.tolist()
    generator = np.random.default_rng([stream.order, count])
    decile_ends = np.linspace(0, count, 11).astype(int)
    sampled: list[int] = []
    for first, last in itertools.pairwise(decile_ends):
        positions = holding[(holding > first) & (holding <= last)]
        sampled_count = min(SAMPLE // 10, len(positions))
        sampled += sorted(generator.choice(positions, sampled_count, replace=False).tolist())
    return sampled


def named_in_free_text(
    lm: LanguageModel, requests: Sequence[StreamRequest], edit: Edit
) -> list[bool]:
    """Whether the greedy continuation of each request's prompt names the new answer."""
    prompts = [request.request.text for request in requests]
    texts = sample_responses(
        lm, prompts, [edit], [0] * len(prompts), n=1, greedy=True, sampling=FREE_TEXT
    )
    return [
        mentions(text, (request.request.target,))
        for request, (text,) in zip(requests, texts, strict=True)
    ]


def state_table(lm: LanguageModel, edit: Edit, state: SequenceState) -> pd.DataFrame:
    """Norms of each edited matrix, and bytes of all that is kept.

    ``weights`` is ||W_T|| / ||W_0||, and ``change`` ||W_T - W_0|| / ||W_0||.
    """
    rows: list[tuple[int, str, float]] = []
    weight_edit = edit if isinstance(edit, WeightEdit) else WeightEdit({})
    deltas: dict[str, Delta] = dict(weight_edit)
    for number, (module_name, delta) in enumerate(sorted(deltas.items())):
        unedited_norm = lm.weight_norm(module_name)
        changed = lm.weight(module_name).float() + delta.dense().to(lm.device).float()
        rows.append((number, "weights", float(changed.norm()) / unedited_norm))
        rows.append((number, "change", delta.norm() / unedited_norm))
    tensors, other_contents = state.edit.contents()
    edit_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    edit_bytes += len(json.dumps(other_contents).encode())
    rows.append((0, "bytes", float(edit_bytes + state.memory_bytes)))
    return pd.DataFrame(rows, columns=["item", "measure", "value"])


def _by_probe(table: pd.DataFrame) -> pd.DataFrame:
    """A checkpoint's table as its metrics take it, by the probe's number."""
    return table.drop(columns="case_id").rename(columns={_PROBE: "case_id"})


def _single(count: int, measure: str, value: float) -> pd.DataFrame:
    return pd.DataFrame(
        {"case_id": [count], "measure": [measure], "item": [0], "value": [value], "unit": [0]}
    )


def _of_items(count: int, measure: str, values: pd.Series) -> pd.DataFrame:
    table = pd.DataFrame({"item": values.index, "value": values.to_numpy(float)})
    return table.assign(case_id=count, measure=measure).dropna(subset=["value"])
