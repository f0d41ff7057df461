"""Does APP protect answers that its loss was not shown?

APP is scored on the lists O and O_h that its loss contains. Here a random half of each list is *shown* to the
loss and the other half is not: it is *unshown*, and tells what APP does for a list that nobody wrote down.
Each record's halves are drawn by ``seed``; plain edits, which see no list, are scored on the same halves.

=========== ======================================================================================
half        APP with the shown half of O and of O_h
half of O   APP with the shown half of O and without O_h, so that L2 alone acts
foreign O   APP with the shown half of O_h and, for O, as many answers of another record of the relation
=========== ======================================================================================

*figures/data/held_out/<model>_<dataset>* holds a table of scores for each, as *figures/data/peak* does, with
one more column: the ``half`` that an answer is in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from helpers import UserError
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.editing.editors import method_label
from helpers.editing.request import EditRequest
from helpers.paths import digest_of
from helpers.peak.metrics import DEFAULT_FILTER, SETTINGS, AnswerFilter, additivity
from helpers.peak.publish import editors_of, peak_run, publication_of
from helpers.peak.records import PeakRecord, load_peak
from helpers.peak.run import PeakRun, edit_request
from helpers.peak.tables import scores_of
from helpers.records import comparable
from helpers.results.archive import Run, TableKey
from helpers.results.benchmark import part_of_cases
from helpers.results.evaluation import INDEPENDENT, Mode
from helpers.results.notes import ShownTable, with_note, with_power, with_relations
from helpers.results.publish import Part, Publication
from helpers.results.statistics import Contrast, Kind, detectable, paired
from helpers.results.text import holm_texts, in_points, p_texts, with_interval

CHUNK = 10  # records edited between two writes to the results store
SHOWN = "shown"
UNSHOWN = "unshown"
NOT_SPLIT = "not split"
SPLIT_LISTS = ("correct", "hard")
HALF = "half"
HALF_OF_CORRECT = "half of O"
FOREIGN = "foreign O"
GIVEN = (HALF, HALF_OF_CORRECT, FOREIGN)  # what the loss of APP is given


def halves(record: PeakRecord, seed: int) -> dict[str, tuple[str, ...]]:
    """The half that each answer of O (``correct``) and of O_h (``hard``) is in, by list.

    Names that are alike (``comparable``) are in one half, so that no unshown answer is shown under another
    index. Of an odd number of names either half has one more, by a coin. A list of fewer than two names is
    ``NOT_SPLIT``: its answers are shown, and the record is left out where its kind is measured. So is o*
    itself where lists that are not strict hold it.
    """
    return {name: _half_of_each(record, name, seed) for name in SPLIT_LISTS}


def _half_of_each(record: PeakRecord, list_name: str, seed: int) -> tuple[str, ...]:
    answer_keys = [comparable(answer) for answer in record.lists[list_name]]
    names = {
        answer_key for answer_key in answer_keys if answer_key != comparable(record.target_new)
    }
    if len(names) < 2:
        return (NOT_SPLIT,) * len(answer_keys)

    def digest(name: str) -> str:
        return digest_of(f"{seed} {record.case_id} {list_name} {name}".encode())

    coin = int(digest(""), 16) % 2
    shown_count = (len(names) + coin) // 2
    shown_names = set(sorted(names, key=digest)[:shown_count])
    labels = []
    for answer_key in answer_keys:
        label = SHOWN if answer_key in shown_names else UNSHOWN
        labels.append(label if answer_key in names else NOT_SPLIT)
    return tuple(labels)


def shown_request(record: PeakRecord, seed: int) -> EditRequest:
    """The record's edit, with the shown halves of O and O_h for APP."""
    request = edit_request(record)
    half_of = halves(record, seed)
    target_key = comparable(record.target_new)
    shown = {}
    for list_name, labels in half_of.items():
        answers = zip(record.lists[list_name], labels, strict=True)
        shown[list_name] = tuple(
            answer
            for answer, label in answers
            if label != UNSHOWN and comparable(answer) != target_key
        )
    return replace(request, correct=shown["correct"], false=shown["hard"])


def foreign_record(record: PeakRecord, pool: Sequence[PeakRecord], seed: int) -> PeakRecord | None:
    """A record of the same relation about another subject, with answers that are none of this record's.

    Of several the one whose digest with the seed and this record is the smallest; None where there is none.
    """
    candidates = [
        other
        for other in pool
        if other.relation == record.relation
        and comparable(other.subject) != comparable(record.subject)
        and foreign_answers(record, other)
    ]

    def digest(other: PeakRecord) -> str:
        return digest_of(f"{seed} {record.case_id} {other.case_id}".encode())

    return min(candidates, key=digest, default=None)


