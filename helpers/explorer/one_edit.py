"""One edit of one fact from all sides: probabilities, additivity, and what the model then says."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from helpers.editing.build import build_editor, check_method
from helpers.editing.corpus import corpus_named
from helpers.editing.editor import Editor
from helpers.editing.editors import EditorError, method_label
from helpers.editing.mend import NetworkError
from helpers.editing.moments import missing_layers, moments_folder
from helpers.editing.presets import moment_layers
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import prompt_prefix
from helpers.peak.metrics import metrics_table
from helpers.peak.records import PeakRecord
from helpers.peak.run import edit_request, joined_scores, questions
from helpers.peak.said import CONTINUATION, named_answers
from helpers.scoring.responses import Sampling, sample_responses

MEASURES = ("ES", "GS", "LS", "AFF_hard", "ANF_hard", "AFF_random", "ANF_random")
LISTING = replace(CONTINUATION, max_new_tokens=24)


@dataclass(frozen=True)
class Said:
    """One sampled continuation of the edit prompt, and the lists its known answers are from."""

    text: str
    named: tuple[tuple[str, str], ...]  # (answer, list), in order of appearance


@dataclass(frozen=True)
class Outcome:
    """What an edit did to a record.

    Attributes:
        record: the record, with the answer that was appended.
        method: the editor, in words.
        scores: log-probabilities before and after, in the columns ``metrics_table`` takes.
        before: continuations of the edit prompt by the unedited model.
        after: the same random numbers under the edit.
        seconds: wall time of edit, scoring and sampling.
        failure: why the edit was given up; "" where it was not.
    """

    record: PeakRecord
    method: str
    scores: pd.DataFrame
    before: tuple[Said, ...]
    after: tuple[Said, ...]
    seconds: float
    failure: str = ""

    def probabilities(self) -> pd.DataFrame:
        """The edit prompt's answers: answer, list, and their probability before and after."""
        answers = questions(self.record)[0][0].answers
        mine = self.scores.iloc[: len(answers)]
        table = pd.DataFrame({"answer": answers, "list": mine["list"].to_numpy()})
        for column, moment in (("sum_before", "before"), ("sum_after", self.method)):
            table[moment] = np.exp((mine[column] / mine["tokens"]).to_numpy())
        one_list = self.record.random_false == self.record.hard_false
        return table[table["list"] != "random"] if one_list else table

    def measures(self) -> pd.Series:
        """``MEASURES`` of the record, in percent; NaN where its lists leave nothing to measure."""
        return 100 * metrics_table(self.scores).iloc[0][list(MEASURES)]

    def naming(self) -> pd.DataFrame:
        """Known answers that are named: answer, list, and continuations naming each, before and after."""
        counts = [Counter(named for said in group for named in said.named) for group in self._said]
        named = sorted(counts[0] | counts[1], key=lambda pair: (-counts[1][pair], pair))
        rows = [(*pair, counts[0][pair], counts[1][pair]) for pair in named]
        return pd.DataFrame(rows, columns=["answer", "list", "before", "after"])

    @property
    def _said(self) -> tuple[tuple[Said, ...], tuple[Said, ...]]:
        return self.before, self.after


@dataclass(frozen=True)
class Explorer:
    """A model with everything needed to edit it: settings of the editors and of the sampling.

    ``samples`` continuations are drawn before and after an edit, as ``sampling`` says.
    """

    language_model: LanguageModel
    preset: str = "tuned"
    corpus: str = "self"
    seed: int = 0
    samples: int = 6
    sampling: Sampling = LISTING

    def editor(self, name: str, *, app: bool = False) -> Editor:
        """The editor called ``name``, with APP if wanted.

        Raises:
            EditorError: the model's params file has no such editor, preset or APP.
        """
        return build_editor(
            name,
            self.language_model,
            preset=self.preset,
            app=app or None,
            corpus=self.corpus,
            seed=self.seed,
        )

    def refusal(self, name: str, *, app: bool = False) -> str:
        """Why an editor, or APP with it, cannot be had here; empty where it can."""
        try:
            check_method(name + "+app" * app, self.language_model.name, self.preset)
        except (EditorError, NetworkError) as error:
            return str(error)
        return ""

    def missing_moments(self, name: str) -> list[int]:
        """Layers whose second moments have to be made before the editor called ``name`` is there.

        Raises:
            EditorError: the model's params file has no such editor or preset.
        """
        layers = moment_layers(name, self.language_model.name, self.preset)
        folder = moments_folder(
            self.language_model.fingerprint,
            corpus_named(self.corpus, seed=self.seed),
            prefixed=bool(prompt_prefix(self.language_model)),
        )
        return missing_layers(layers, folder)

    def explore(self, record: PeakRecord, editor: Editor) -> Outcome:
        """Make a record's edit and look at it.

        Raises:
            RequestError: the editor cannot make the edit, e.g. a prompt too long for the context.
            TokenError: a text that cannot be scored.
        """
        started = time.perf_counter()
        (update,) = editor.edit([edit_request(record)])
        both = [record.edit_prompt] * 2
        drawn = sample_responses(
            self.language_model, both, [update], [-1, 0], n=self.samples, sampling=self.sampling
        )
        return Outcome(
            record=record,
            method=method_label(editor.method),
            scores=joined_scores(self.language_model, record, update),
            before=_read(record, drawn[0]),
            after=_read(record, drawn[1]),
            seconds=time.perf_counter() - started,
            failure=update.diagnostics.get("failure", ""),
        )


def _read(record: PeakRecord, texts: Sequence[str]) -> tuple[Said, ...]:
    lists = record.lists
    return tuple(
        Said(text, tuple((lists[name][i], name) for name, i in named_answers(text, record)))
        for text in texts
    )
