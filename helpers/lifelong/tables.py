"""What readers see of lifelong runs: the table of all methods, and sentences made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from helpers.editing.editors import method_label, split_method
from helpers.lifelong.measures import (
    METRICS,
    SIGNS,
    curve,
    ending,
    estimate,
    first_signs,
    measures_of_run,
    values_by_unit,
)
from helpers.results.archive import Run
from helpers.results.notes import ShownTable, method_notes, with_note
from helpers.results.statistics import LEVEL, Contrast, detectable, holm, paired, unpaired_means
from helpers.results.text import INCONCLUSIVE, caption, in_points, names_in_words, with_interval

_OF_REQUESTS = (
    "at once",
    "now",
    "retention",
    "new above old",
    "newest above older",
    "generality",
    "free text",
)
_UNEDITED = ("locality", "KL", "perplexity", "exam", "fired")
_ON_TOP = ("ES", "AFF", "ANF", "IFR", "CKP", "own")
_PERCENT = ("share", "fraction")
_COMPARED = ("now", "generality", "free text", "locality", "exam")  # with a control
_COMPARED_STREAMS = ("now", "free text", "locality")
_LARGEST_RATIO = 1000.0  # that is written out
MOST_RECORDS = 0.5  # a further edit whose ES is above this share has an AFF worth reading


def method_rows(run: Run) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Method, how it was edited (turns and order), and the measures of each table of a run."""
    for (method, turns_and_order), measures in measures_of_run(run).groupby(
        ["method", "mode"], sort=False
    ):
        yield str(method), str(turns_and_order), measures


def first_order_rows(run: Run) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """``method_rows`` of each method's first stored order, which figures and sentences show."""
    seen: set[tuple[str, str]] = set()
    for method, turns_and_order, measures in method_rows(run):
        turns, _, _ = turns_and_order.partition(", ")
        if (method, turns) not in seen:
            seen.add((method, turns))
            yield method, turns_and_order, measures


def track_label(method: str, turns_and_order: str) -> str:
    """A method in figures and sentences, such as ``MEMIT in turns of 100, order 2``.

    Turns of one request and the first order go without saying.
    """
    turns, _, order = turns_and_order.partition(", ")
    label = method_label(method)
    if turns != "turns of 1":
        label += f" in {turns}"
    if order != "order 0":
        label += f", {order}"
    return label


def lifelong_table(*runs: Run) -> ShownTable:
    """Every method at its last checkpoint: percent with 95 % intervals, of requests by subject.

    Without columns that no method has a value of.
    """
    rows = []
    notes: list[str] = []
    for run in runs:
        notes += method_notes(run)
        for method, turns_and_order, measures in method_rows(run):
            rows.append({**_names(run, method, turns_and_order), **_cells(measures)})
    note = (
        "now, generality, free text: of a sample of the requests, evenly by age; retention: of those written"
        " at once, the share that still is; locality: known facts with the same next token; a further edit"
        " (ES to its subject's other facts) is made upon the edits; seconds of making edits alone"
    )
    table = pd.DataFrame(rows)
    has_values = (table.notna() & (table != "n/a")).any()
    return with_note(table.loc[:, has_values], note, *dict.fromkeys(notes))


def _names(run: Run, method: str, turns_and_order: str) -> dict[str, str]:
    editor, _ = split_method(method)
    return {
        "model": run.about.source["model"],
        "data": run.about.source["dataset"],
        "method": method_label(method),
        "mode": turns_and_order,
        "information": editor.information,
    }


