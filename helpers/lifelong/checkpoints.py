"""Checkpoints of a track: after T edits the stream's requests and the probes are asked, and what it took.

Raw answers are kept in the store, a part for each checkpoint; ``measures`` makes one long table of them. A
method that has collapsed (``measures.collapse``) or cannot be asked any more is stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from helpers.editing.edit import Edit
from helpers.editing.interventions import Delta
from helpers.editing.sequence import SequenceState
from helpers.editing.weight_edit import WeightEdit
from helpers.lifelong.measures import COLUMNS, ending
from helpers.lifelong.probes import ProbedModel
from helpers.lifelong.streams import StreamRequest, check_stream
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
WORDINGS = 2  # of a request, besides its prompt
FREE_TEXT = Sampling(max_new_tokens=20, stop=r"[.\n]", chat=False)
STATE, ENDED = (
    "state",
    "ended",
)  # kinds of tables: the one that completes a checkpoint, and why none follow
_PROBE = "probe"  # the number of a record or graph, where ``case_id`` is the checkpoint
CHAIN_MEASURES = {"IFR": "IFR", "CKP": "CKP", "own": OWN}
PEAK_MEASURES = {"ES": "ES", "AFF": "AFF_hard", "ANF": "ANF_hard"}


@dataclass(frozen=True)
class LifelongRun:
    """A track, the probes, and the numbers of edits at which both are asked; 0 is always one of them."""

    track: Track
    probed: ProbedModel
    checkpoints: tuple[int, ...]

    def __post_init__(self) -> None:
        check_stream(self.track.stream, self.probed.probes.subjects)

    @property
    def settings(self) -> dict[str, Any]:
        """All that the answers depend on."""
        return {**self.track.settings, "probes": self.probed.probes.settings, "sample": SAMPLE}

    @cached_property
    def results(self) -> Results:
        """Where the answers are kept."""
        return self.track.store.open(self.settings)

    def complete(self) -> None:
        """Make the checkpoints that are missing, until the method collapses or cannot be asked."""
        done = self.results.done(STATE)
        counts = [count for count in (0, *self.checkpoints) if count not in done]
        states = self.track.states(counts)
        for count in counts:
            if ending(self.measures()):
                return
            try:
                _, edit, state = next(states)
                tables = self._tables(count, edit, state)
            except TokenError as error:  # what it puts before a prompt has outgrown the context
                reason = pd.DataFrame({"case_id": [count], "reason": [str(error)]})
                self.results.add({ENDED: reason}, completes=ENDED)
                return
            numbered = {kind: table.assign(case_id=count) for kind, table in tables.items()}
            self.results.add(numbered, completes=STATE)
            self.track.thin(self.checkpoints)

    def _tables(self, count: int, edit: Edit, state: SequenceState) -> dict[str, pd.DataFrame]:
        """All that is kept of one checkpoint, by kind."""
        tables = dict(self.probed.unrelated(edit) if count else self.probed.unedited)
        if count in ON_TOP_AT or count == max(self.checkpoints):
            on_top = self.probed.edited_on_top(self.track.editor, state)
            for kind, table in on_top.items():
                if len(table):
                    tables[kind] = table.rename(columns={"case_id": _PROBE})
        if count:
            tables["now"] = self._asked_again(count, edit)
        tables[STATE] = state_table(self.track.lm, edit, state)
        return tables

    def _asked_again(self, count: int, edit: Edit) -> pd.DataFrame:
        """The sample of the requests so far, with their ``position`` and what free text names."""
        positions = sampled_positions(count, self.track.stream.order)
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
        """What is kept so far, as a long table: a row a number.

        Columns: ``case_id``, the edits made; ``measure``; ``item``, what it was measured at: of the stream's
        requests the position; ``unit``, which items that are alike share; ``value``.
        """
        tables = [
            *self._measures_of_requests(),
            *self._measures_of_probes(),
            *self._measures_of_chains(),
        ]
        filled = [table for table in tables if len(table)]
        if not filled:
            return pd.DataFrame(columns=COLUMNS)
        joint = pd.concat(filled, ignore_index=True).reindex(columns=COLUMNS)
        return joint.assign(unit=joint["unit"].fillna(joint["item"]))

    def _measures_of_requests(self) -> Iterator[pd.DataFrame]:
        """Of the stream's own requests right after their turns, and of the sample now."""
        at_once = self.track.at_once()
        if not len(at_once):
            return
        matched_at_once = at_once.set_index("position")["matched"]
        earlier_count = 0
        for count in sorted(self.results.done(STATE) - {0}):
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
        now = self.results.read("now")
        if not len(now):
            return
        probability = np.exp(now["target"])
        columns = {
            "made": now["item"].map(matched_at_once).astype(float),
            "now": now["matched"].astype(float),
            "generality": now["matched_paraphrase"],
            "free text": now["named"].astype(float),
            "P(new)": probability,
            "new above old": (now["target"] > now["original"]).where(now["original"].notna()),
        }
        for measure, values in columns.items():
            yield now[["case_id", "item", "unit"]].assign(
                measure=measure, value=values.astype(float)
            )

    def _measures_of_probes(self) -> Iterator[pd.DataFrame]:
        """Of what is not edited, next to the unedited model's answers, and of the state."""
        known = self.results.read("known")
        if len(known):
            for measure, values in {
                "locality": known["same"].astype(float),
                "KL": known["kl"],
                "P(known)": np.exp(known["sum"]),
            }.items():
                yield known[["case_id", "item"]].assign(measure=measure, value=values)
        text = self.results.read("text")
        if len(text):
            loss = (-text["sum"] / text["tokens"]).rename("loss")
            unedited = text.assign(loss=loss).query("case_id == 0").set_index("item")["loss"]
            change = loss - text["item"].map(unedited)
            yield text[["case_id", "item"]].assign(measure="text", value=change)
        exam = self.results.read("exam")
        if len(exam):
            yield exam[["case_id", "item"]].assign(
                measure="exam", value=exam["right"].astype(float)
            )
            yield exam[["case_id", "item"]].assign(measure="fired", value=exam["fired"])
        state = self.results.read(STATE)
        if len(state):
            yield state[["case_id", "item", "measure", "value"]]
        ended = self.results.read(ENDED)
        if len(ended):
            last_count = max(self.results.done(STATE))
            yield _single(last_count, "outgrew", float(ended["case_id"].iloc[0]))

    def _measures_of_chains(self) -> Iterator[pd.DataFrame]:
        """Of probes that are edited on top, a checkpoint after the other."""
        peak = self.results.read("peak")
        if len(peak):  # a collapsed model's scores may be no numbers
            is_undefined = peak[["sum_before", "sum_after"]].isna().any(axis=1)
            peak = peak[~peak[_PROBE].isin(peak.loc[is_undefined, _PROBE])]
        for count, scores in peak.groupby("case_id"):
            metrics = metrics_table(_by_probe(scores))
            for measure, metric in PEAK_MEASURES.items():
                yield _of_items(int(str(count)), measure, metrics[metric])
        chains = self.results.read("chains")
        steps = chain_index(self.probed.probes.asked_graphs)
        for count, facts in chains.groupby("case_id"):
            terms = terms_of(_by_probe(facts), steps)
            for measure, name in CHAIN_MEASURES.items():
                sums = sums_of(terms[terms["measure"] == name])
                yield _of_items(int(str(count)), measure, capped_ratios(sums))