def foreign_answers(record: PeakRecord, other: PeakRecord) -> tuple[str, ...]:
    """The correct answers of another record that are in none of this record's lists."""
    known_keys = {comparable(answer) for answers in record.lists.values() for answer in answers}
    return tuple(answer for answer in other.correct if comparable(answer) not in known_keys)


@dataclass(frozen=True)
class HeldOutAnswers:
    """A run's records with the halves of their lists, drawn by ``seed``.

    ``pool`` are the records whose answers may be shown for another record's.
    """

    run: PeakRun
    pool: Sequence[PeakRecord]
    seed: int = 0

    @cached_property
    def foreign(self) -> dict[int, PeakRecord]:
        """By the number of each record that has one, the record whose O is shown for its own."""
        foreign_records = {}
        for record in self.run.data.records:
            other = foreign_record(record, self.pool, self.seed)
            if other is not None:
                foreign_records[record.case_id] = other
        return foreign_records

    def run_of(self, given: str) -> PeakRun:
        """The run of the records that can be edited so: all, but those without a foreign record."""
        if given != FOREIGN:
            return self.run
        records = tuple(r for r in self.run.data.records if r.case_id in self.foreign)
        if not records:
            raise UserError(
                f"{self.run.data.path}: no record has another one of its relation whose correct answers"
                " could be shown for its own; give more records"
            )
        return replace(self.run, data=replace(self.run.data, records=records))

    def request(self, record: PeakRecord, given: str) -> EditRequest:
        """A record's edit as APP's loss is given it."""
        request = shown_request(record, self.seed)
        if given == HALF_OF_CORRECT:
            return replace(request, false=())
        if given == FOREIGN:
            answers = foreign_answers(record, self.foreign[record.case_id])
            count = max(1, len(request.correct))
            return replace(request, correct=answers[:count])
        return request

    def mode(self, given: str) -> Mode[PeakRecord]:
        """How these edits are made: rows are kept by the record and the answers that the loss is given."""

        def edits(editor: Editor, records: Sequence[PeakRecord]) -> Sequence[Edit]:
            return editor.edit([self.request(record, given) for record in records])

        def content(record: PeakRecord) -> object:
            request = self.request(record, given)
            return record.to_json(), list(request.correct), list(request.false)

        return Mode("given answers", edits, content=content)

    def scores(
        self, editor: Editor, given: str = "", *, from_store_only: bool = False
    ) -> pd.DataFrame:
        """Scores before and after, with the half of each answer; without ``given`` of ordinary edits."""
        run = self.run_of(given)
        mode = self.mode(given) if given else INDEPENDENT
        scores = run.scores(editor, mode, from_store_only=from_store_only)
        return with_halves(scores, run.data.records, self.seed)

    def part(self, method: str, editor: Editor, given: str = "") -> Part:
        """The table of a method's scores."""
        settings = {**editor.settings(), "halves_seed": self.seed}
        if given:
            settings["given"] = given
        case_ids = [record.case_id for record in self.run_of(given).data.records]
        read_scores = partial(self.scores, editor, given)
        return part_of_cases(str(TableKey("", method, given)), settings, read_scores, case_ids)


def with_halves(scores: pd.DataFrame, records: Sequence[PeakRecord], seed: int) -> pd.DataFrame:
    """A score table with the column ``half``, which is ``NOT_SPLIT`` of all other lists."""
    labels = {}
    for record in records:
        for list_name, labels_of_list in halves(record, seed).items():
            for answer_index, label in enumerate(labels_of_list):
                labels[record.case_id, list_name, answer_index] = label
    answers = zip(scores["case_id"], scores["list"], scores["answer_index"], strict=True)
    is_own_prompt = scores["role"] != "locality"
    half = pd.Series(
        [labels.get(answer, NOT_SPLIT) for answer in answers], index=scores.index, dtype=object
    )
    return scores.assign(half=half.where(is_own_prompt, NOT_SPLIT))


def publication(params: Mapping[str, Any]) -> Publication:
    """Editors of notebook 04's parameter ``held_out``: alone, and with APP given what it is given."""
    run = replace(peak_run(params), chunk=CHUNK)
    pool = load_peak(params["dataset"], strict_lists=params["strict_lists"]).records
    held_out = HeldOutAnswers(run, pool, params["seed"])
    editors = params["held_out"]
    with_app = [f"{editor}+app" for editor in editors]
    built = editors_of(run, [*editors, *with_app], params)
    # What the primary tests need comes first, for every editor.
    parts = []
    for given in (HALF, FOREIGN, HALF_OF_CORRECT, ""):
        for name in editors:
            if given == HALF:
                parts.append(held_out.part(name, built[name]))
            parts.append(held_out.part(f"{name}+app", built[f"{name}+app"], given))
    return publication_of(run, params, parts, with_app, {"halves_seed": params["seed"]})


