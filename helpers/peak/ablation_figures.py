"""Notebook 04's figures, drawn from whatever studies of APP a run has stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.editing.editors import Variant, fairer, method_label, objectives
from helpers.peak.ablations import (
    Studies,
    editors_with,
    fairer_editors,
    finished,
    sequence_metrics,
    studies_of,
    variant_metrics,
    with_neighbours,
)
from helpers.peak.figures import ABOVE, ACROSS, LIST_COLOURS, MAIN_RUN, NAMES, list_marks, rows_of
from helpers.peak.findings import (
    app_findings,
    fairer_findings,
    neighbour_findings,
    objective_findings,
    short_name,
)
from helpers.peak.metrics import metric_interval, probabilities_table
from helpers.peak.tables import method_notes
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.looks import method_line
from helpers.results.style import (
    AT_RIGHT,
    MARKERS,
    PALETTE,
    marked,
    with_caption,
)
from helpers.results.text import INCONCLUSIVE, Evidence, corrected_verdicts

_HOLM = "corrected for their number (Holm)"
_HOLLOW = f"Differences on the same records; hollow: inconclusive when all tests are {_HOLM}"
_WEIGHTINGS = "sum: the list weighs as much as the new answer; mean: every answer weighs the same"
_ablation = partial(figure, of="ablations", main=MAIN_RUN)


@_ablation(
    "04_objectives",
    each=("editor", partial(editors_with, field="alpha=0x")),
)
def objectives_panels(run: Run, *, editor: str) -> Figure:
    """What APP loses without one objective, and answer probabilities (PEAK, Figures 3 and 5)."""
    stored = studies_of(run)
    editors = editors_with(run, "alpha=0x")
    found = _shown(stored, [variant for each in editors for variant in objectives(each)])
    names = {short_name(variant): variant for variant in objectives(editor) if variant in found}
    tested = objective_findings(found, editors)
    label = method_label(editor)
    rows = {name: -place for place, name in enumerate(names) if name.startswith("without")}
    drawn, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.1), width_ratios=(2, 3))
    for place, title in enumerate(NAMES.values()):
        aside = {name: row + 0.12 - 0.24 * place for name, row in rows.items()}
        color = LIST_COLOURS["correct" if place == 0 else "hard"]
        look = {"fmt": MARKERS[place], "color": color, "label": title}
        chosen = _judged(tested, f"{title.replace(',', '')}, {label}: without", "- APP")
        _mark_tests(left, aside, chosen, **look)
    left.set_yticks([*rows.values()], [*rows])
    left.legend(**ABOVE)
    left.set_xlabel("change without the objective [points]\n→ worse")
    scores = {name: stored.scores[str(variant)] for name, variant in names.items()}
    shown = {name: found[variant] for name, variant in names.items()}
    tables = {name: probabilities_table(scores[name]).loc[t.index] for name, t in shown.items()}
    list_marks(right, tables)
    held, tests = _holding(tested, f", {label}: without", "- APP")
    lost = [f"{m[:3]} {m.partition(': ')[2].removesuffix(' - APP')}" for m in held]
    finding = f"{label}+APP: higher {' and '.join(lost) or 'AFF or ANF'} ({len(held)} of {tests} tests hold)"
    caption = f"{stored.described(*stored.scores.values())}\n{_HOLLOW}"
    return _with_counts(drawn, finding, caption, shown.values())


@_ablation(
    "04_neighbours",
    when=lambda run: bool(editors_with(run, "neighbours")),
)
def neighbours_lines(run: Run) -> Figure:
    """AFF and ANF (hard) against the number of neighbours APP is given (PEAK, Figure 4)."""
    stored = studies_of(run)
    editors = editors_with(run, "neighbours")
    metrics = variant_metrics(stored.scores)
    groups = {editor: with_neighbours(metrics, editor) for editor in editors}
    curves = {
        editor: {f"{v.value:g}" if v.field else "all": table for v, table in chosen.items()}
        for editor, chosen in groups.items()
    }
    drawn = _curves(NAMES, [curves], "neighbours k of each list given to APP")
    held, tests = _holding(neighbour_findings(metrics, editors))
    tables = [table for chosen in groups.values() for table in chosen.values()]
    finding = f"APP protects more with more neighbours in {len(held)} of {tests} tests"
    caption = f"{stored.described(*stored.scores.values())}\nTests: paired, {_HOLM}"
    return _with_counts(drawn, finding, caption, tables)


@_ablation("04_fairer", when=lambda run: bool(fairer_editors(run)))
def fairer_differences(run: Run) -> Figure:
    """What answers as targets cost: noise and forgetting beyond APP's, lost edits (PEAK, Table 5)."""
    stored, editors = studies_of(run), fairer_editors(run)
    shown = _shown(stored, [variant for editor in editors for variant in fairer(editor)])
    tested = fairer_findings(shown, editors)
    labels = [method_label(editor) for editor in editors]
    drawn, panels = plt.subplots(1, 3, figsize=(7.6, 3.0), sharey=True)
    parts = {"ANF hard": "more noise", "AFF hard": "more forgetting", "ES": "lower success"}
    for axes, (metric, part) in zip(panels, parts.items(), strict=True):
        for place, weighting in enumerate(("sum", "mean")):
            rows = {f", {name}": 0.1 - 0.2 * place - row for row, name in enumerate(labels)}
            look = {"fmt": MARKERS[place], "color": PALETTE[place], "label": weighting}
            _mark_tests(axes, rows, _judged(tested, f"{metric}, ", f"+ ({weighting})"), **look)
        axes.set_title(
            f"{part} ({metric[:3]})\nthan {'the plain editor' if metric == 'ES' else 'with APP'}"
        )
        axes.set_xlabel("points → targets worse")
    panels[0].set_yticks([-row for row in range(len(labels))], labels)
    panels[-1].legend(title="answers\nweighted as", **AT_RIGHT)
    noisy, tests = _holding(tested, "ANF", "(sum)")
    costly, _ = _holding(tested, "ES", "(mean)")
    cost = f"As a mean, answers as targets cost success ({len(costly)} of {tests} editors)"
    finding = f"{cost}; as a sum, they leave more noise than APP for {len(noisy)} of {tests}"
    notes = method_notes(run, ["mend"])
    caption = "\n".join([stored.described(*stored.scores.values()), _WEIGHTINGS, *notes, _HOLLOW])
    return _with_counts(drawn, finding, caption, shown.values())


