"""Probes: what a model is asked after T edits of a stream. Nothing of it is ever edited by the stream.

======= ============================================================================ ===================
probe   what is asked                                                                also edited?
======= ============================================================================ ===================
peak    records of PEAK's two sets: success, forgetting, noise                       each on top
chains  recalled facts with chains: is the old fact deduced, what else is kept       each on top
known   packaged facts that the unedited model knows                                 no
text    windows of a packaged text                                                   no
exam    the exam's questions about facts; after which of them a gate acts             no
======= ============================================================================ ===================

*On top*: a probe's request is edited by itself upon the T edits, and its record is asked under both together;
before it, under the T edits alone. The pools are the same for all numbers of probes, and no stream edits a
subject of theirs (``Probes.subjects``), so that a stream does not change with the number of probes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from helpers.behaviour.doses_run import distribution_shifts, next_token_scores
from helpers.behaviour.exam_run import VERSION as EXAM_VERSION
from helpers.behaviour.exam_run import exam
from helpers.behaviour.scorers import VERSION as NAMING_VERSION
from helpers.editing.corpus import TextCorpus
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.editing.held_out import held_out_requests
from helpers.editing.request import EditRequest
from helpers.editing.sequence import SequenceState
from helpers.editing.weight_edit import WeightEdit
from helpers.fetch import file_digest
from helpers.kept import load_or_make
from helpers.lifelong.streams import RECALLED, KnownFact, packaged_known_facts
from helpers.models import LanguageModel
from helpers.paths import PACKAGED, cache_folder
from helpers.peak.metrics import KEYS
from helpers.peak.records import PeakRecord, load_peak
from helpers.peak.run import SCORING_VERSION as PEAK_VERSION
from helpers.peak.run import edit_request, score_records
from helpers.records import comparable
from helpers.results.evaluation import CaseEdits, joined, with_owners
from helpers.results.store import settings_key
from helpers.scoring.answers import Question, score_answers, score_continuations
from helpers.thinkedit.knowgic import EditedGraph, load_aliases, load_edited_graphs
from helpers.thinkedit.metrics import facts_table
from helpers.thinkedit.probes import Kinds, Probe, kinds_of, probes_of, request_of
from helpers.thinkedit.scores import SCORING_VERSION, exact_scores

VERSION = 1  # raise it when the same probes would be asked otherwise
CANDIDATES = 1500  # packaged facts among which those are found that a model knows
PEAK_POOL = (40, 20)  # records of the first and of the second data set
CHAIN_POOL = 30
WINDOW = 128  # tokens
CONTEXT = 16  # tokens of a window that are read, not scored: the prompt, to a gate
PERPLEXITY_TEXT = PACKAGED / "corpora" / "smollm2-135m.txt"
ON_TOP_TOGETHER = 8  # probes whose edits are held at the same time


@dataclass(frozen=True)
class ProbeCounts:
    """How many of each pool are asked, the first ones; ``tokens`` is the length of the text.

    ``exam`` counts questions of the exam of general ability, which take its relations in turn.
    """

    peak_cf: int = 40
    peak_t: int = 20
    chains: int = 30
    known: int = 300
    tokens: int = 20_000
    exam: int = 200


@dataclass(frozen=True)
class Probes:
    """What is asked at every checkpoint: pools of records, graphs and facts, and how many of each.

    Args:
        records: pools of PEAK records, one for each of two data sets.
        graphs: recalled facts with their chains.
        candidates: facts of which those count that the unedited model knows.
        counts: how many of them are asked.
    """

    records: tuple[tuple[PeakRecord, ...], tuple[PeakRecord, ...]]
    graphs: tuple[EditedGraph, ...]
    candidates: tuple[KnownFact, ...]
    counts: ProbeCounts

    @property
    def subjects(self) -> set[str]:
        """The subjects of all pools: of records, of all facts on chains, of all candidates."""
        subjects = {record.subject for pool in self.records for record in pool}
        subjects |= {fact.subject for graph in self.graphs for fact in graph.facts}
        return subjects | {fact.subject for fact in self.candidates}

    @property
    def asked_records(self) -> list[PeakRecord]:
        """The records that are asked, numbered anew, since two sets may use the same numbers.

        Prompts of other facts are excluded: ``known`` asks for such.
        """
        first_pool, second_pool = self.records
        records = [*first_pool[: self.counts.peak_cf], *second_pool[: self.counts.peak_t]]
        return [
            replace(record, case_id=number, locality=()) for number, record in enumerate(records)
        ]

    @property
    def asked_graphs(self) -> tuple[EditedGraph, ...]:
        """The graphs that are asked."""
        return self.graphs[: self.counts.chains]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All that the answers depend on in addition to model and edits."""
        pools = [
            [record.to_json() for pool in self.records for record in pool],
            [asdict(graph) for graph in self.graphs],
            [fact._asdict() for fact in self.candidates],
        ]
        return {
            "version": VERSION,
            "pools": settings_key({"pools": pools}),
            "exam_version": EXAM_VERSION,
            "text": file_digest(PERPLEXITY_TEXT),
            **asdict(self.counts),
            "scored_by": {
                "answers": Question.version,
                "naming": NAMING_VERSION,
                "peak": PEAK_VERSION,
                "chains": SCORING_VERSION["exact"],
                "aliases": settings_key(load_aliases(RECALLED)),
            },
        }