def _cells(measures: pd.DataFrame) -> dict[str, str | None]:
    """The cells of one method, by the labels of their columns; None where there is no value."""
    last = int(measures["edits"].max())
    cells: dict[str, str | None] = {
        "edits": f"{last} ({ending(measures)})" if ending(measures) else str(last)
    }
    for measure in (*_OF_REQUESTS, *_UNEDITED, *_ON_TOP):
        at_last = estimate(measures, measure, last)
        metric = METRICS[measure]
        if np.isnan(at_last.mean):
            cells[metric.label] = None
        elif at_last.mean > _LARGEST_RATIO:  # of a model that is destroyed
            cells[metric.label] = f"{at_last.mean:.0e}"
        elif metric.kind in _PERCENT:
            cells[metric.label] = in_points(at_last)
        else:
            cells[metric.label] = with_interval(at_last, digits=3)
    cells[METRICS["weights"].label] = with_interval(estimate(measures, "weights", last), digits=3)
    megabytes = estimate(measures, "bytes", last).mean / 1e6
    cells["MB kept"] = f"{megabytes:.1f}"
    cells[METRICS["seconds"].label] = with_interval(estimate(measures, "seconds", last))
    return cells


def on_top_table(run: Run) -> ShownTable:
    """A further edit after 0 edits and after more: success, damage and deduction of each method."""
    rows = []
    for method, turns_and_order, measures in first_order_rows(run):
        for edits in curve(measures, "ES").index.union(curve(measures, "IFR").index):
            cells = {
                measure: in_points(estimate(measures, measure, int(edits))) for measure in _ON_TOP
            }
            counts = {
                f"n, {measure}": estimate(measures, measure, int(edits)).n
                for measure in ("AFF", "IFR", "own")
            }
            label = track_label(method, turns_and_order)
            rows.append({"method": label, "edits": int(edits), **cells, **counts})
    note = "percent, with 95 % intervals over probes; n: records with AFF, graphs with IFR or other facts"
    return with_note(pd.DataFrame(rows), note)


def on_top_change_table(run: Run) -> ShownTable:
    """A further edit's AFF and ANF after all edits minus those after none, on the same records.

    A row a method; Holm's correction is for all tests of the table.
    """
    tests: dict[tuple[str, str], Contrast] = {}
    for method, turns_and_order, measures in first_order_rows(run):
        for measure in ("AFF", "ANF"):
            rows = measures[measures["measure"] == measure].dropna(subset=["value"])
            by_record = rows.pivot(index="item", columns="edits", values="value")
            last = int(measures["edits"].max())
            if {0, last} <= {*by_record.columns}:
                of_both = by_record[[0, last]].dropna()
                label = track_label(method, turns_and_order)
                tests[label, measure] = paired(of_both[0], of_both[last], METRICS[measure].kind)
    corrected = holm([test.p_value for test in tests.values()])
    rows_of_methods: dict[str, dict[str, object]] = {}
    for ((label, measure), test), p_value in zip(tests.items(), corrected, strict=True):
        rows_of_methods.setdefault(label, {})[f"{measure}, change"] = in_points(
            test.difference, signed=True
        )
        rows_of_methods[label][f"n, {measure}"] = test.difference.n
        rows_of_methods[label][f"p, {measure}"] = f"{test.p_value:.3f}"
        rows_of_methods[label][f"Holm, {measure}"] = "differs" if p_value < LEVEL else INCONCLUSIVE
    table = pd.DataFrame.from_dict(rows_of_methods, orient="index").rename_axis("method")
    note = "points, with 95 % intervals; exact sign flips, Holm for all tests of the table"
    return with_note(table.reset_index(), note)


def control_table(run: Run, control: str, methods: Collection[str] = ()) -> ShownTable:
    """Methods minus a ``control`` with turns of the same size and order, at the last checkpoint of both.

    All methods of the run, or the named ones. Paired tests on the same requests (by subject), known facts and
    exam questions; *Holm* says which differences survive the correction for all tests of the table.
    """
    rows_of_control = {
        mode: measures for method, mode, measures in first_order_rows(run) if method == control
    }
    tests: dict[tuple[str, str], Contrast] = {}
    for method, mode, measures in first_order_rows(run):
        if method == control or mode not in rows_of_control or (methods and method not in methods):
            continue
        for measure in _COMPARED:
            label = track_label(method, mode)
            tests[label, measure] = _change_at_last(rows_of_control[mode], measures, measure)
    corrected = holm([test.p_value for test in tests.values()])
    rows = [
        {
            "method": label,
            "measure": METRICS[measure].label,
            f"minus {method_label(control)}": in_points(test.difference, signed=True),
            "n": test.difference.n,
            "Holm": "differs" if p_value < LEVEL else INCONCLUSIVE,
        }
        for ((label, measure), test), p_value in zip(tests.items(), corrected, strict=True)
    ]
    note = (
        "points, with 95 % intervals; Holm: exact sign flips, corrected for all tests of the table"
    )
    return with_note(pd.DataFrame(rows), note)


