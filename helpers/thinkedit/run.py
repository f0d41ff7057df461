"""Edit KnowGIC's facts and score all chains of all edits, in batches under overlays; resumable.

Three modes: *independent* (every edit from the pristine model), *sequential* (edits accumulate; scored at
the end, and each edit also right after it was made), *deep* (independent, with the chains' first
facts edited too). Results go to the store, keyed by all they depend on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

import pandas as pd

from helpers.editing.editor import Editor
from helpers.editing.request import EditRequest
from helpers.editing.update import Update
from helpers.models.language_model import LanguageModel
from helpers.records import Usable
from helpers.results.store import Cases, Results, ResultsStore, flag_unusable, settings_key
from helpers.scoring.naming import Aliases
from helpers.scoring.responses import Sampling
from helpers.thinkedit import deep, probes, scores
from helpers.thinkedit.edits import Edit
from helpers.thinkedit.probes import Kinds, Probe
from helpers.thinkedit.scores import ANSWERS, ESTIMATORS, EXACTLY, TEXTS
from helpers.thinkedit.updates import deep_updates, independent_updates, sequential_updates
from helpers.thinkedit.usable import askable

MODES = ("independent", "sequential", "deep")
_UNEDITED = {"editor": "none"}
# What is asked along a sequence, after each edit: how the edits fare. Graphs are asked at its end.
_ALONG = ("edit", "paraphrase", "neighbour")


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
        made = partial(self._scored, updates=None, owners=None)
        return self._completed(_UNEDITED, made)

    def after(self, editor: Editor, mode: str) -> pd.DataFrame:
        """Scores under the edits.

        Raises:
            ValueError: an unknown mode.
        """
        if mode not in MODES:
            raise ValueError(f"no mode {mode!r}; use {', '.join(MODES)}")
        how = self._how(editor, mode)
        if mode == "sequential":
            return self._completed(how, partial(self._sequential, editor))
        return self._completed(how, partial(self._independent, editor, mode=mode))

    def results(self, editor: Editor, mode: str) -> Results:
        """Where the results of an editor and mode are kept."""
        return self._open(self._how(editor, mode))

    def _how(self, editor: Editor, mode: str) -> dict[str, Any]:
        settings = {"mode": mode, **editor.settings()}
        if mode == "deep":
            settings |= {"deep": deep.VERSION, "seed": self.seed}
        if mode == "sequential":
            settings["sequence"] = [edit.case_id for edit in self.edits]
        return settings

    def read(self, editor: Editor, mode: str, kind: str) -> pd.DataFrame:
        """Another table of a finished run: "edits" (diagnostics), or "along" (exact, sequential).

        ``along`` has each edit's prompt, paraphrases and neighbours right after it was made.
        """
        how = self._how(editor, mode)
        return self._cases(how).read(self._open(how), kind)

    def _independent(
        self, editor: Editor, edits: Sequence[Edit], mode: str
    ) -> dict[str, pd.DataFrame]:
        if mode == "deep":
            asked = deep.deep_edits(self.language_model, edits, self.kinds, seed=self.seed)
            made = deep_updates(editor, edits, asked)
        else:
            made = independent_updates(editor, edits, self._requests(edits))
        tables = self._scored(edits, made.updates, range(len(edits)))
        if self.estimator not in EXACTLY:
            return tables | {"edits": made.diagnostics}
        return tables | {"edits": flag_unusable(made.diagnostics, tables["scores"], "original_sum")}

    def _sequential(self, editor: Editor, edits: Sequence[Edit]) -> dict[str, pd.DataFrame]:
        made = sequential_updates(editor, edits, self._requests(edits))
        tables = self._scored(edits, made.updates[-1:], [0] * len(edits))
        if self.estimator == "exact":
            # One edited model on the device at a time.
            along = zip(edits, made.updates, strict=True)
            scored = [self._exact([edit], [update], [0], _ALONG) for edit, update in along]
            tables["along"] = pd.concat(scored, ignore_index=True)
        return tables | {"edits": made.diagnostics}

    def _requests(self, edits: Sequence[Edit]) -> list[EditRequest]:
        return [probes.request_of(edit, self.kinds) for edit in edits]

    def _scored(
        self,
        edits: Sequence[Edit],
        updates: Sequence[Update] | None,
        owners: Sequence[int] | None,
    ) -> dict[str, pd.DataFrame]:
        if self.estimator in EXACTLY:
            return {"scores": self._exact(edits, updates, owners)}
        if self.estimator == "texts":
            made = scores.text_scores(
                self.language_model,
                edits,
                self.universe,
                updates,
                owners,
                sampling=self.drawn,
                n=self.samples,
            )
            return {"scores": made}
        made = scores.sampled_scores(
            self.language_model,
            edits,
            self.aliases,
            updates,
            owners,
            n=self.samples,
            sampling=self.drawn,
            progress=self.progress,
        )
        return {"scores": made}

    def _exact(
        self,
        edits: Sequence[Edit],
        updates: Sequence[Update] | None,
        owners: Sequence[int] | None,
        forms: Sequence[str] = (*probes.FORMS, *probes.NEGATIONS),
    ) -> pd.DataFrame:
        asked: list[Probe] = []
        owner_of: list[int] = []
        for place, edit in enumerate(edits):
            own = [probe for probe in self._probes(edit) if probe.form in forms]
            if not self.rivals:
                own = [replace(probe, rivals=()) for probe in own]
            asked += own
            owner_of += [-1 if owners is None else owners[place]] * len(own)
        return scores.exact_scores(
            self.language_model, asked, self.aliases, updates, owner_of, progress=self.progress
        )

    def _probes(self, edit: Edit) -> list[Probe]:
        if self.estimator == "negated":
            return probes.negations_of(edit)
        return probes.probes_of(edit, self.universe, self.kinds)

    def _completed(self, how: dict[str, Any], make: Any) -> Any:
        """All edits, those that are missing checked before the first of them is made."""
        cases, results = self._cases(how), self._open(how)
        missing = Usable({case_id: cases.by_id[case_id] for case_id in cases.missing(results)})
        askable(self.language_model, missing, self._probes, self.aliases).checked()
        return cases.completed(results, make)

    def _cases(self, how: dict[str, Any]) -> Cases[Edit]:
        """The edits by number; a sequence is made at once."""
        by_id = {edit.case_id: edit for edit in self.edits}
        chunk = None if how.get("mode") == "sequential" else self.chunk
        return Cases(by_id, chunk, None if self._of_all(how) else self._content)

    def _open(self, how: dict[str, Any]) -> Results:
        whole = {**self.settings(), **how}
        if self._of_all(how):
            return self.store.open(whole)
        kept = {name: value for name, value in whole.items() if name not in ("layout", "universe")}
        kept["edits"] = "by content"
        return self.store.open(kept)

    def _of_all(self, how: dict[str, Any]) -> bool:
        """Whether one edit's rows depend on the other edits as a whole."""
        return self.estimator == "texts" or how.get("mode") in ("sequential", "deep")

    def _content(self, edit: Edit) -> Any:
        """All that an edit's rows depend on: rivals and neighbours are of the whole set."""
        asked = [asdict(probe) for probe in self._probes(edit)]
        return asdict(edit), str(probes.request_of(edit, self.kinds)), asked

    def settings(self) -> dict[str, Any]:
        """Everything the scores depend on besides the editor and the mode."""
        sampled = {"samples": self.samples, "sampling": asdict(self.drawn)}
        aliases = {name: list(others) for name, others in self.aliases.items()}
        return {
            "benchmark": "thinkedit",
            "layout": self.layout,
            "universe": settings_key({"edits": [asdict(edit) for edit in self.universe]}),
            **self.language_model.identity,
            **scores.versions_of(self.estimator),
            **({} if self.rivals else {"rivals": False}),
            **(sampled if self.estimator not in EXACTLY else {}),
            **({"aliases": settings_key(aliases)} if self.estimator != "texts" else {}),
        }