def drawn_probes(datasets: tuple[str, str], counts: ProbeCounts, *, seed: int = 0) -> Probes:
    """The pools: first records of two PEAK sets, recalled graphs and packaged facts drawn by ``seed``.

    A request among those on which editors measure is no probe: it could not be edited on top.
    """
    held_out_prompts = {comparable(request.text) for request in held_out_requests()}

    def is_held_out(request: EditRequest) -> bool:
        return comparable(request.text) in held_out_prompts

    pools = []
    for dataset, pool_size in zip(datasets, PEAK_POOL, strict=True):
        records = load_peak(dataset, limit=pool_size).records
        pools.append(tuple(r for r in records if not is_held_out(edit_request(r))))
    all_graphs = load_edited_graphs(RECALLED)
    kinds = kinds_of(all_graphs)
    graphs = [graph for graph in all_graphs if not is_held_out(request_of(graph, kinds))]
    generator = random.Random(seed)
    generator.shuffle(graphs)
    recalled_subjects = {comparable(fact.subject) for graph in all_graphs for fact in graph.facts}
    fact_of_subject: dict[str, KnownFact] = {}
    facts = packaged_known_facts()
    generator.shuffle(facts)
    for fact in facts:
        subject = comparable(fact.subject)
        if subject not in recalled_subjects:
            fact_of_subject.setdefault(subject, fact)
    candidates = [*fact_of_subject.values()][:CANDIDATES]
    return Probes((pools[0], pools[1]), tuple(graphs[:CHAIN_POOL]), tuple(candidates), counts)


def on_top(editor: Editor, state: SequenceState, requests: Sequence[EditRequest]) -> list[Edit]:
    """Each request edited by itself upon a sequence, as one more turn; each edit holds the sequence's.

    An editor that sees all requests at once is trained on the request alone upon its edit.
    """
    if editor.sees_all:
        return [editor.edit_on(state.edit, [request]) for request in requests]
    return [editor.edit_of(editor.after_turn(state, [request])) for request in requests]