def stream_table(first: Run, second: Run) -> ShownTable:
    """The ``second`` stream minus the ``first``, for methods of both, after the most edits that both have.

    Unpaired tests, by subject where subjects repeat; *detectable* is the smallest difference that they could
    have shown. Holm's correction is for all tests of the table.
    """
    rows_of_first = {(method, mode): measures for method, mode, measures in first_order_rows(first)}
    rows = []
    p_values = []
    for method, mode, of_second in first_order_rows(second):
        of_first = rows_of_first.get((method, mode))
        common = {*of_first["edits"]} & {*of_second["edits"]} if of_first is not None else set()
        if of_first is None or not common:
            continue
        edits = max(common)
        for measure in _COMPARED_STREAMS:
            values = [
                values_by_unit(
                    measures[(measures["edits"] == edits) & (measures["measure"] == measure)]
                )
                for measures in (of_first, of_second)
            ]
            test = unpaired_means(*values)
            p_values.append(test.p_value)
            rows.append(
                {
                    "method": track_label(method, mode),
                    "edits": edits,
                    "measure": METRICS[measure].label,
                    first.about.source["dataset"]: in_points(estimate(of_first, measure, edits)),
                    second.about.source["dataset"]: in_points(estimate(of_second, measure, edits)),
                    "difference": in_points(test.difference, signed=True),
                    "detectable": f"{100 * detectable(*values):.1f}",
                    "p": f"{test.p_value:.3f}",
                }
            )
    verdicts = ["differs" if p < LEVEL else INCONCLUSIVE for p in holm(p_values)]
    note = (
        "percent and points, with 95 % intervals; unpaired t-tests (Welch), by subject where subjects repeat;"
        " Holm for all tests of the table"
    )
    return with_note(pd.DataFrame(rows).assign(Holm=verdicts), note)


def _change_at_last(first: pd.DataFrame, second: pd.DataFrame, measure: str) -> Contrast:
    """Second minus first of a measure at the last checkpoint of both, on the units of both."""
    last = max({*first["edits"]} & {*second["edits"]})
    values = [_values_at(measures, measure, last) for measures in (first, second)]
    of_both = pd.concat(values, axis=1, join="inner")
    return paired(of_both.iloc[:, 0], of_both.iloc[:, 1], "share")


def _values_at(measures: pd.DataFrame, measure: str, edits: int) -> pd.Series:
    """A measure's values after ``edits`` edits, a mean for each unit."""
    rows = measures[(measures["edits"] == edits) & (measures["measure"] == measure)]
    return rows.groupby("unit")["value"].mean()


def at_once_and_now(run: Run) -> list[str]:
    """A line a method: what it gave right after its turn, what it gives now, which known facts it keeps."""
    lines = []
    for method, turns_and_order, measures in method_rows(run):
        last = int(measures["edits"].max())
        at_once, now, locality = (
            100 * estimate(measures, measure, last).mean
            for measure in ("at once", "now", "locality")
        )
        lines.append(
            f"{track_label(method, turns_and_order)}: {at_once:.0f} % of its latest requests at once,"
            f" {now:.0f} % of all now; the next token stays after {locality:.0f} % of known facts"
        )
    return lines


@dataclass(frozen=True, eq=False)
class _MethodAtEnd:
    """A method at its last checkpoint, as sentences tell of it; shares are from 0 to 1."""

    label: str
    measures: pd.DataFrame
    edits: int
    at_once: float
    now: float
    # All that show a sign of collapse at the first checkpoint that has one.
    first_measures: list[str]

    @staticmethod
    def of(label: str, measures: pd.DataFrame) -> _MethodAtEnd:
        edits = int(measures["edits"].max())
        at_once, now = (estimate(measures, measure, edits).mean for measure in ("at once", "now"))
        signs = {measure: first for measure, first in first_signs(measures).items() if first}
        earliest = min(signs.values(), default=0)
        first_measures = [measure for measure, first in signs.items() if first == earliest]
        return _MethodAtEnd(label, measures, edits, at_once, now, first_measures)

    @property
    def in_other_words(self) -> float:
        """The percentage of the sampled requests that is given in other words; NaN where none was asked."""
        return 100 * estimate(self.measures, "generality", self.edits).mean