@dataclass(frozen=True)
class HalfMeasure:
    """What is measured of each half of a list."""

    name: str
    label: str
    list_name: str  # the list whose halves it compares
    is_fraction: bool
    higher_is_better: bool

    def protection(self, plain: pd.Series, protected: pd.Series) -> Contrast:
        """How much better the second is, by record: a paired contrast."""
        kind: Kind = "fraction" if self.is_fraction else "number"
        if self.higher_is_better:
            return paired(plain, protected, kind)
        return paired(protected, plain, kind)


HALF_MEASURES = (
    HalfMeasure("AFF", "AFF", "correct", is_fraction=True, higher_is_better=False),
    HalfMeasure("ANF", "ANF", "hard", is_fraction=True, higher_is_better=False),
    HalfMeasure("correct", "correct, nats", "correct", is_fraction=False, higher_is_better=True),
    HalfMeasure("hard", "hard false, nats", "hard", is_fraction=False, higher_is_better=False),
)


def half_measures(
    scores: pd.DataFrame, answer_filter: AnswerFilter = DEFAULT_FILTER
) -> pd.DataFrame:
    """Measures of each record's halves: a row a record (with its relation), columns (measure, half).

    Answers that count are those of all tables (``answer_filter`` of the whole lists). AFF of a half is that
    of its correct answers against all hard false ones, ANF that of its hard false answers against all
    correct ones. ``correct`` and ``hard`` are the mean change of s(o), the mean log-probability of an
    answer's tokens, in nats. All are means over the edit prompt and the paraphrases; NaN where a list is not
    split.
    """
    rows = {}
    own_prompts = scores[scores["role"].isin(("edit", "paraphrase"))]
    for case_id, of_record in own_prompts.groupby("case_id"):
        of_prompts = [
            _prompt_measures(of_prompt, answer_filter)
            for _, of_prompt in of_record.groupby(["role", "prompt_index"], observed=True)
        ]
        relation = of_record["relation"].iloc[0] if "relation" in of_record else None
        rows[case_id, relation] = pd.DataFrame([row for row in of_prompts if row]).mean()
    columns = pd.MultiIndex.from_product(
        [[measure.name for measure in HALF_MEASURES], [SHOWN, UNSHOWN]], names=["measure", "half"]
    )
    table = pd.DataFrame.from_dict(rows, orient="index").reindex(columns=columns)
    table.index = pd.MultiIndex.from_tuples([*rows], names=["case_id", "relation"])
    return table.astype(float)


def _prompt_measures(
    answers: pd.DataFrame, answer_filter: AnswerFilter
) -> dict[tuple[str, str], float]:
    """Measures of the halves at one prompt; none where no answer of a list counts."""
    scores_of_list = {}  # each [2, answers]: before and after the edit
    halves_of_list = {}
    for list_name in ("correct", *SETTINGS):
        of_list = answers[answers["list"] == list_name]
        sums = of_list[["sum_before", "sum_after"]].to_numpy(float)
        scores_of_list[list_name] = sums.T / of_list["tokens"].to_numpy(float)
        halves_of_list[list_name] = of_list["half"].to_numpy(str)
    counted = answer_filter.keep(*(scores[0] for scores in scores_of_list.values()))
    if not all(map(len, counted)):
        return {}
    correct = scores_of_list["correct"][:, counted.correct]
    hard = scores_of_list["hard"][:, counted.hard]
    half_of_correct = halves_of_list["correct"][counted.correct]
    half_of_hard = halves_of_list["hard"][counted.hard]
    measures = {}
    for half in (SHOWN, UNSHOWN):
        correct_of_half = correct[:, half_of_correct == half]
        hard_of_half = hard[:, half_of_hard == half]
        measures["AFF", half] = additivity(correct_of_half, hard)["AFF"]
        measures["ANF", half] = additivity(correct, hard_of_half)["ANF"]
        measures["correct", half] = _mean_change(correct_of_half)
        measures["hard", half] = _mean_change(hard_of_half)
    return measures


def _mean_change(scores: np.ndarray) -> float:
    """The mean of after - before over answers [2, answers]; NaN without any."""
    return float((scores[1] - scores[0]).mean()) if scores.size else float("nan")


def measures_of_run(run: Run) -> dict[TableKey, pd.DataFrame]:
    """``half_measures`` of every table of a stored run."""
    halves_of_tables = scores_of(run)
    return {TableKey.parse(name): half_measures(table) for name, table in halves_of_tables.items()}


