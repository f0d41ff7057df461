"""Does an edit leak to other subjects? The edit's prompt is asked about other subjects of its relation.

Each record is edited; its prompt is then asked with the subjects of up to ``subjects`` other records of the
relation, of which o* is no correct answer, and with its own. The more a subject's key k' resembles the
edited key k, the more of the update it should get: for ROME, whose update is rank one along C⁻¹k, the change
at k' is in proportion to k C⁻¹ k'. Keys are read at the subject's last token in the unedited model, at the
editor's last edited layer; their resemblance is the plain cosine and the *whitened* one,

    k C⁻¹ k' / sqrt(k C⁻¹ k · k' C⁻¹ k')

with C the keys' second moment.

*figures/data/leaks/<model>_<dataset>* holds a table for each method: of each record (``case_id``) and subject
(``other``, the number of the record that it is from) the score of o* before and after, and both cosines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from helpers.costs.records import all_records, others_of_relation, studied_run
from helpers.editing.contexts import read_at_subjects
from helpers.editing.corpus import corpus_named
from helpers.editing.editor import Editor
from helpers.editing.editors import method_label
from helpers.editing.moments import SecondMoment, second_moments
from helpers.models import LanguageModel
from helpers.models.tokens import subject_prompt
from helpers.peak.publish import editors_of, publication_of
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun
from helpers.records import comparable
from helpers.results.archive import Run
from helpers.results.benchmark import part_of_cases
from helpers.results.evaluation import (
    Asked,
    CaseEdits,
    Evaluation,
    Mode,
    Tables,
    score_cases,
)
from helpers.results.notes import ShownTable, with_note, with_power, with_relations
from helpers.results.publish import Part, Publication
from helpers.results.statistics import detectable, interval, mean_above
from helpers.results.text import in_points, with_interval, with_p_values
from helpers.scoring.answers import Question

PAIR_KEYS = ["case_id", "other"]
SIMILARITIES = ("whitened", "cosine")
BINS = (-1.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)  # of a similarity


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
        """What similarities depend on besides the model and the subjects."""
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


def leaks_of_run(run: Run) -> dict[str, pd.DataFrame]:
    """By method a row a record and other subject: the change of o*'s score and probability, both cosines.

    Columns: ``case_id``, ``relation``, ``change`` in nats a token, ``probability`` (after - before),
    ``whitened``, ``cosine``. The edited subject itself has ``is_own``.
    """
    relations = run.about.caption.get("relations", {})
    leaks = {}
    for key in run.keys:
        table = run.tables[str(key)]
        before = table["sum_before"].astype(float) / table["tokens"]
        after = table["sum_after"].astype(float) / table["tokens"]
        leaks[key.method] = pd.DataFrame(
            {
                "case_id": table["case_id"],
                "relation": table["case_id"].astype(str).map(relations),
                "is_own": table["case_id"] == table["other"],
                "change": after - before,
                "probability": np.exp(after) - np.exp(before),
                **{name: table[name].astype(float) for name in SIMILARITIES},
            }
        )
    return leaks


def slope_by_record(leaks: pd.DataFrame, similarity: str) -> pd.Series:
    """Of each record Spearman's rank correlation of change and similarity over its other subjects.

    NaN of fewer than five subjects.
    """
    others = leaks[~leaks["is_own"]]
    correlations = {}
    for (case_id, relation), of_record in others.groupby(["case_id", "relation"], dropna=False):
        if len(of_record) >= 5:
            ranks = of_record[["change", similarity]].rank()
            correlations[case_id, relation] = ranks["change"].corr(ranks[similarity])
    index = pd.MultiIndex.from_tuples([*correlations], names=["case_id", "relation"])
    return pd.Series([*correlations.values()], index=index, dtype=float)


def leak_table(run: Run) -> ShownTable:
    """How much o* rises at other subjects, and whether it follows the similarity of keys, a row a method.

    Means over records of each record's mean over subjects; ``p``: rank correlation with the whitened cosine,
    by record, against none; ``Holm`` corrects for all methods.
    """
    rows = []
    p_values = []
    correlations = []
    for method, leaks in leaks_of_run(run).items():
        others = leaks[~leaks["is_own"]]
        means_of_others = others.groupby(["case_id", "relation"], dropna=False).mean()
        of_own_subject = leaks.loc[leaks["is_own"], "probability"]
        whitened = slope_by_record(leaks, "whitened")
        cosine = slope_by_record(leaks, "cosine")
        p_values.append(mean_above(whitened, 0.0, "number").p_value)
        correlations.append(whitened)
        rise = interval(means_of_others["probability"], "number")
        change = interval(means_of_others["change"], "number")
        rows.append(
            {
                "method": method_label(method),
                "records": len(of_own_subject),
                "subjects": len(others),
                "own subject, P(o*)": f"{100 * of_own_subject.mean():+.1f}",
                "others, P(o*)": in_points(rise, signed=True),
                "others, nats": with_interval(change, signed=True),
                "ρ, whitened": with_interval(interval(whitened, "number")),
                "ρ, cosine": with_interval(interval(cosine, "number")),
                "n": int(whitened.notna().sum()),
            }
        )
    table = with_p_values(rows, p_values, [True] * len(rows)).set_index("method")
    shown = with_power(table, map(detectable, correlations), table["n"], digits=2)
    note = (
        "change of o* at the edit's prompt about other subjects of the relation, P(o*) in points; ρ:"
        " Spearman's correlation over a record's subjects with the similarity of keys"
    )
    return with_note(with_relations(shown, correlations), note)