@dataclass(frozen=True)
class SoWhat:
    """What a run shows, in sentences.

    ``remembering`` begins with the method that gives the most requests after all edits. The next sentences
    are about the method behind it, and about the one that gave the most right after their turn.
    """

    remembering: tuple[str, ...]
    collapse: str  # what breaks first
    additivity: str  # what a further edit does; empty where nothing was edited on top

    @property
    def sentences(self) -> list[str]:
        """All of them, in the order in which they are read."""
        return [*self.remembering, self.collapse, *filter(None, [self.additivity])]


def so_what(run: Run) -> SoWhat:
    """Who remembers, what breaks first, and what a further edit does then."""
    methods = [
        _MethodAtEnd.of(track_label(name, mode), measures)
        for name, mode, measures in first_order_rows(run)
    ]
    return SoWhat(
        _remembering_in_words(methods),
        _first_signs_in_words(methods),
        _additivity_in_words(methods),
    )


def _remembering_in_words(methods: Sequence[_MethodAtEnd]) -> tuple[str, ...]:
    """Who gives the most requests now, in their own and in other words, and what is left of the most at once.

    The next method's difference from the first is of the same requests, with its interval. Of methods with
    the same share at once the sentence is about the one that gives fewest now.
    """
    last_edits = max(method.edits for method in methods)
    best_now, behind = _highest(methods, lambda method: method.now)
    best_at_once, _ = _highest(methods, lambda method: method.at_once)
    have_all = all(method.edits == last_edits for method in (*best_now, *best_at_once))
    after = f"{'After' if have_all else 'After up to'} {last_edits:,} edits"
    highest_now, highest_at_once = 100 * best_now[0].now, 100 * best_at_once[0].at_once
    if len(methods) == 1:
        return (
            f"{after} {_give(methods)} {highest_now:.0f} % of the sampled requests, and"
            f" {highest_at_once:.0f} % of the latest right after their turn.",
        )
    sentences = [f"{after} no method gives a sampled request."]
    if highest_now > 0:
        most_now = f"the most sampled requests, {highest_now:.0f} %{_reworded(best_now)}"
        sentences = [f"{after} {_give(best_now)} {most_now}."]
        if behind:
            sentences.append(_next_best_in_words(best_now[0], behind))
        if best_now == best_at_once:
            most_at_once = f"the most right after their turn, {highest_at_once:.0f} %"
            return (*sentences, f"{_give(best_now)} {most_at_once}.")
    forgetful = min(best_at_once, key=lambda method: method.now)
    as_many = [method.label for method in best_at_once if method is not forgetful]
    at_once = f"{highest_at_once:.0f} % right after their turn"
    if as_many:
        at_once = (
            f"as many as {names_in_words(as_many)} right after their turn, {highest_at_once:.0f} %"
        )
    return (*sentences, f"{forgetful.label} gives {at_once}, and {100 * forgetful.now:.0f} % now.")


def _next_best_in_words(best: _MethodAtEnd, behind: Sequence[_MethodAtEnd]) -> str:
    """What the method after the ``best`` one gives now, with the difference if both have as many edits."""
    (next_best, *_), _ = _highest(behind, lambda method: method.now)
    difference = ""
    if next_best.edits == best.edits:
        change = _change_at_last(best.measures, next_best.measures, "now").difference
        difference = f" ({in_points(change, signed=True)} points)"
    share = f"{100 * next_best.now:.0f} %{difference}{_reworded([next_best])}"
    return f"{next_best.label} gives {share}."


