"""PEAK's edits, and their prompts asked about other subjects of the relation, for ``leaks``.

Each record is edited; its prompt is then asked with the subjects of up to ``subjects`` other records of the
relation, of which o* is no correct answer, and with its own. The more a subject's key k' resembles the
edited key k, the more of the update it should get: for ROME, whose update is rank one along C⁻¹k, the change
at k' is in proportion to k C⁻¹ k'. Keys are read at the subject's last token in the unedited model, at the
editor's last edited layer; their resemblance is the plain cosine and the *whitened* one,

    k C⁻¹ k' / sqrt(k C⁻¹ k · k' C⁻¹ k')

with C the keys' second moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from helpers.costs.records import all_records, others_of_relation, studied_run
from helpers.editing.contexts import read_at_subjects
from helpers.editing.corpus import corpus_named
from helpers.editing.editor import Editor
from helpers.editing.moments import SecondMoment, second_moments
from helpers.models import LanguageModel
from helpers.models.tokens import subject_prompt
from helpers.peak.publish import editors_of, publication_of
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun
from helpers.records import comparable
from helpers.results.benchmark import part_of_cases
from helpers.results.evaluation import (
    Asked,
    CaseEdits,
    Evaluation,
    Mode,
    Tables,
    score_cases,
)
from helpers.results.publish import Part, Publication
from helpers.scoring.answers import Question

PAIR_KEYS = ["case_id", "other"]


@dataclass(frozen=True)
class Leaks:
    """A run's records, each with other subjects of its relation, drawn by ``seed`` from the ``pool``.

    ``moments`` are the second moments of keys by layer.
    """

    run: PeakRun
    pool: Sequence[PeakRecord]
    subjects: int
    moments: Mapping[int, SecondMoment]
    seed: int = 0

    @cached_property
    def others(self) -> dict[int, list[PeakRecord]]:
        """For each record's number the records whose subjects its prompt is asked about; its own first."""
        return {record.case_id: self._others_of(record) for record in self.run.data.records}

    def _others_of(self, record: PeakRecord) -> list[PeakRecord]:
        target_key = comparable(record.target_new)

        by_subject: dict[str, PeakRecord] = {}
        for other in others_of_relation(record, self.pool, self.seed):
            subject_key = comparable(other.subject)
            if target_key not in (subject_key, *map(comparable, other.correct)):
                by_subject.setdefault(subject_key, other)
        return [record, *list(by_subject.values())[: self.subjects]]

    def questions(self, record: PeakRecord) -> Asked:
        """The record's prompt about each subject, with o* as the one answer."""
        questions = []
        pairs = []
        for other in self.others[record.case_id]:
            prompt = record.prompt.replace("{}", other.subject)
            questions.append(Question(prompt, (record.target_new,)))
            pairs.append((record.case_id, other.case_id))
        return questions, pd.DataFrame(pairs, columns=PAIR_KEYS)

    def settings(self, editor: Editor) -> dict[str, Any]:
        """What similarities depend on in addition to the model and the subjects."""
        layer = edited_layer(editor)
        return {"layer": layer, "corpus": self.moments[layer].corpus}

    def evaluation(self, editor: Editor) -> Evaluation[PeakRecord]:
        """The records under an editor's edits, with the similarities of their subjects."""
        layer = edited_layer(editor)
        mode: Mode[PeakRecord] = Mode("other subjects", settings=self.settings(editor))
        of_records = self.run.evaluation(editor, mode)

        def content(record: PeakRecord) -> object:
            others = self.others[record.case_id]
            subjects = [other.subject for other in others]
            return record.to_json(), subjects, [other.case_id for other in others]

        def score(lm: LanguageModel, records: Sequence[PeakRecord], edits: CaseEdits) -> Tables:
            scores = score_cases(lm, records, self.questions, edits)
            if edits is None:
                return {"scores": scores}
            return {"scores": scores, "similarities": self.similarities(lm, records, layer)}

        benchmark = replace(
            of_records.benchmark,
            questions=self.questions,
            content=content,
            settings={**of_records.benchmark.settings, "asked": "other subjects"},
            score=score,
        )
        return replace(of_records, benchmark=benchmark)

    def similarities(
        self, lm: LanguageModel, records: Sequence[PeakRecord], layer: int
    ) -> pd.DataFrame:
        """Both cosines of each subject's key with the edited one, by ``PAIR_KEYS``."""
        module_name = lm.layout.mlp_out(layer)
        prompts = []
        for record in records:
            others = self.others[record.case_id]
            prompts.append([subject_prompt(lm, record.prompt, other.subject) for other in others])
        keys_of_records = read_at_subjects(lm, prompts, inputs=[module_name])[module_name]
        tables = []
        for record, keys in zip(records, keys_of_records, strict=True):
            _, pairs = self.questions(record)
            solved = self.moments[layer].solve(keys.T).T  # C⁻¹ k, [subjects, f]
            whitened = whitened_cosines(keys, solved).cpu().numpy()
            cosine = whitened_cosines(keys, keys).cpu().numpy()
            tables.append(pairs.assign(whitened=whitened, cosine=cosine))
        return pd.concat(tables, ignore_index=True)

    def scores(self, editor: Editor, *, from_store_only: bool = False) -> pd.DataFrame:
        """Scores of o* before and after, with both similarities, a row a record and subject."""
        evaluation = self.evaluation(editor)
        scores = evaluation.before_and_after(from_store_only=from_store_only)
        if scores.empty:
            return scores
        similarities = evaluation.usable("similarities", from_store_only=True)
        return scores.merge(similarities, on=PAIR_KEYS, validate="1:1")

    def part(self, method: str, editor: Editor) -> Part:
        """The table of a method."""
        settings = {**editor.settings(), **self.settings(editor)}
        settings |= {"subjects": self.subjects, "subjects_seed": self.seed}
        case_ids = [record.case_id for record in self.run.data.records]
        return part_of_cases(method, settings, partial(self.scores, editor), case_ids)


def edited_layer(editor: Editor) -> int:
    """The last layer that an editor's presets edit: where its update is made to act."""
    layers: Sequence[int] = editor.hyperparameters.layers  # type: ignore[attr-defined]
    return max(layers)


def whitened_cosines(keys: Tensor, solved: Tensor) -> Tensor:
    """k C⁻¹ k' / sqrt(k C⁻¹ k · k' C⁻¹ k') of the first key with each, [keys] in fp64.

    Both are [keys, f]; ``solved`` are C⁻¹ k, or the keys themselves, which gives the plain cosine.
    """
    products = solved.double() @ keys[0].double()  # [keys]
    squares = (solved.double() * keys.double()).sum(-1)
    return products / torch.sqrt(squares * squares[0])


def publication(params: Mapping[str, Any]) -> Publication:
    """Methods of notebook 04's parameter ``leaks``, a table each."""
    run = studied_run(params)
    editors = editors_of(run, params["leaks"], params)
    layers = sorted({edited_layer(editor) for editor in editors.values()})
    moments = second_moments(run.lm, layers, corpus_named(params["corpus"], seed=params["seed"]))
    leaks = Leaks(run, all_records(params), params["subjects"], moments, params["seed"])
    parts = [leaks.part(method, editor) for method, editor in editors.items()]
    return publication_of(run, params, parts, params["leaks"], {"asked": "other subjects"})