@_ablation(
    "04_sequences",
    when=lambda run: any(" after " in name for name in run.tables),
)
def sequence_lines(run: Run) -> Figure:
    """AFF, ANF and ES of all edited records against the number of edits made, from two edits on.

    One sequence a method: its intervals are over records and do not hold what another order would change.
    """
    stored = studies_of(run)
    metrics = {place: t for place, t in sequence_metrics(stored).items() if len(t) > 1}
    groups: dict[str, dict[str, dict[str, pd.DataFrame]]] = {}
    for (method, edits), table in metrics.items():
        groups.setdefault(method.partition("+")[0], {}).setdefault(method, {})[str(edits)] = table
    drawn = _curves({**NAMES, "ES": "ES"}, [*groups.values()], "edits made and scored")
    most = max(edits for _, edits in metrics)
    after = {Variant(method): t for (method, edits), t in metrics.items() if edits == most}
    held, tests = _holding(app_findings(after, groups, alone=False), "AFF")
    editors = [measure.partition(", ")[2].partition(":")[0] for measure in held]
    words = f"APP still lowers forgetting with {' and '.join(editors) or 'no editor'}"
    finding = f"After {most} edits in one sequence {words} ({len(held)} of {tests} editors)"
    tests_of = f"One order of the records (one replicate); tests: over records, paired, {_HOLM}"
    caption = f"{stored.described(*metrics.values())}\n{tests_of}"
    return _with_counts(drawn, finding, caption, metrics.values())


def _curves(
    titles: Mapping[str, str],
    groups: Sequence[Mapping[str, Mapping[str, pd.DataFrame]]],
    label: str,
) -> Figure:
    """A row of panels a group, a panel a metric, a line a method with 95 % intervals; ``label``: of ticks."""
    ticks = list(dict.fromkeys(t for curves in groups for c in curves.values() for t in c))
    shape = (len(groups), len(titles))
    size = (7.6, 1.9 * len(groups) + 1.1)
    drawn, grid = plt.subplots(*shape, figsize=size, squeeze=False, sharex=True, sharey=True)
    for row, (curves, panels) in enumerate(zip(groups, grid, strict=True), start=1):
        for axes, (metric, title) in zip(panels, titles.items(), strict=True):
            for index, (method, points) in enumerate(curves.items()):
                aside = 0.06 * (index - (len(curves) - 1) / 2)
                places = [ticks.index(tick) + aside for tick in points]
                found = [metric_interval(metric, table[metric]) for table in points.values()]
                marked(axes, places, rows_of(found), **method_line(method))
            axes.set_title(title if row == 1 else "")
            axes.set_xlabel(label if row == len(groups) else "")
            axes.set(xticks=range(len(ticks)), xticklabels=ticks, ylim=(-3, 105))
        panels[0].set_ylabel("mean over records [%]")
        panels[-1].legend(**AT_RIGHT)
    return drawn


def _judged(tested: Sequence[Evidence], *parts: str) -> dict[str, tuple[Evidence, str]]:
    """Tests with these parts in their measure, and their verdicts, corrected for all of ``tested``."""
    judged = zip(tested, corrected_verdicts(tested), strict=True)
    return {e.measure: (e, v) for e, v in judged if all(part in e.measure for part in parts)}


def _holding(tested: Sequence[Evidence], *parts: str) -> tuple[list[str], int]:
    """The measures of ``_judged`` that hold, and how many were tested."""
    found = _judged(tested, *parts)
    return [measure for measure, (_, verdict) in found.items() if verdict == "holds"], len(found)


def _mark_tests(
    axes: Axes, rows: Mapping[str, float], found: dict[str, tuple[Evidence, str]], **look: Any
) -> None:
    """Differences, each in the row that its measure names; hollow where inconclusive."""
    for measure, (evidence, verdict) in found.items():
        places = [place for row, place in rows.items() if row in measure]
        fill = {"mfc": "white" if verdict == INCONCLUSIVE else look["color"], "label": ""}
        marked(axes, places, rows_of([evidence.difference]), **ACROSS, **look | fill)
    axes.plot([], [], look["fmt"], color=look["color"], label=look["label"])
    axes.axvline(0, color="0.4", linewidth=0.8)
    axes.margins(y=0.1)
    axes.grid(axis="y", visible=False)


def _shown(stored: Studies, variants: Sequence[Variant]) -> dict[Variant, pd.DataFrame]:
    names = [str(variant) for variant in variants]
    scores = {name: stored.scores[name] for name in names if name in stored.scores}
    return finished(variant_metrics(scores), variants)


def _with_counts(
    drawn: Figure, finding: str, caption: str, tables: Iterable[pd.DataFrame]
) -> Figure:
    """The figure with its finding, and how many records are behind its means: those with AFF."""
    counts = sorted({int(table["AFF_hard"].notna().sum()) for table in tables})
    means = f"n = {', '.join(map(str, counts))} records, 95 % intervals"
    return with_caption(drawn, finding, f"{caption}; {means}")