def editors_held_out(keys: Sequence[TableKey]) -> list[str]:
    """The editors of a stored run that have a plain table and one with half of the lists shown."""
    plain = [key.method for key in keys if key.is_method and "+" not in key.method]
    return [editor for editor in plain if TableKey("", f"{editor}+app", HALF) in keys]


@dataclass(frozen=True)
class Protection:
    """How much better an editor with APP does than alone, on each half of the same records' lists."""

    editor: str
    given: str  # what APP's loss was given; empty: the whole lists
    measure: HalfMeasure
    plain: pd.DataFrame  # by record, columns SHOWN and UNSHOWN
    protected: pd.DataFrame

    def of_half(self, half: str) -> Contrast:
        """On one half, positive where APP protects."""
        return self.measure.protection(self.plain[half], self.protected[half])

    @property
    def by_record(self) -> pd.DataFrame:
        """By record the protection of each half."""
        change = self.protected - self.plain
        return change if self.measure.higher_is_better else -change

    @property
    def gap(self) -> Contrast:
        """How much more the shown half is protected than the unshown one, by record."""
        by_record = self.by_record
        return paired(by_record[UNSHOWN], by_record[SHOWN], "number")


def protections(measures: Mapping[TableKey, pd.DataFrame]) -> list[Protection]:
    """Every editor, what its APP was given, and every measure, on the records that both tables have."""
    compared = []
    for editor in editors_held_out([*measures]):
        plain: pd.DataFrame = measures[TableKey("", editor)]
        for given in (*GIVEN, ""):
            protected = measures.get(TableKey("", f"{editor}+app", given))
            if protected is None:
                continue
            for measure in HALF_MEASURES:
                plain_values, protected_values = _on_the_same_records(
                    plain[measure.name], protected[measure.name]
                )
                compared.append(Protection(editor, given, measure, plain_values, protected_values))
    return compared


def _on_the_same_records(
    first: pd.DataFrame, second: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows without a missing value that both tables have."""
    common = first.dropna().index.intersection(second.dropna().index, sort=False)
    return first.loc[common], second.loc[common]


def held_out_table(run: Run, *, fractions: bool = True) -> ShownTable:
    """Protection of shown and unshown answers, a row an editor, what APP was given, and a measure.

    AFF and ANF in points, or the change of scores in nats. ``p`` is of the protection of unshown answers,
    ``Holm`` corrects it for all rows in which half of both lists was given: the primary tests.
    """
    compared = [
        protection
        for protection in protections(measures_of_run(run))
        if protection.measure.is_fraction == fractions
    ]
    rows = []
    p_values = []
    is_primary = []
    for protection in compared:
        unshown = protection.of_half(UNSHOWN)
        words = (
            partial(in_points, signed=True) if fractions else partial(with_interval, signed=True)
        )
        percent = 100 if fractions else 1
        means = {
            f"{state}, {half}": f"{percent * table[half].mean():.{1 if fractions else 2}f}"
            for half in (SHOWN, UNSHOWN)
            for state, table in (("alone", protection.plain), ("APP", protection.protected))
        }
        rows.append(
            {
                "method": method_label(f"{protection.editor}+app"),
                "given": protection.given or "whole lists",
                "measure": protection.measure.label,
                "n": len(protection.plain),
                **means,
                "protects shown": words(protection.of_half(SHOWN).difference),
                "protects unshown": words(unshown.difference),
                "shown - unshown": words(protection.gap.difference),
            }
        )
        p_values.append(unshown.p_value)
        is_primary.append(protection.given == HALF)
    tested = pd.DataFrame(rows).assign(p=p_texts(p_values), Holm=holm_texts(p_values, is_primary))
    table = tested.set_index(["method", "given", "measure"])
    by_record = [protection.by_record[UNSHOWN] for protection in compared]
    scale = 100 if fractions else 1
    least = [scale * detectable(differences) for differences in by_record]
    unit = " points" if fractions else " nats"
    shown = with_power(table, least, table["n"], unit=unit, digits=1 if fractions else 2)
    return with_note(with_relations(shown, by_record), *_left_out(run))


def _left_out(run: Run) -> list[str]:
    """How many records are left out of a kind, since its list has fewer than two names."""
    (table, *_) = scores_of(run).values()
    first_prompt = table[(table["role"] == "edit") & (table["prompt_index"] == 0)]
    counts = []
    for list_name, words in zip(SPLIT_LISTS, ("correct", "hard false"), strict=True):
        of_list = first_prompt[first_prompt["list"] == list_name]
        is_split = (of_list["half"] != NOT_SPLIT).groupby(of_list["case_id"]).any()
        if not is_split.all():
            counts.append(f"{int((~is_split).sum())} records have fewer than two {words} answers")
    return counts