def _highest(
    methods: Sequence[_MethodAtEnd], share: Callable[[_MethodAtEnd], float]
) -> tuple[list[_MethodAtEnd], list[_MethodAtEnd]]:
    """The methods with the highest share, and the others."""
    highest = max(map(share, methods))
    best = [method for method in methods if share(method) == highest]
    return best, [method for method in methods if method not in best]


def _reworded(methods: Sequence[_MethodAtEnd]) -> str:
    """How many paraphrases of the sampled requests methods give, to follow a share; empty without any."""
    shares = [method.in_other_words for method in methods]
    return "" if np.isnan(shares).any() else f", and {_range_in_words(shares)} % in other words"


def _give(methods: Sequence[_MethodAtEnd]) -> str:
    """Methods as the subject of a sentence, with its verb."""
    verb = "gives" if len(methods) == 1 else "give"
    return f"{names_in_words(method.label for method in methods)} {verb}"


def _first_signs_in_words(methods: Sequence[_MethodAtEnd]) -> str:
    """What breaks first, from each method's first signs of collapse; of a single one, which it is.

    Methods that were stopped early without a sign do not count: what they would have lost is not known.
    """
    last_edits = max(method.edits for method in methods)
    broken = [method for method in methods if method.first_measures]
    if not broken:
        return f"No method shows a sign of collapse within {last_edits:,} edits."
    if len(broken) == 1:
        (only,) = broken
        signs = " and ".join(_labels(only.first_measures))
        subject = f"Only {only.label}" if len(methods) > 1 else only.label
        return f"{subject} shows a sign of collapse, in {signs} first."
    counted = [method for method in methods if method in broken or method.edits == last_edits]
    to_the_end = (
        f" that were asked after {last_edits:,} edits" if len(counted) < len(methods) else ""
    )
    shown = f"{len(broken)} of {len(counted)} methods{to_the_end} show a sign of collapse"
    firsts = Counter(measure for method in broken for measure in method.first_measures)
    count = max(firsts.values())
    if count == 1:
        return f"{shown}; no two share the first."
    most_frequent = [measure for measure in SIGNS if firsts[measure] == count]
    methods_in_words = "all" if count == len(broken) else str(count)
    is_alone = sum(method.first_measures == most_frequent for method in broken) == count
    verb = "is" if len(most_frequent) == 1 else "are"
    place = "the first" if is_alone else "among the first"
    signs = " and ".join(_labels(most_frequent))
    return f"{shown}; for {methods_in_words} of them {signs} {verb} {place}."


def _additivity_in_words(methods: Sequence[_MethodAtEnd]) -> str:
    """The range of AFF of a further edit that succeeds, before the stream and after it; empty without any."""
    forgetting: dict[int, list[float]] = {}
    for method in methods:
        aff, success = (curve(method.measures, measure)["mean"] for measure in ("AFF", "ES"))
        for edits in {0, method.edits} & set(aff.index):
            if success.get(edits, 0.0) > MOST_RECORDS:
                forgetting.setdefault(int(edits), []).append(100 * aff[edits])
    ranges = [
        f"{_range_in_words(values)} % after {edits:,}"
        for edits, values in sorted(forgetting.items())
    ]
    if not ranges:
        return ""
    return f"A further edit that succeeds in most records has an AFF of {', and of '.join(ranges)} edits."


def _labels(measures: Sequence[str]) -> list[str]:
    return [METRICS[measure].label for measure in measures]


def _range_in_words(values: Sequence[float]) -> str:
    """The least and the largest, rounded to whole numbers; one number where they are equal."""
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def lifelong_caption(run: Run) -> str:
    """What a run's tables are of."""
    probes = run.about.source["probes"]
    probes_in_words = (
        f"{probes['peak_cf']} PEAK-CF and {probes['peak_t']} PEAK-T records, {probes['chains']} recalled"
        f" graphs, {run.about.caption['known facts']} known facts, {probes['tokens']} tokens of text,"
        f" {probes['exam']} questions of the exam"
    )
    preset = f"preset {run.about.caption['preset']}"
    return caption(
        run.about.source, f"stream {run.about.source['dataset']}", probes_in_words, preset
    )
