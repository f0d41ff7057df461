"""Edit KnowGIC's facts and score all chains of all edits, in batches under overlays; resumable.

Three modes: *independent* (every edit from the pristine model), *sequential* (edits accumulate; scored at
the end), *deep* (independent, with the chains' first facts edited too). Results go to the store, keyed by
all they depend on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

import pandas as pd

from helpers import UserError
from helpers.editing.editor import Editor
from helpers.editing.update import Update
from helpers.models.language_model import LanguageModel
from helpers.records import read_all
from helpers.results.store import Cases, Results, ResultsStore, flag_unusable, settings_key
from helpers.scoring.answers import Question, tokenised
from helpers.scoring.naming import Aliases
from helpers.scoring.responses import Sampling
from helpers.thinkedit import deep, probes, scores
from helpers.thinkedit.knowgic import Edit
from helpers.thinkedit.probes import Kinds, Probe
from helpers.thinkedit.scores import ANSWERS, ESTIMATORS, EXACTLY, SCORING_VERSION, TEXTS

MODES = ("independent", "sequential", "deep")
_UNEDITED = {"editor": "none"}


@dataclass(frozen=True)
class ThinkEditRun:
    """One model on one set of edits, with one way to look at what the edits did.

    ``estimator`` is of the facts' probabilities: "exact" scoring, or "sampled", by the share of
    ``samples`` responses (the paper: five). "negated" instead scores the edited fact alone, with and
    without a negation; "texts" draws free texts about each subject, for fluency and consistency.
    ``sampling`` says how, by default as ``ANSWERS`` (one line of at most 24 tokens) or ``TEXTS``.
    ``seed`` draws the targets of deep edits. ``edits`` is what is evaluated, ``universe`` the whole
    set: rivals, neighbours and the words' frequencies come from it. Without ``rivals`` no fact is
    compared with other entities of its kind, which the default rule for known facts does not need and
    most of the scoring goes into.

    Raises:
        ValueError: an unknown estimator.
    """

    language_model: LanguageModel
    edits: Sequence[Edit]
    universe: Sequence[Edit]
    aliases: Aliases
    store: ResultsStore
    layout: str = "2025-06"
    estimator: str = "exact"
    samples: int = 5
    sampling: Sampling | None = None
    seed: int = 0
    chunk: int = 7
    rivals: bool = True
    progress: bool = False

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise ValueError(f"no estimator {self.estimator!r}; use {', '.join(ESTIMATORS)}")

    @property
    def drawn(self) -> Sampling:
        """How responses or texts are drawn."""
        return self.sampling or (TEXTS if self.estimator == "texts" else ANSWERS)

    @cached_property
    def kinds(self) -> Kinds:
        """Entities of each kind over the whole set."""
        return probes.kinds_of(self.universe)

    def before(self) -> pd.DataFrame:
        """Scores of the unedited model."""
        return self._completed(_UNEDITED, lambda edits: {"scores": self._scored(edits)})

    def after(self, editor: Editor, mode: str) -> pd.DataFrame:
        """Scores under the edits.

        Raises:
            UserError: an unknown mode, or edits that the model cannot be asked about.
        """
        if mode not in MODES:
            raise UserError(f"no mode {mode!r}; use {', '.join(MODES)}")
        return self._completed(self._how(editor, mode), partial(self._edited, editor, mode))

    def read(self, editor: Editor, mode: str, kind: str = "scores") -> pd.DataFrame:
        """A finished table: "scores", or "edits" (why an edit was given up; empty where it was made)."""
        how = self._how(editor, mode)
        return self._cases(how).read(self._open(how), kind)

    def _how(self, editor: Editor, mode: str) -> dict[str, Any]:
        settings = {"mode": mode, **editor.settings()}
        if mode == "deep":
            settings |= {"deep": deep.VERSION, "seed": self.seed}
        if mode == "sequential":
            settings["sequence"] = [edit.case_id for edit in self.edits]
        return settings

    def _edited(self, editor: Editor, mode: str, edits: Sequence[Edit]) -> dict[str, pd.DataFrame]:
        """Make the edits, and score them: alone, or those of a sequence under all of them."""
        updates = self._updates(editor, mode, edits)
        failures = [update.diagnostics.get("failure", "") for update in updates]
        made = pd.DataFrame({"case_id": [edit.case_id for edit in edits], "failure": failures})
        if mode == "sequential":  # one edited model on the device at a time
            return {"scores": self._scored(edits, updates[-1:], [0] * len(edits)), "edits": made}
        table = self._scored(edits, updates, range(len(edits)))
        if self.estimator in EXACTLY:
            made = flag_unusable(made, table, "original_sum")
        return {"scores": table, "edits": made}

    def _updates(self, editor: Editor, mode: str, edits: Sequence[Edit]) -> list[Update]:
        """One update for each edit; in a sequence it holds all edits up to its own."""
        if mode == "deep":
            asked = deep.deep_edits(self.language_model, edits, self.kinds, seed=self.seed)
            return [_whole(editor.edit_jointly(each)) for each in asked]
        requests = [probes.request_of(edit, self.kinds) for edit in edits]
        if mode == "sequential":  # kept on the CPU: RECT's updates are dense
            return [update.to("cpu") for update in editor.edit_sequentially(requests)]
        return editor.edit(requests)

    def _scored(
        self,
        edits: Sequence[Edit],
        updates: Sequence[Update] | None = None,
        owners: Sequence[int] | None = None,
    ) -> pd.DataFrame:
        drawn: dict[str, Any] = {"n": self.samples, "sampling": self.drawn}
        model, aliases, shown = self.language_model, self.aliases, self.progress
        if self.estimator == "texts":
            return scores.text_scores(model, edits, self.universe, updates, owners, **drawn)
        if self.estimator == "sampled":
            return scores.sampled_scores(
                model, edits, aliases, updates, owners, **drawn, progress=shown
            )
        asked: list[Probe] = []
        owner_of: list[int] = []
        for edit, owner in zip(edits, owners or [-1] * len(edits), strict=True):
            own = self._probes(edit)
            asked += own if self.rivals else [replace(probe, rivals=()) for probe in own]
            owner_of += [owner] * len(own)
        return scores.exact_scores(model, asked, aliases, updates, owner_of, progress=shown)

    def _probes(self, edit: Edit) -> list[Probe]:
        if self.estimator == "negated":
            return probes.negations_of(edit)
        return probes.probes_of(edit, self.universe, self.kinds)

    def _completed(self, how: dict[str, Any], make: Any) -> pd.DataFrame:
        """All edits, those that are missing checked before the first of them is made."""
        cases, results = self._cases(how), self._open(how)
        missing = ((f"case_id {n}", cases.by_id[n]) for n in cases.missing(results))

        def check(edit: Edit) -> None:
            tokenised(self.language_model, scores.questions_of(self._probes(edit), self.aliases))

        read_all(missing, check)
        return cases.completed(results, make)

    def _cases(self, how: dict[str, Any]) -> Cases[Edit]:
        """The edits by number; a sequence is made at once."""
        by_id = {edit.case_id: edit for edit in self.edits}
        chunk = None if how.get("mode") == "sequential" else self.chunk
        return Cases(by_id, chunk, None if self._of_all(how) else self._content)

    def _open(self, how: dict[str, Any]) -> Results:
        whole = {**self.settings(), **how}
        if not self._of_all(how):
            del whole["layout"], whole["universe"]
            whole["edits"] = "by content"
        return self.store.open(whole)

    def _of_all(self, how: dict[str, Any]) -> bool:
        """Whether one edit's rows depend on the other edits as a whole."""
        return self.estimator == "texts" or how.get("mode") in ("sequential", "deep")

    def _content(self, edit: Edit) -> Any:
        """All that an edit's rows depend on: rivals and neighbours are of the whole set."""
        asked = [asdict(probe) for probe in self._probes(edit)]
        return asdict(edit), str(probes.request_of(edit, self.kinds)), asked

    def settings(self) -> dict[str, Any]:
        """Everything the scores depend on besides the editor and the mode."""
        if self.estimator in EXACTLY:
            how: dict[str, Any] = {"scored_by": {"answers": Question.version}}
        else:
            drawn = {"samples": self.samples, "sampling": asdict(self.drawn)}
            how = {"scored_by": {"responses": Sampling.version}, **drawn}
        aliases = {name: list(others) for name, others in self.aliases.items()}
        return {
            "benchmark": "thinkedit",
            "layout": self.layout,
            "universe": settings_key({"edits": [asdict(edit) for edit in self.universe]}),
            **self.language_model.identity,
            "estimator": self.estimator,
            "scoring_version": SCORING_VERSION[self.estimator],
            **how,
            **({} if self.rivals else {"rivals": False}),
            **({"aliases": settings_key(aliases)} if self.estimator != "texts" else {}),
        }


def _whole(update: Update) -> Update:
    """The update, or none where a request failed: without it, it would be another edit."""
    parts = update.diagnostics["edits"]
    lost = [part["failure"] for part in parts if "failure" in part]
    if not lost:
        return update
    reason = f"{len(lost)} of {len(parts)} requests failed, the first with: {lost[0]}"
    return Update({}, {**update.diagnostics, "failure": reason})
