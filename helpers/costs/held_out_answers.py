"""Does APP protect answers that its loss was not shown? Measured on the stored scores of ``held_out_run``.

APP is scored on the lists O and O_h that its loss contains. ``held_out_run`` shows its loss a random half of
each list; the other half is *unshown*, and tells what APP does for a list that nobody wrote down. Plain
edits, which see no list, are scored on the same halves.

=========== ======================================================================================
half        APP with the shown half of O and of O_h
half of O   APP with the shown half of O and without O_h, so that L2 alone acts
foreign O   APP with the shown half of O_h and, for O, no more answers of another record of the relation
=========== ======================================================================================

*figures/data/held_out/<model>_<dataset>* holds a table of scores for each, as *figures/data/peak* does, with
one more column: the ``half`` that an answer is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from helpers.editing.editors import method_label
from helpers.paths import run_name
from helpers.peak.metrics import (
    DEFAULT_FILTER,
    KEYS,
    AnswerFilter,
    Lists,
    Metric,
    additivity,
    records_of,
    table_by_record,
)
from helpers.peak.tables import scores_of
from helpers.results.archive import Run, TableKey, archive
from helpers.results.notes import ShownTable, with_note, with_power, with_relations
from helpers.results.statistics import Contrast, detectable, paired
from helpers.results.text import in_points, with_interval, with_p_values

SHOWN = "shown"
UNSHOWN = "unshown"
NOT_SPLIT = "not split"
SPLIT_LISTS = ("correct", "hard")
HALF = "half"
HALF_OF_CORRECT = "half of O"
FOREIGN = "foreign O"
GIVEN = (HALF, HALF_OF_CORRECT, FOREIGN)  # what the loss of APP is given


# What is measured of each half of a list: of the correct answers (AFF, "correct") or of the hard false ones.
HALF_METRICS = (
    Metric("AFF", "AFF", "fraction", "lower", "AFF"),
    Metric("ANF", "ANF", "fraction", "lower", "ANF"),
    Metric("correct", "s(o)", "number", "higher", "correct, nats"),
    Metric("hard", "s(o)", "number", "lower", "hard false, nats"),
)


def half_measures(
    scores: pd.DataFrame, answer_filter: AnswerFilter = DEFAULT_FILTER
) -> pd.DataFrame:
    """Measures of each record's halves: a row a record (with its relation), columns (metric, half).

    Answers that count are those of all tables (``answer_filter`` of the whole lists). AFF of a half is that
    of its correct answers against all hard false ones, ANF that of its hard false answers against all
    correct ones. ``correct`` and ``hard`` are the mean change of s(o), the mean log-probability of an
    answer's tokens, in nats. All are means over the edit prompt and the paraphrases; NaN where a list is not
    split.
    """
    columns = [(metric.name, half) for metric in HALF_METRICS for half in (SHOWN, UNSHOWN)]
    # A list has the same halves at every prompt; answers are in the order of ``records_of``.
    at_edit_prompt = scores[scores["role"] == "edit"].sort_values(KEYS)
    halves_of_list = {
        list_key: labels.to_numpy(str)
        for list_key, labels in at_edit_prompt.groupby(["case_id", "list"])["half"]
    }
    without_answers = np.empty(0, dtype=str)
    measures_by_case = {}
    for case_id, record in records_of(scores):
        half_of_correct = halves_of_list.get((case_id, "correct"), without_answers)
        half_of_hard = halves_of_list.get((case_id, "hard"), without_answers)
        of_prompts = [
            _prompt_measures(prompt, half_of_correct, half_of_hard, answer_filter)
            for prompt in (record.edit, *record.paraphrases)
        ]
        measures = pd.DataFrame([*filter(None, of_prompts)], columns=columns, dtype=float)
        measures_by_case[case_id] = dict(zip(columns, measures.mean(), strict=True))
    table = table_by_record(measures_by_case, scores, columns)
    return table.set_axis(pd.MultiIndex.from_tuples(columns, names=["metric", "half"]), axis=1)


def _prompt_measures(
    prompt: Lists,
    half_of_correct: np.ndarray,
    half_of_hard: np.ndarray,
    answer_filter: AnswerFilter,
) -> dict[tuple[str, str], float]:
    """Measures of the halves at one prompt; none where no answer of a list counts."""
    counted = answer_filter.counted(prompt)
    if not all(map(len, counted)):
        return {}
    correct = prompt["correct"][:, counted.correct]  # [2, answers]: before and after the edit
    hard = prompt["hard"][:, counted.hard]
    measures = {}
    for half in (SHOWN, UNSHOWN):
        correct_of_half = correct[:, half_of_correct[counted.correct] == half]
        hard_of_half = hard[:, half_of_hard[counted.hard] == half]
        measures["AFF", half] = additivity(correct_of_half, hard)["AFF"]
        measures["ANF", half] = additivity(correct, hard_of_half)["ANF"]
        measures["correct", half] = _mean_change(correct_of_half)
        measures["hard", half] = _mean_change(hard_of_half)
    return measures


def _mean_change(scores: np.ndarray) -> float:
    """The mean of after - before over answers [2, answers]; NaN without any."""
    return float((scores[1] - scores[0]).mean()) if scores.size else float("nan")


def editors_held_out(keys: Sequence[TableKey]) -> list[str]:
    """The editors of a stored run that have a plain table and one with half of the lists shown."""
    plain = [key.method for key in keys if key.is_method and "+" not in key.method]
    return [editor for editor in plain if TableKey("", f"{editor}+app", HALF) in keys]


@dataclass(frozen=True)
class Protection:
    """How much better an editor with APP does than alone, on each half of the same records' lists."""

    editor: str
    given: str  # what APP's loss was given; empty: the whole lists
    metric: Metric
    plain: pd.DataFrame  # by record, columns SHOWN and UNSHOWN
    protected: pd.DataFrame

    @property
    def by_record(self) -> pd.DataFrame:
        """By record the protection of each half, positive where APP protects."""
        change = self.protected - self.plain
        return change if self.metric.higher_is_better else -change

    def of_half(self, half: str) -> Contrast:
        """The protection of one half."""
        protection = self.by_record[half]
        return paired(0 * protection, protection, self.metric.kind)

    @property
    def gap(self) -> Contrast:
        """How much more the shown half is protected than the unshown one."""
        by_record = self.by_record
        return paired(by_record[UNSHOWN], by_record[SHOWN], "number")


