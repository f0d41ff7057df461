"""PEAK's records under an editor's update at several scales, without a new optimisation, for ``strength``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

import pandas as pd

from helpers.behaviour import scorers
from helpers.behaviour.agreement import UNEDITED, named_table
from helpers.behaviour.scorers import NAMED, NOTHING, SAMPLED, WORDINGS, named_answers
from helpers.costs.records import studied_run
from helpers.costs.states import DerivedStates, EditsByState, in_rows
from helpers.costs.strength import scale_state
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.editing.weight_edit import only_weights
from helpers.models import LanguageModel
from helpers.peak.publish import editors_of, publication_of
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun
from helpers.results.archive import NAMED_BY, TableKey
from helpers.results.benchmark import part_of_cases
from helpers.results.evaluation import Tables
from helpers.results.publish import Part, Publication
from helpers.scoring.responses import Sampling, sample_responses


@dataclass(frozen=True)
class Strengths:
    """A run's records under an editor's update at several scales, with a greedy response each."""

    run: PeakRun
    scales: tuple[float, ...]
    sampling: Sampling = SAMPLED

    @property
    def settings(self) -> dict[str, Any]:
        """What responses depend on in addition to model, record and edit."""
        return {
            "wording": WORDINGS["free"],
            "sampling": asdict(self.sampling),
            "responses": Sampling.version,
            "naming": scorers.VERSION,
        }

    @cached_property
    def states(self) -> DerivedStates:
        """All scales of one edit, in one packed run."""
        return DerivedStates(
            run=self.run,
            name="scaled",
            derive=self._scaled,
            derived_by={"scales": list(self.scales)},
            settings=self.settings,
            more=self._responses,
        )

    def scores(
        self, editor: Editor, scale: float, *, from_store_only: bool = False
    ) -> pd.DataFrame:
        """Scores before and under the scaled update, for the metrics."""
        return self.states.scores(editor, scale_state(scale), from_store_only=from_store_only)

    def named(
        self, editor: Editor | None, scale: float, *, from_store_only: bool = False
    ) -> pd.DataFrame:
        """Known answers (``NAMED``) that greedy responses name, or ``NOTHING``'s."""
        state = UNEDITED if editor is None else scale_state(scale)
        return self.states.table(editor, state, "named", from_store_only=from_store_only)

    def parts(self, method: str, editor: Editor) -> list[Part]:
        """A table of scores and one of names for each scale."""
        case_ids = [record.case_id for record in self.run.data.records]
        parts = []
        for scale in self.scales:
            settings = {**editor.settings(), "scale": scale}
            state = scale_state(scale)
            read_scores = partial(self.scores, editor, scale)
            read_named = partial(self.named, editor, scale)
            scores_name = str(TableKey("", method, state))
            named_name = str(TableKey(NAMED_BY, method, state))
            parts.append(part_of_cases(scores_name, settings, read_scores, case_ids))
            parts.append(part_of_cases(named_name, settings, read_named, case_ids))
        return parts

    def _scaled(
        self, editor: Editor, records: Sequence[PeakRecord], edits: Sequence[Edit]
    ) -> EditsByState:
        updates = [only_weights(edit, f"scaling {editor.method}") for edit in edits]
        return {
            scale_state(scale): [update.scaled(scale) for update in updates]
            for scale in self.scales
        }

    def _responses(
        self, lm: LanguageModel, records: Sequence[PeakRecord], by_state: EditsByState | None
    ) -> Tables:
        """Greedy responses to the edit prompt, and the known answers that they name."""
        records_in_states, edits, states = in_rows(records, by_state)
        owners = list(range(len(edits))) or [-1] * len(records)
        prompts = [WORDINGS["free"].format(prompt=r.edit_prompt) for r in records_in_states]
        responses = sample_responses(
            lm, prompts, edits, owners, n=1, greedy=True, sampling=self.sampling
        )
        texts = []
        names = []
        for record, state, (text,) in zip(records_in_states, states, responses, strict=True):
            texts.append((record.case_id, "free", 0, text, state))
            for list_name, answer_index in named_answers(text, record) or [NOTHING]:
                names.append((record.case_id, "free", 0, list_name, answer_index, state))
        text_columns = ["case_id", "form", "sample", "text", "state"]
        return {
            "texts": pd.DataFrame(texts, columns=text_columns),
            "named": pd.DataFrame(names, columns=[*NAMED, "state"]),
        }


def publication(params: Mapping[str, Any]) -> Publication:
    """Methods of notebook 04's parameter ``scaled`` at all ``scales``, and those ``unscaled`` at 1."""
    run = studied_run(params)
    sampling = replace(SAMPLED, seed=params["seed"])
    strengths = Strengths(run, tuple(params["scales"]), sampling)
    as_it_is = replace(strengths, scales=(1.0,))
    methods = [*params["scaled"], *params["unscaled"]]
    built = editors_of(run, methods, params)
    case_ids = [record.case_id for record in run.data.records]
    read_named = partial(strengths.named, None, 0.0)
    parts = [part_of_cases(named_table(UNEDITED), {}, read_named, case_ids)]
    for method in params["unscaled"]:
        if method in built:
            parts += as_it_is.parts(method, built[method])
    for method in params["scaled"]:
        if method in built:
            parts += strengths.parts(method, built[method])
    return publication_of(run, params, parts, methods, strengths.settings)
