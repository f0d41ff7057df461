"""Edit KnowGIC's facts and score all chains of all edits, in batches under overlays; resumable.

The ways are those of ``helpers.thinkedit.modes``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from helpers import UserError
from helpers.editing.corpus import corpus_named
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.editing.moments import SecondMoment, second_moments
from helpers.editing.placebo import Topic, foreign_records
from helpers.editing.request import EditRequest, TrainingProbe
from helpers.editing.weight_edit import WeightEdit, only_weights
from helpers.editing.without_key import Direction, key_itself, whitened, without_subject_keys
from helpers.models import LanguageModel
from helpers.params import check_one_of
from helpers.results.evaluation import (
    Asked,
    Benchmark,
    CaseEdits,
    Evaluation,
    Mode,
    Tables,
    with_owners,
)
from helpers.results.store import ResultsStore, settings_key
from helpers.scoring.naming import Aliases
from helpers.scoring.responses import Sampling
from helpers.thinkedit import deep, probes, scores
from helpers.thinkedit.knowgic import EditedGraph
from helpers.thinkedit.modes import (
    KEY_MODES,
    MODES,
    PLACEBO,
    SEQUENCES,
    SEQUENTIAL,
    WHITENED,
    WITHOUT_OTHER_KEY,
)
from helpers.thinkedit.probes import Kinds, Probe
from helpers.thinkedit.scores import ANSWER_SAMPLING, SCORING_VERSION, TEXT_SAMPLING


@dataclass(frozen=True)
class ThinkEditRun:
    """One model on one set of edits, with one way to look at what the edits did."""

    lm: LanguageModel
    edits: Sequence[EditedGraph]
    universe: Sequence[
        EditedGraph
    ]  # rivals, neighbours and the words' frequencies are of all these
    aliases: Aliases
    store: ResultsStore
    layout: str = "2025-06"
    estimator: str = "exact"  # or "sampled" (share of responses), "texts" (about each subject)
    samples: int = 5  # responses or texts
    sampling: Sampling | None = None  # by default ``ANSWER_SAMPLING`` or ``TEXT_SAMPLING``
    seed: int = 0  # draws the targets of deep edits and further orders, and chooses placebos
    corpus: str = "self"  # of the second moments by which keys are whitened
    chunk: int = 7
    rivals: bool = True  # most of the scoring; the default rule for known facts needs none
    # Of an edit, by its ``case_id``: what icd may train on (``thinkedit.shown``).
    probes_shown: Mapping[int, Sequence[TrainingProbe]] = field(default_factory=dict)

    @property
    def drawn(self) -> Sampling:
        """How responses or texts are drawn."""
        return self.sampling or (TEXT_SAMPLING if self.estimator == "texts" else ANSWER_SAMPLING)

    @cached_property
    def kinds(self) -> Kinds:
        """Entities of each kind over the whole set."""
        return probes.kinds_of(self.universe)

    @cached_property
    def foreign(self) -> dict[int, EditedGraph]:
        """The edit that is each edit's placebo, by its ``case_id``: it asks for another kind of object,
        about a subject that is nowhere in the graph.
        """
        topics = [
            Topic(
                record=f"case_id {edit.case_id}",
                relation=probes.kind_asked(edit),
                subject=edit.subject,
                names=frozenset(name for chain in edit.chains for name in chain.nodes),
            )
            for edit in self.edits
        ]
        indices = foreign_records(topics, seed=self.seed)
        pairs = zip(self.edits, indices, strict=True)
        return {edit.case_id: self.edits[index] for edit, index in pairs}

    def second_draw(self) -> ThinkEditRun:
        """A copy that draws other random numbers, which shows what two draws of one model differ by."""
        return replace(self, sampling=replace(self.drawn, seed=self.drawn.seed + 1))

    @cached_property
    def benchmark(self) -> Benchmark[EditedGraph]:
        """The edits and what is asked of each; texts are judged by the words of the whole set."""
        source = {
            "layout": self.layout,
            "universe": settings_key({"edits": [asdict(edit) for edit in self.universe]}),
        }
        return Benchmark(
            name="thinkedit",
            version=SCORING_VERSION[self.estimator],
            data=source,
            path="",
            cases=self.edits,
            request=self.request,
            questions=self.questions,
            relation=probes.kind_asked,
            content=None if self.estimator == "texts" else self.content,
            settings={"estimator": self.estimator, **self._scoring()},
            score=self.scored,
            finite="original_sum" if self.estimator == "exact" else "",
            items="edits",
            whole=source,
        )

    def evaluation(
        self, editor: Editor | None = None, mode: str = "independent"
    ) -> Evaluation[EditedGraph]:
        """The edits by an editor in one of ``MODES``, or of the unedited model."""
        if editor is None:
            return Evaluation(self.lm, self.benchmark, self.store, chunk=self.chunk)
        benchmark = replace(self.benchmark, cases=self.in_order(mode, self.edits))
        return Evaluation(self.lm, benchmark, self.store, editor, self.mode(mode), chunk=self.chunk)

    def before(self) -> pd.DataFrame:
        """Scores of the unedited model."""
        return self.evaluation().complete()

    def after(self, editor: Editor, mode: str) -> pd.DataFrame:
        """Scores under the edits; a UserError if they cannot be asked about, or every edit is given up."""
        check_one_of("mode", mode, MODES)
        evaluation = self.evaluation(editor, mode)
        table = evaluation.complete()
        reasons = list(evaluation.read("edits")["failure"])
        if all(reasons):
            raise UserError(f"{editor.method}: the edit was given up: {reasons[0]}")
        return table

    def mode(self, name: str) -> Mode[EditedGraph]:
        """How edits are made in one of ``MODES``, and what rows depend on in it alone."""
        if name == "deep":
            settings = {"deep": deep.VERSION, "seed": self.seed}
            return Mode(name, self._deep_edits, settings, of_all=True)
        if name == PLACEBO:
            settings = {"seed": self.seed}
            return Mode(name, self._foreign_edits, settings, self._content_under_foreign)
        if name in KEY_MODES:
            return self._mode_without_key(name)
        if name in SEQUENCES:
            sequence = [edit.case_id for edit in self.in_order(name, self.edits)]
            return Mode(name, settings={"sequence": sequence}, in_sequence=True)
        return Mode(name)

    def in_order(self, mode: str, edits: Sequence[EditedGraph]) -> list[EditedGraph]:
        """The edits as a mode makes them: in the order of the set, or drawn at random for a further order."""
        order = list(edits)
        if mode in SEQUENCES and mode != SEQUENTIAL:
            number = SEQUENCES.index(mode)
            np.random.default_rng([self.seed, number]).shuffle(order)
        return order

    def request(self, edit: EditedGraph) -> EditRequest:
        """The edit as editors take it."""
        request = probes.request_of(edit, self.kinds)
        return replace(request, probes=tuple(self.probes_shown.get(edit.case_id, ())))

    def questions(self, edit: EditedGraph) -> Asked:
        """What is asked about an edit's probes, whatever the estimator."""
        questions = scores.questions_of(self._probes(edit), self.aliases)
        answers = sum(len(question.answers) for question in questions)
        return questions, pd.DataFrame({"case_id": [edit.case_id] * answers})

    def content(self, edit: EditedGraph) -> Any:
        """All that an edit's rows depend on: rivals and neighbours are of the whole set."""
        probe_values = [asdict(probe) for probe in self._probes(edit)]
        return asdict(edit), str(self.request(edit)), probe_values

    def scored(self, lm: LanguageModel, edits: Sequence[EditedGraph], under: CaseEdits) -> Tables:
        """Scores of the edits by the estimator, under what editors made of them."""
        if self.estimator == "exact":
            return {"scores": self._exact(lm, edits, under)}
        if self.estimator == "texts":
            table = scores.text_scores(
                lm, edits, self.universe, under, n=self.samples, sampling=self.drawn
            )
        else:
            table = scores.sampled_scores(
                lm, edits, self.aliases, under, n=self.samples, sampling=self.drawn
            )
        return {"scores": table}

    def _exact(
        self, lm: LanguageModel, edits: Sequence[EditedGraph], under: CaseEdits
    ) -> pd.DataFrame:
        model_edits, owners = with_owners(under, len(edits))
        probes_of_edits: list[Probe] = []
        probe_owners: list[int] = []
        for edit, owner in zip(edits, owners, strict=True):
            for probe in self._probes(edit):
                probes_of_edits.append(probe if self.rivals else replace(probe, rivals=()))
                probe_owners.append(owner)
        return scores.exact_scores(lm, probes_of_edits, self.aliases, model_edits, probe_owners)

    def _probes(self, edit: EditedGraph) -> list[Probe]:
        return probes.probes_of(edit, self.universe, self.kinds)

    def _scoring(self) -> dict[str, Any]:
        """What the estimator's scores depend on in addition to model, edits and editor."""
        scoring: dict[str, Any] = {}
        if self.estimator != "exact":
            scoring["scored_by"] = {"responses": Sampling.version}
            scoring["samples"] = self.samples
            scoring["sampling"] = asdict(self.drawn)
        if not self.rivals:
            scoring["rivals"] = False
        if self.estimator != "texts":
            aliases = {name: list(others) for name, others in self.aliases.items()}
            scoring["aliases"] = settings_key(aliases)
        return scoring

    def _deep_edits(self, editor: Editor, edits: Sequence[EditedGraph]) -> list[Edit]:
        """Of each edit the joint one of its own and the chains' first facts."""
        requests_by_edit = deep.deep_edits(self.lm, edits, self.kinds, seed=self.seed)
        return [_whole(editor.edit_jointly(requests)) for requests in requests_by_edit]

    def _foreign_edits(self, editor: Editor, edits: Sequence[EditedGraph]) -> Sequence[Edit]:
        """Of each edit the one that is its placebo."""
        return editor.edit([self.request(self.foreign[edit.case_id]) for edit in edits])

    def _mode_without_key(self, name: str) -> Mode[EditedGraph]:
        """Each edit without what it does to a key: its own subject's, or that of its placebo's subject."""
        edits_of = partial(self._edits_without_key, name=name)
        settings: dict[str, Any] = {
            "without_key": 1
        }  # raised when the same edits lose something else
        if name == WHITENED:
            settings["corpus"] = corpus_named(self.corpus, seed=self.seed).name
        if name == WITHOUT_OTHER_KEY:
            settings["seed"] = self.seed
            return Mode(name, edits_of, settings, self._content_under_foreign)
        return Mode(name, edits_of, settings)

    def _edits_without_key(
        self, editor: Editor, edits: Sequence[EditedGraph], *, name: str
    ) -> list[Edit]:
        requests = [self.request(edit) for edit in edits]
        weight_edits = [only_weights(edit, name) for edit in editor.edit(requests)]
        if name == WITHOUT_OTHER_KEY:
            requests = [self.request(self.foreign[edit.case_id]) for edit in edits]
        direction: Direction = key_itself
        if name == WHITENED:
            module_names = {module_name for edit in weight_edits for module_name in edit}
            direction = whitened(self._moments(module_names))
        return list(without_subject_keys(self.lm, weight_edits, requests, direction))

    def _moments(self, module_names: Collection[str]) -> dict[str, SecondMoment]:
        """Second moments of what enters those of the modules that have any: the MLPs' outputs."""
        layout = self.lm.layout
        layers = [n for n in range(layout.blocks) if layout.mlp_out(n) in module_names]
        corpus = corpus_named(self.corpus, seed=self.seed)
        moments = second_moments(self.lm, layers, corpus)
        return {layout.mlp_out(layer): moment for layer, moment in moments.items()}

    def _content_under_foreign(self, edit: EditedGraph) -> Any:
        """An edit's content, and the other edit under which its rows are scored."""
        return self.content(edit), str(self.request(self.foreign[edit.case_id]))


def _whole(update: Edit) -> Edit:
    """The update, or none where a request failed: without it, it would be another edit."""
    requests = update.diagnostics["edits"]
    failures = [request["failure"] for request in requests if "failure" in request]
    if not failures:
        return update
    reason = f"{len(failures)} of {len(requests)} requests failed, the first with: {failures[0]}"
    return WeightEdit({}, {**update.diagnostics, "failure": reason})