def sampled_positions(count: int, seed: int) -> list[int]:
    """Positions, from 1, of the requests that are asked again after ``count``: all, or evenly by age."""
    if count <= SAMPLE:
        return list(range(1, count + 1))
    generator = np.random.default_rng([seed, count])
    decile_ends = np.linspace(0, count, 11).astype(int)
    sampled: list[int] = []
    for decile in range(10):
        positions = np.arange(decile_ends[decile] + 1, decile_ends[decile + 1] + 1)
        sampled += sorted(generator.choice(positions, SAMPLE // 10, replace=False).tolist())
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

    ``weights`` is ||W_T|| / ||W_0||, ``change`` ||W_T - W_0|| / ||W_0||, and ``turn`` the norm of what the
    latest turn added, where the editor records it, over ||W_0||.
    """
    rows: list[tuple[int, str, float]] = []
    latest_norms = edit.diagnostics.get("norm", {})
    weight_edit = edit if isinstance(edit, WeightEdit) else WeightEdit({})
    deltas: dict[str, Delta] = dict(weight_edit)
    for number, (module_name, delta) in enumerate(sorted(deltas.items())):
        unedited_norm = lm.weight_norm(module_name)
        changed = lm.weight(module_name).float() + delta.dense().to(lm.device).float()
        rows.append((number, "weights", float(changed.norm()) / unedited_norm))
        rows.append((number, "change", delta.norm() / unedited_norm))
        if module_name in latest_norms:
            rows.append((number, "turn", latest_norms[module_name] / unedited_norm))
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