def protections(run: Run, *, fractions: bool) -> list[Protection]:
    """Every editor of a stored run and what its APP was given, on the records that both tables measure.

    By AFF and ANF, or by the change of scores in nats.
    """
    scores_by_name = scores_of(run)
    measures = {TableKey.parse(name): half_measures(t) for name, t in scores_by_name.items()}
    metrics = [metric for metric in HALF_METRICS if (metric.kind == "fraction") == fractions]
    compared = []
    for editor in editors_held_out([*measures]):
        for answers_given in (*GIVEN, ""):
            protected_key = TableKey("", f"{editor}+app", answers_given)
            if protected_key not in measures:
                continue  # not yet published
            for metric in metrics:
                plain = _complete_halves(measures[TableKey("", editor)], metric)
                protected = _complete_halves(measures[protected_key], metric)
                common = plain.index.intersection(protected.index, sort=False)
                compared.append(
                    Protection(
                        editor, answers_given, metric, plain.loc[common], protected.loc[common]
                    )
                )
    return compared


def _complete_halves(measures: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """A metric of the records that have it for both halves, columns SHOWN and UNSHOWN."""
    return measures[[metric.name]].droplevel("metric", axis=1).dropna()


def held_out_table(run: Run, *, fractions: bool = True) -> ShownTable:
    """Protection of shown and unshown answers, a row an editor, what APP was given, and a metric.

    AFF and ANF in points, or the change of scores in nats. ``p`` is of the protection of unshown answers,
    ``Holm`` corrects it for all rows in which half of both lists was given: the primary tests.
    """
    compared = protections(run, fractions=fractions)
    scale = 100 if fractions else 1
    digits = 1 if fractions else 2
    words = in_points if fractions else with_interval
    rows = []
    for protection in compared:
        means = {
            f"{state}, {half}": f"{scale * table[half].mean():.{digits}f}"
            for half in (SHOWN, UNSHOWN)
            for state, table in (("alone", protection.plain), ("APP", protection.protected))
        }
        rows.append(
            {
                "method": method_label(f"{protection.editor}+app"),
                "given": protection.given or "whole lists",
                "measure": protection.metric.label,
                "n": len(protection.plain),
                **means,
                "protects shown": words(protection.of_half(SHOWN).difference, signed=True),
                "protects unshown": words(protection.of_half(UNSHOWN).difference, signed=True),
                "shown - unshown": words(protection.gap.difference, signed=True),
            }
        )
    p_values = [protection.of_half(UNSHOWN).p_value for protection in compared]
    is_primary = [protection.given == HALF for protection in compared]
    table = with_p_values(rows, p_values, is_primary).set_index(["method", "given", "measure"])
    of_unshown = [protection.by_record[UNSHOWN] for protection in compared]
    least = [scale * detectable(differences) for differences in of_unshown]
    unit = " points" if fractions else " nats"
    shown = with_power(table, least, table["n"], unit=unit, digits=digits)
    return with_note(with_relations(shown, of_unshown), *_left_out(run))


def _left_out(run: Run) -> list[str]:
    """How many records are excluded from a kind, since its list has fewer than two names."""
    (table, *_) = scores_of(run).values()
    first_prompt = table[(table["role"] == "edit") & (table["prompt_index"] == 0)]
    counts = []
    for list_name, words in zip(SPLIT_LISTS, ("correct", "hard false"), strict=True):
        of_list = first_prompt[first_prompt["list"] == list_name]
        is_split = (of_list["half"] != NOT_SPLIT).groupby(of_list["case_id"]).any()
        if not is_split.all():
            counts.append(f"{int((~is_split).sum())} records have fewer than two {words} answers")
    return counts


def unshown_note(methods: Iterable[str], model_name: str) -> str:
    """Below a table with APP: its loss holds the scored answers, and what it does for others; or nothing.

    The numbers are means over the editors of the model's stored run on PEAK-CF.
    """
    if not any("+APP" in method for method in methods):
        return ""
    words = "APP's loss contains the answers that are scored here"
    run = archive("held_out").known(run_name(model_name, "peak-cf"))
    if run is None or not editors_held_out(run.keys):
        return words
    forgetting = [
        protection
        for protection in protections(run, fractions=True)
        if protection.given == HALF and protection.metric.name == "AFF"
    ]
    shown, unshown = (
        100 * np.mean([protection.of_half(half).difference.mean for protection in forgetting])
        for half in (SHOWN, UNSHOWN)
    )
    counts = sorted({len(protection.plain) for protection in forgetting})
    return (
        f"{words}; on PEAK-CF, given half of them, it lowers AFF by {shown:.0f} points in that half and by"
        f" {unshown:.0f} in the other (mean of {len(forgetting)} editors, n ="
        f" {'–'.join(map(str, counts))}; table held_out)"
    )