@dataclass(frozen=True)
class ProbedModel:
    """Probes and the model that they are asked of, with its own answers."""

    lm: LanguageModel
    probes: Probes

    @cached_property
    def known_facts(self) -> list[KnownFact]:
        """The first candidates whose first answer is the model's most probable one, token by token.

        Which these are is kept in the user's cache: it takes longer than a checkpoint.
        """
        digest = settings_key({"probes": self.probes.settings, "dtype": self.lm.dtype_name})
        path = cache_folder("known", self.lm.fingerprint) / f"{digest}.json"
        numbers = load_or_make(path, lambda file: json.loads(file.read_text()), self._write_known)
        return [self.probes.candidates[number] for number in numbers]

    def _write_known(self, path: Path) -> None:
        """Write the numbers of the candidates that are known."""
        known_numbers: list[int] = []
        candidates = self.probes.candidates
        for first in range(0, len(candidates), 50):
            if len(known_numbers) >= self.probes.counts.known:
                break
            some_candidates = candidates[first : first + 50]
            questions = [Question(_cloze(fact), fact.answers[:1]) for fact in some_candidates]
            scores = score_answers(self.lm, questions)
            is_known = (scores["top"] == scores["tokens"]).to_numpy()
            known_numbers += (first + np.flatnonzero(is_known)).tolist()
        path.write_text(json.dumps(known_numbers[: self.probes.counts.known]))

    @cached_property
    def windows(self) -> list[list[int]]:
        """The text in windows of ``WINDOW`` tokens, the last one perhaps shorter."""
        windows: list[list[int]] = []
        tokens_left = self.probes.counts.tokens
        for window in TextCorpus(PERPLEXITY_TEXT, WINDOW).documents(self.lm):
            if tokens_left <= CONTEXT:
                break
            windows.append(window[:tokens_left])
            tokens_left -= len(window)
        return [window for window in windows if len(window) > CONTEXT]

    @cached_property
    def unedited(self) -> dict[str, pd.DataFrame]:
        """The tables of the unedited model, which all methods begin with."""
        return self.unrelated(WeightEdit({}))

    def unrelated(self, edit: Edit) -> dict[str, pd.DataFrame]:
        """Tables "known", "text" and "exam" under an edit, a row a fact, window, or answer."""
        return {"known": self.known(edit), "text": self.text(edit), "exam": self.exam(edit)}

    def known(self, edit: Edit) -> pd.DataFrame:
        """Per fact: ``sum`` of its answer; ``same``, whether the next token is; ``kl``, how far it moved."""
        if not self.known_facts:
            return pd.DataFrame(columns=["item", "sum", "same", "kl"])
        prompts = [_cloze(fact) for fact in self.known_facts]
        owners = [0] * len(prompts)
        questions = [Question(_cloze(fact), fact.answers[:1]) for fact in self.known_facts]
        scores = score_answers(self.lm, questions, [edit], owners)
        distributions = next_token_scores(self.lm, prompts, [edit], owners)
        is_same = distributions.argmax(1) == self._unedited_distributions.argmax(1)
        shifts = distribution_shifts(self._unedited_distributions, distributions)
        return pd.DataFrame(
            {
                "item": range(len(prompts)),
                "sum": scores["sum"].to_numpy(),
                "same": is_same.numpy(),
                "kl": shifts["kl"].to_numpy(),
            }
        )

    def text(self, edit: Edit) -> pd.DataFrame:
        """Per window of text: ``tokens`` that are scored and the ``sum`` of their log-probabilities."""
        pairs = [(window[:CONTEXT], window[CONTEXT:]) for window in self.windows]
        scores = score_continuations(self.lm, pairs, [edit], [0] * len(pairs))
        return scores[["tokens", "sum"]].assign(item=range(len(pairs)))

    def exam(self, edit: Edit) -> pd.DataFrame:
        """Per question of the exam: ``right``, and whether a gate ``fired`` after it (NaN: there is none)."""
        questions = exam()["facts"][: self.probes.counts.exam]
        scores = score_answers(self.lm, questions, [edit], [0] * len(questions))
        recognised = edit.recognised(self.lm, [question.prompt for question in questions])
        rows = []
        for number, (_, scores_of_question) in enumerate(scores.groupby("question")):
            means = scores_of_question["mean"].to_numpy()
            is_right = (means[0] > means[1:]).all()  # never where a mean is NaN
            fired = np.nan if recognised is None else float(recognised[number].entry >= 0)
            rows.append({"item": number, "right": bool(is_right), "fired": fired})
        return pd.DataFrame(rows, columns=["item", "right", "fired"])

    def edited_on_top(self, editor: Editor, state: SequenceState) -> dict[str, pd.DataFrame]:
        """Tables "peak" (as PEAK's metrics take them) and "chains" (``facts_table``)."""
        return {"peak": self._peak(editor, state), "chains": self._chains(editor, state)}

    def _peak(self, editor: Editor, state: SequenceState) -> pd.DataFrame:
        tables = []
        sequence_edit = editor.edit_of(state)
        for records in _in_groups(self.probes.asked_records):
            edits = on_top(editor, state, [edit_request(record) for record in records])
            before = score_records(self.lm, records, sequence_edit)
            after = score_records(self.lm, records, edits)
            tables.append(joined(before, after, KEYS))
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

    def _chains(self, editor: Editor, state: SequenceState) -> pd.DataFrame:
        tables = []
        sequence_edit = editor.edit_of(state)
        for graphs in _in_groups(self.probes.asked_graphs):
            requests = [request_of(graph, self._kinds) for graph in graphs]
            edits = on_top(editor, state, requests)
            before = self._scores_of_facts(graphs, sequence_edit)
            after = self._scores_of_facts(graphs, edits)
            tables.append(facts_table(before, after))
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

    def _scores_of_facts(self, graphs: Sequence[EditedGraph], edits: CaseEdits) -> pd.DataFrame:
        model_edits, owners_of_graphs = with_owners(edits, len(graphs))
        fact_probes: list[Probe] = []
        owners: list[int] = []
        for graph, owner in zip(graphs, owners_of_graphs, strict=True):
            for probe in probes_of(graph, graphs, self._kinds):
                if probe.form == "fact":
                    fact_probes.append(replace(probe, rivals=()))
                    owners.append(owner)
        return exact_scores(self.lm, fact_probes, self._aliases, model_edits, owners)

    @cached_property
    def _unedited_distributions(self) -> Tensor:
        """After the known facts' prompts [facts, vocabulary], as log-probabilities."""
        prompts = [_cloze(fact) for fact in self.known_facts]
        return next_token_scores(self.lm, prompts, [], [-1] * len(prompts))

    @cached_property
    def _kinds(self) -> Kinds:
        return kinds_of(load_edited_graphs(RECALLED))

    @cached_property
    def _aliases(self) -> Mapping[str, tuple[str, ...]]:
        return load_aliases(RECALLED)


def _cloze(fact: KnownFact) -> str:
    return fact.prompt.replace("{}", fact.subject).strip()


def _in_groups(probes: Sequence[Any]) -> list[list[Any]]:
    return [
        list(probes[first : first + ON_TOP_TOGETHER])
        for first in range(0, len(probes), ON_TOP_TOGETHER)
    ]
