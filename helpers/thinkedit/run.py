"""Edit KnowGIC's facts and score all chains of all edits, in batches under overlays; resumable.

The ways are those of ``helpers.thinkedit.modes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from helpers import UserError
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.editing.placebo import Topic, foreign_records
from helpers.editing.weight_edit import WeightEdit
from helpers.models import LanguageModel
from helpers.params import check_one_of
from helpers.records import read_all
from helpers.results.store import Cases, Results, ResultsStore, flag_unusable, settings_key
from helpers.scoring.answers import Question, tokenised
from helpers.scoring.naming import Aliases
from helpers.scoring.responses import Sampling
from helpers.thinkedit import deep, probes, scores
from helpers.thinkedit.knowgic import EditedGraph
from helpers.thinkedit.modes import BEFORE, MODES, PLACEBO, SEQUENCES, SEQUENTIAL
from helpers.thinkedit.probes import Kinds, Probe
from helpers.thinkedit.scores import ANSWERS, SCORING_VERSION, TEXTS


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
    sampling: Sampling | None = None  # by default ``ANSWERS`` or ``TEXTS``
    seed: int = 0  # draws the targets of deep edits and further orders, and chooses placebos
    chunk: int = 7
    rivals: bool = True  # most of the scoring; the default rule for known facts needs none

    @property
    def drawn(self) -> Sampling:
        """How responses or texts are drawn."""
        return self.sampling or (TEXTS if self.estimator == "texts" else ANSWERS)

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

    def again(self) -> ThinkEditRun:
        """A copy that draws other random numbers, which shows what two draws of one model differ by."""
        return replace(self, sampling=replace(self.drawn, seed=self.drawn.seed + 1))

    def before(self) -> pd.DataFrame:
        """Scores of the unedited model."""
        return self._completed(lambda edits: {"scores": self._scored(edits)})

    def after(self, editor: Editor, mode: str) -> pd.DataFrame:
        """Scores under the edits; a UserError if they cannot be asked about, or every edit is given up."""
        check_one_of("mode", mode, MODES)
        table = self._completed(partial(self._edited, editor, mode), editor, mode)
        reasons = list(self.read(editor, mode, "edits")["failure"])
        if all(reasons):
            raise UserError(f"{editor.method}: the edit was given up: {reasons[0]}")
        return table

    def read(self, editor: Editor, mode: str, kind: str = "scores") -> pd.DataFrame:
        """What is finished: "scores", or "edits" (why an edit was given up; empty where it was made)."""
        cases, results = self._opened(editor, mode)
        return cases.read(results, kind)

    def _edited(
        self, editor: Editor, mode: str, edits: Sequence[EditedGraph]
    ) -> dict[str, pd.DataFrame]:
        """Make the edits, and score them: alone, or those of a sequence under all of them."""
        edits = self.in_order(mode, edits)
        model_edits = self._model_edits(editor, mode, edits)
        failures = [edit.diagnostics.get("failure", "") for edit in model_edits]
        edit_rows = pd.DataFrame({"case_id": [edit.case_id for edit in edits], "failure": failures})
        if mode in SEQUENCES:  # one edited model on the device at a time
            table = self._scored(edits, model_edits[-1:], [0] * len(edits))
        else:
            table = self._scored(edits, model_edits, range(len(edits)))
        if self.estimator == "exact":
            if mode in SEQUENCES and table["original_sum"].isna().any():
                raise UserError(f"{editor.method}: a score is not finite; use a wider dtype")
            edit_rows = flag_unusable(edit_rows, table, "original_sum")
        return {"scores": table, "edits": edit_rows}

    def _model_edits(self, editor: Editor, mode: str, edits: Sequence[EditedGraph]) -> list[Edit]:
        """One update for each edit; in a sequence it holds all edits up to its own."""
        if mode == "deep":
            requests_by_edit = deep.deep_edits(self.lm, edits, self.kinds, seed=self.seed)
            return [_whole(editor.edit_jointly(requests)) for requests in requests_by_edit]
        if mode == PLACEBO:
            edits = [self.foreign[edit.case_id] for edit in edits]
        requests = [probes.request_of(edit, self.kinds) for edit in edits]
        if mode in SEQUENCES:  # kept on the CPU: RECT's are dense
            return [edit.to("cpu") for edit in editor.edit_sequentially(requests)]
        return list(editor.edit(requests))

    def _scored(
        self,
        edits: Sequence[EditedGraph],
        model_edits: Sequence[Edit] | None = None,
        owners: Sequence[int] | None = None,
    ) -> pd.DataFrame:
        """Scores by the estimator, under the model edits that own the graphs (default: none)."""
        if self.estimator == "texts":
            return scores.text_scores(
                self.lm,
                edits,
                self.universe,
                n=self.samples,
                sampling=self.drawn,
                model_edits=model_edits,
                owners=owners,
            )
        if self.estimator == "sampled":
            return scores.sampled_scores(
                self.lm,
                edits,
                self.aliases,
                n=self.samples,
                sampling=self.drawn,
                model_edits=model_edits,
                owners=owners,
            )
        probes_of_edits: list[Probe] = []
        probe_owners: list[int] = []
        for edit, owner in zip(edits, owners or [-1] * len(edits), strict=True):
            for probe in self._probes(edit):
                probes_of_edits.append(probe if self.rivals else replace(probe, rivals=()))
                probe_owners.append(owner)
        return scores.exact_scores(
            self.lm, probes_of_edits, self.aliases, model_edits, probe_owners
        )

    def _probes(self, edit: EditedGraph) -> list[Probe]:
        return probes.probes_of(edit, self.universe, self.kinds)

    def _completed(
        self, make: Any, editor: Editor | None = None, mode: str = BEFORE
    ) -> pd.DataFrame:
        """All edits, those that are missing checked before the first of them is made."""
        cases, results = self._opened(editor, mode)
        missing = ((f"case_id {n}", cases.by_id[n]) for n in cases.missing(results))

        def check(edit: EditedGraph) -> None:
            questions = scores.questions_of(self._probes(edit), self.aliases)
            tokenised(self.lm, questions)

        read_all(missing, check)
        return cases.completed(results, make)

    def _opened(self, editor: Editor | None, mode: str) -> tuple[Cases[EditedGraph], Results]:
        """The edits, and their results; only rows of sequences, deep edits and texts depend on all edits."""
        of_editor = {"mode": mode, **editor.settings()} if editor else {"editor": "none"}
        settings = {**self.settings(), **of_editor, **self.of_mode(mode)}
        of_all = self.estimator == "texts" or mode in (*SEQUENCES, "deep")
        if not of_all:
            del settings["layout"], settings["universe"]
            settings["edits"] = "by content"
        by_id = {edit.case_id: edit for edit in self.edits}
        chunk = None if mode in SEQUENCES else self.chunk
        content = None if of_all else self._content
        if mode == PLACEBO:
            content = self._content_under_foreign
        return Cases(by_id, chunk, content), self.store.open(settings)

    def in_order(self, mode: str, edits: Sequence[EditedGraph]) -> list[EditedGraph]:
        """The edits as a mode makes them: in the order of the set, or drawn at random for a further order."""
        order = list(edits)
        if mode in SEQUENCES and mode != SEQUENTIAL:
            number = SEQUENCES.index(mode)
            np.random.default_rng([self.seed, number]).shuffle(order)
        return order

    def of_mode(self, mode: str) -> dict[str, Any]:
        """What rows depend on in this mode alone."""
        if mode == "deep":
            return {"deep": deep.VERSION, "seed": self.seed}
        if mode in SEQUENCES:
            return {"sequence": [edit.case_id for edit in self.in_order(mode, self.edits)]}
        return {"seed": self.seed} if mode == PLACEBO else {}

    def _content(self, edit: EditedGraph) -> Any:
        """All that an edit's rows depend on: rivals and neighbours are of the whole set."""
        probe_values = [asdict(probe) for probe in self._probes(edit)]
        return asdict(edit), str(probes.request_of(edit, self.kinds)), probe_values

    def _content_under_foreign(self, edit: EditedGraph) -> Any:
        """An edit's content, and the other edit under which its rows are scored."""
        foreign = self.foreign[edit.case_id]
        return self._content(edit), str(probes.request_of(foreign, self.kinds))

    def settings(self) -> dict[str, Any]:
        """Everything the scores depend on besides the editor and the mode."""
        scoring: dict[str, Any] = {"scored_by": {"answers": Question.version}}
        if self.estimator != "exact":
            scoring = {
                "scored_by": {"responses": Sampling.version},
                "samples": self.samples,
                "sampling": asdict(self.drawn),
            }
        if not self.rivals:
            scoring["rivals"] = False
        if self.estimator != "texts":
            aliases = {name: list(others) for name, others in self.aliases.items()}
            scoring["aliases"] = settings_key(aliases)
        return {
            "benchmark": "thinkedit",
            "layout": self.layout,
            "universe": settings_key({"edits": [asdict(edit) for edit in self.universe]}),
            **self.lm.identity,
            "estimator": self.estimator,
            "scoring_version": SCORING_VERSION[self.estimator],
            **scoring,
        }


def _whole(update: Edit) -> Edit:
    """The update, or none where a request failed: without it, it would be another edit."""
    requests = update.diagnostics["edits"]
    failures = [request["failure"] for request in requests if "failure" in request]
    if not failures:
        return update
    reason = f"{len(failures)} of {len(requests)} requests failed, the first with: {failures[0]}"
    return WeightEdit({}, {**update.diagnostics, "failure": reason})
