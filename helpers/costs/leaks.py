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

from helpers.editing.contexts import read_at_subjects
from helpers.editing.corpus import corpus_named
from helpers.editing.editor import Editor
from helpers.editing.editors import method_label
from helpers.editing.moments import SecondMoment, second_moments
from helpers.models import LanguageModel
from helpers.models.tokens import subject_prompt
from helpers.paths import digest_of
from helpers.peak.publish import editors_of, peak_run, publication_of
from helpers.peak.records import PeakRecord, load_peak
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
    joined,
    score_cases,
)
from helpers.results.notes import ShownTable, with_note, with_power, with_relations
from helpers.results.publish import Part, Publication
from helpers.results.statistics import detectable, holm, interval, mean_above
from helpers.results.text import in_points, p_texts, with_interval
from helpers.scoring.answers import Question

CHUNK = 10  # records edited between two writes to the results store
KEYS = ["case_id", "other"]
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

        def digest(other: PeakRecord) -> str:
            return digest_of(f"{self.seed} {record.case_id} {other.case_id}".encode())

        by_subject: dict[str, PeakRecord] = {}
        for other in sorted(self.pool, key=digest):
            subject_key = comparable(other.subject)
            is_another = subject_key not in (comparable(record.subject), target_key)
            is_wrong = target_key not in map(comparable, other.correct)
            if other.relation == record.relation and is_another and is_wrong:
                by_subject.setdefault(subject_key, other)
        return [record, *list(by_subject.values())[: self.subjects]]

    def questions(self, record: PeakRecord) -> Asked:
        """The record's prompt about each subject, with o* as the one answer."""
        asked = []
        keys = []
        for other in self.others[record.case_id]:
            prompt = record.prompt.replace("{}", other.subject)
            asked.append(Question(prompt, (record.target_new,)))
            keys.append((record.case_id, other.case_id))
        return asked, pd.DataFrame(keys, columns=KEYS)

    def evaluation(self, editor: Editor | None = None) -> Evaluation[PeakRecord]:
        """The records under an editor's edits with their similarities, or of the unedited model."""
        layer = None if editor is None else edited_layer(editor)
        of_layer = {} if layer is None else {"layer": layer, "corpus": self.moments[layer].corpus}
        mode: Mode[PeakRecord] = Mode("other subjects", settings=of_layer)
        of_records = self.run.evaluation(editor, mode)

        def content(record: PeakRecord) -> object:
            subjects = [other.subject for other in self.others[record.case_id]]
            return (
                record.to_json(),
                subjects,
                [other.case_id for other in self.others[record.case_id]],
            )

        def score(lm: LanguageModel, records: Sequence[PeakRecord], edits: CaseEdits) -> Tables:
            scores = score_cases(lm, records, self.questions, edits)
            tables = {"scores": scores}
            if layer is not None:
                tables["similarities"] = self.similarities(lm, records, layer)
            return tables

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
        """Both cosines of each subject's key with the edited one: columns ``KEYS`` and ``SIMILARITIES``."""
        module_name = lm.layout.mlp_out(layer)
        prompts = []
        for record in records:
            others = self.others[record.case_id]
            prompts.append([subject_prompt(lm, record.prompt, other.subject) for other in others])
        keys_of_records = read_at_subjects(lm, prompts, inputs=[module_name])[module_name]
        tables = []
        for record, keys in zip(records, keys_of_records, strict=True):
            _, table = self.questions(record)
            moment = self.moments[layer]
            tables.append(
                table.assign(
                    whitened=whitened_cosines(keys, moment.solve(keys.T).T).numpy(),
                    cosine=whitened_cosines(keys, keys.double()).numpy(),
                )
            )
        return pd.concat(tables, ignore_index=True)

    def scores(self, editor: Editor, *, from_store_only: bool = False) -> pd.DataFrame:
        """Scores of o* before and after, with both similarities, a row a record and subject."""
        before = self.evaluation().usable(from_store_only=from_store_only)
        after = self.evaluation(editor).usable(from_store_only=from_store_only)
        if before.empty or after.empty:
            return pd.DataFrame()
        similarities = self.evaluation(editor).usable(
            "similarities", from_store_only=from_store_only
        )
        return joined(before, after, KEYS).merge(similarities, on=KEYS, validate="1:1")

    def part(self, method: str, editor: Editor) -> Part:
        """The table of a method."""
        layer = edited_layer(editor)
        settings = {**editor.settings(), "layer": layer, "corpus": self.moments[layer].corpus}
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
    run = replace(peak_run(params), chunk=CHUNK)
    pool = load_peak(params["dataset"], strict_lists=params["strict_lists"]).records
    editors = editors_of(run, params["leaks"], params)
    layers = sorted({edited_layer(editor) for editor in editors.values()})
    moments = second_moments(run.lm, layers, corpus_named(params["corpus"], seed=params["seed"]))
    leaks = Leaks(run, pool, params["subjects"], moments, params["seed"])
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
        others = leaks[~leaks["is_own"]].groupby(["case_id", "relation"], dropna=False)
        own = leaks[leaks["is_own"]]
        by_similarity = {name: slope_by_record(leaks, name) for name in SIMILARITIES}
        contrast = mean_above(by_similarity["whitened"], 0.0, "number")
        p_values.append(contrast.p_value)
        correlations.append(by_similarity["whitened"])
        rows.append(
            {
                "method": method_label(method),
                "records": len(own),
                "subjects": int((~leaks["is_own"]).sum()),
                "own subject, P(o*)": f"{100 * own['probability'].mean():+.1f}",
                "others, P(o*)": in_points(
                    interval(others["probability"].mean(), "number"), signed=True
                ),
                "others, nats": with_interval(
                    interval(others["change"].mean(), "number"), signed=True
                ),
                **{
                    f"ρ, {name}": with_interval(interval(values, "number"))
                    for name, values in by_similarity.items()
                },
                "n": int(by_similarity["whitened"].notna().sum()),
            }
        )
    tested = pd.DataFrame(rows).assign(p=p_texts(p_values), Holm=p_texts(list(holm(p_values))))
    table = tested.set_index("method")
    shown = with_power(table, map(detectable, correlations), table["n"], digits=2)
    note = (
        "change of o* at the edit's prompt about other subjects of the relation, P(o*) in points; ρ:"
        " Spearman's correlation over a record's subjects with the similarity of keys"
    )
    return with_note(with_relations(shown, correlations), note)
