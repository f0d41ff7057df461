"""The ablations' figures, each drawn from whatever studies of a run are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.editing.editors import OBJECTIVES, SYMBOLS, Variant, fairer, method_label, objectives
from helpers.peak.ablations import (
    Studies,
    editors_with,
    fairer_editors,
    finished,
    rank_correlation,
    said_beside_factors,
    sequence_metrics,
    studies_of,
    variant_metrics,
    variants_of,
    with_field,
)
from helpers.peak.figures import LISTS, MAIN_RUN, NAMES, PAIRS, paired_factors, rows_of
from helpers.peak.findings import app_findings, fairer_findings, neighbour_findings, short_name
from helpers.peak.metrics import metric_interval, probabilities_table
from helpers.peak.tables import metric_contrast
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.statistics import Estimate
from helpers.results.style import (
    BESIDE,
    HATCHES,
    MARKERS,
    PALETTE,
    WHISKERS,
    marked,
    method_colour,
    method_line,
    told,
    use_style,
)
from helpers.results.text import Evidence, corrected_verdicts

MAIN_SAID = "smollm2-135m_peak-mini-cf"
_LIST_COLOURS = {"correct": PALETTE[2], "hard": PALETTE[3], "random": PALETTE[7]}
_LINES = ("-", "--", ":")
_ASIDE = 0.06  # how far lines over the same places are apart
_NOTHING = Estimate(np.nan, np.nan, np.nan, 0)
_ablation = partial(figure, of="ablations", main=MAIN_RUN)


@_ablation(
    "04_objectives",
    title="APP short of one objective",
    each=("editor", partial(editors_with, field="alpha")),
)
def objectives_panels(run: Run, *, editor: str) -> Figure:
    """What APP loses without one objective, record by record, and answer probabilities (PEAK, Figs. 3, 5).

    Green is for correct answers and what happens to them (AFF), vermilion for hard false ones (ANF).
    """
    use_style()
    stored = studies_of(run)
    shown = _shown(stored, objectives(editor))
    whole = Variant(f"{editor}+app")
    others = [variant for variant in shown if variant != whole]
    rows = ["before", *map(short_name, shown)][::-1]
    drawn, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.3), sharey=True)
    worse: dict[str, list[str]] = {}
    pairs: list[Estimate] = []
    style: dict[str, Any] = {"across": True, "markersize": 5, "elinewidth": 0.9}
    for place, (metric, title) in enumerate(NAMES.items()):
        tests = [metric_contrast(metric, shown[whole][metric], shown[v][metric]) for v in others]
        found = {short_name(v): t.difference for v, t in zip(others, tests, strict=True)}
        pairs += found.values()
        places = [rows.index(name) + 0.12 - 0.24 * place for name in found]
        color = _LIST_COLOURS["correct" if place == 0 else "hard"]
        look = {**style, "fmt": MARKERS[place], "color": color, "label": title}
        marked(left, places, rows_of(found.values()), **look)
        for name in (name for name, e in found.items() if e.low > 0 and name != "plain"):
            worse.setdefault(name, []).append(title.partition(",")[0])
    n = ", ".join(map(str, sorted({e.n for e in pairs})))
    left.axvline(0, color="0.4", linewidth=0.8)
    left.set_xlabel(
        f"change against {short_name(whole)} [points]\n→ worse; n = {n} pairs, 95 % intervals"
    )
    left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    states = {"before": (next(iter(shown)), "before")} | {
        short_name(v): (v, "after") for v in shown
    }
    tables = {
        v: probabilities_table(stored.scores[str(v)]).loc[table.index] for v, table in shown.items()
    }
    for place, (name, label) in enumerate(LISTS.items()):
        keys = {state: (v, f"{name}_{moment}") for state, (v, moment) in states.items()}
        means = [metric_interval(key, tables[v][key]) for v, key in keys.values()]
        # An interval down to zero has no end on a log axis.
        means = [Estimate(e.mean, max(e.low, e.mean / 100), e.high, e.n) for e in means]
        places = [rows.index(state) + 0.2 - 0.2 * place for state in states]
        look = {**style, "fmt": MARKERS[place], "color": _LIST_COLOURS[name], "label": label}
        marked(right, places, rows_of(means, scale=1), **look)
    right.set_xscale("log")
    right.set_xlabel("mean probability (log scale)")
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, columnspacing=0.8)
    left.set_yticks(range(len(rows)), rows)
    for axes in (left, right):
        axes.grid(axis="y", visible=False)
    lost = ", ".join(f"{name} ({', '.join(factors)})" for name, factors in worse.items())
    verdict = f"is worse {lost}" if lost else "is not shown to need any one objective"
    own = [f"{t.partition(',')[0]} {100 * shown[whole][m].mean():.1f}" for m, t in NAMES.items()]
    note = f"{stored.described(*shown.values())}\n{short_name(whole)} has {', '.join(own)} %"
    return told(drawn, f"{method_label(editor)}+APP {verdict}", note)


@_ablation(
    "04_neighbours",
    title="More neighbours for APP",
    when=lambda run: bool(editors_with(run, "neighbours")),
)
def neighbours_lines(run: Run) -> Figure:
    """AFF and ANF (hard) against the number of neighbours APP is given (PEAK, Figure 4)."""
    use_style()
    stored, editors = studies_of(run), editors_with(run, "neighbours")
    metrics = variant_metrics(stored.scores)
    groups = {editor: with_field(metrics, editor, "neighbours") for editor in editors}
    drawn, panels = plt.subplots(1, 2, figsize=(7.2, 2.9), sharey=True)
    for axes, (metric, title) in zip(panels, NAMES.items(), strict=True):
        for index, (editor, chosen) in enumerate(groups.items()):
            names = [f"{v.value:g}" if v.field else "all" for v in chosen]
            places = np.arange(len(names))
            look = method_line(editor) | {"linestyle": _LINES[index % len(_LINES)]}
            _line(axes, places + _ASIDE * (index - 0.5), chosen.values(), metric, **look)
            axes.set_xticks(places, names)
        axes.set(title=title, xlabel="neighbours k of each list given to APP", ylim=(0, 105))
    panels[0].set_ylabel("additivity factor [%]")
    panels[1].legend()
    held = _held(neighbour_findings(metrics, editors))
    tables = [table for chosen in groups.values() for table in chosen.values()]
    return _told(drawn, f"More neighbours protect more: {held} tests hold", stored, tables)


@_ablation("04_fairer", title="Fairer baselines", when=lambda run: bool(fairer_editors(run)))
def fairer_bars(run: Run) -> Figure:
    """ES, AFF and ANF (hard): plain, all answers as targets (+), with APP (PEAK, Table 5)."""
    use_style()
    stored, editors = studies_of(run), fairer_editors(run)
    shown = _shown(stored, [variant for editor in editors for variant in fairer(editor)])
    kinds = {"": "plain", "all": "+ (mean)", "all-sum": "+ (sum)", "app": "+APP"}
    titles = {"ES": "ES (higher is better)"} | {m: f"{t} (lower)" for m, t in NAMES.items()}
    drawn, panels = plt.subplots(1, 3, figsize=(7.6, 3.0), sharey=True)
    groups = list(dict.fromkeys(method_label(v.editor) for v in shown))
    bars = list(dict.fromkeys(kinds[v.method.partition("+")[2]] for v in shown))
    width = 0.8 / len(bars)
    for axes, (metric, title) in zip(panels, titles.items(), strict=True):
        for index, bar in enumerate(bars):
            found = {
                method_label(v.editor): metric_interval(metric, table[metric])
                for v, table in shown.items()
                if kinds[v.method.partition("+")[2]] == bar
            }
            rows = [found.get(group, _NOTHING) for group in groups]
            mean, low, high = 100 * np.array([(e.mean, e.low, e.high) for e in rows]).T
            ends = np.nan_to_num([mean - low.clip(0), high.clip(max=100) - mean])
            axes.bar(
                np.arange(len(groups)) + (index - (len(bars) - 1) / 2) * width,
                mean,
                width,
                yerr=ends,
                label=bar,
                **{"color": PALETTE[index], "hatch": HATCHES[index]},
                **{"edgecolor": "black", "linewidth": 0.5, "error_kw": WHISKERS},
            )
        axes.set_xticks(np.arange(len(groups)), groups)
        axes.grid(axis="x", visible=False)
        axes.set(title=title, ylim=(0, 105))
    panels[0].set_ylabel("mean [%]")
    panels[-1].legend(**BESIDE)
    noisy = _held(fairer_findings(shown, editors), "ANF", "(sum)")
    finding = f"Targets weighted as a sum leave more noise than APP with {noisy} editors"
    return _told(drawn, finding, stored, shown.values())


@_ablation(
    "04_editors",
    title="Every editor with and without APP",
    when=lambda run: any("@" in name for name in variants_of(run)),
)
def every_editor(run: Run) -> Figure:
    """AFF and ANF of every editor alone and with APP."""
    stored = studies_of(run)
    editors = [name for name in variants_of(run) if "+" not in name]
    shown = _shown(stored, [Variant(name + suffix) for name in editors for suffix in ("", "+app")])
    tested = app_findings(shown, [name for name in editors if name != "prune"])  # equals MEMIT here
    noise, forgetting = (_held(tested, name) for name in ("ANF", "AFF"))
    drawn, legend = paired_factors({variant.label: table for variant, table in shown.items()})
    drawn.axes[-1].legend(*legend, **BESIDE)
    finding = f"APP lowers the noise of {noise} editors, the forgetting of {forgetting}"
    return _told(drawn, finding, stored, shown.values(), below=f"\n{PAIRS}")


@_ablation(
    "04_sensitivity",
    title="APP's coefficients",
    each=("editor", partial(editors_with, field="margin")),
)
def sensitivity_panels(run: Run, *, editor: str) -> Figure:
    """AFF, ANF and GS when one of APP's coefficients, or its margin, is changed alone."""
    use_style()
    stored = studies_of(run)
    metrics, margin = variant_metrics(stored.scores), stored.margin(editor)
    fields = (*OBJECTIVES, "margin")
    groups = {field: with_field(metrics, editor, field, margin=margin) for field in fields}
    drawn, panels = plt.subplots(1, len(fields), figsize=(7.6, 2.9), sharey=True)
    for axes, (field, chosen) in zip(panels, groups.items(), strict=True):
        values = [v.value if v.field else margin if field == "margin" else 1.0 for v in chosen]
        places = np.arange(len(values))
        for index, (metric, title) in enumerate({**NAMES, "GS": "GS"}.items()):
            look = {"marker": MARKERS[index], "linestyle": _LINES[index], "label": title}
            aside = places + _ASIDE * (index - 0.5)
            _line(axes, aside, chosen.values(), metric, color=PALETTE[index], **look)
        axes.set_xticks(places, [f"{value:g}{'×' * (field != 'margin')}" for value in values])
        axes.set(title=SYMBOLS[field], ylim=(0, 105))
    panels[0].set_ylabel("percent")
    panels[-1].legend(**BESIDE)
    shown = {v: table for chosen in groups.values() for v, table in chosen.items()}
    whole = metrics[Variant(f"{editor}+app")]
    changed = [(table[m] - whole[m]).mean() for v, table in shown.items() if v.value for m in NAMES]
    finding = (
        f"{method_label(editor)}+APP: half or twice one value moves AFF and ANF by"
        f" {100 * max(map(abs, changed)):.0f} points at most"
    )
    return _told(drawn, finding, stored, shown.values(), more="; each value changed alone")


@_ablation(
    "04_sequences",
    title="Sequential edits",
    when=lambda run: any(" after " in name for name in run.tables),
)
def sequence_lines(run: Run) -> Figure:
    """ES, AFF and ANF of all edited records against the number of edits made, 95 % intervals."""
    use_style()
    stored = studies_of(run)
    metrics = sequence_metrics(stored)
    methods = list(dict.fromkeys(method for method, _ in metrics))
    ticks = sorted({edits for _, edits in metrics})
    drawn, panels = plt.subplots(1, 3, figsize=(7.6, 3.0), sharey=True)
    for axes, (metric, title) in zip(panels, {"ES": "ES", **NAMES}.items(), strict=True):
        for index, method in enumerate(methods):
            points = {n: table for (each, n), table in metrics.items() if each == method}
            aside = 1.06 ** (index - (len(methods) - 1) / 2)  # on a logarithmic axis
            places = aside * np.array(list(points))
            _line(axes, places, points.values(), metric, **method_line(method))
        axes.set_xscale("log")
        axes.set_xticks(ticks, [str(edits) for edits in ticks])
        axes.minorticks_off()
        axes.set(title=title, xlabel="edits made and scored", ylim=(-3, 105))
    panels[0].set_ylabel("mean over edited records [%]")
    panels[-1].legend(**BESIDE)
    after = {Variant(method): t for (method, edits), t in metrics.items() if edits == ticks[-1]}
    tested = app_findings(after, [v.editor for v in after if "+" not in v.method])
    verdicts = zip(tested, corrected_verdicts(tested), strict=True)
    lower = [e.measure for e, verdict in verdicts if "AFF" in e.measure and verdict == "holds"]
    editors = [measure.partition(", ")[2].partition(":")[0] for measure in lower]
    whose = " and ".join(editors) or "no editor"
    finding = f"After {ticks[-1]} edits APP lowers the forgetting of {whose}"
    return _told(drawn, finding, stored, metrics.values())


@figure(
    "04_said",
    title="AFF and ANF against what the model generates",
    of="ablations",
    main=MAIN_SAID,
    when=lambda run: (
        "said before" in run.tables
        and any(f"said by {name}" in run.tables for name in variants_of(run))
    ),
)
def said_scatter(run: Run) -> Figure:
    """AFF and ANF of each record against forgetting and noise in what is generated, with Spearman's ρ.

    A column a method, since methods edit the same records. Records at one place are one larger mark.
    """
    use_style()
    stored = studies_of(run)
    beside = said_beside_factors(stored)
    pairs = {"AFF_hard": "share_forgetting", "ANF_hard": "share_noise"}
    methods = list(dict.fromkeys(map(str, beside["method"])))
    size = (1.5 * len(methods) + 1.2, 4.2)
    drawn, panels = plt.subplots(
        2, len(methods), figsize=size, sharex=True, sharey=True, squeeze=False
    )
    spans = []
    for row, (factor, measure) in zip(panels, pairs.items(), strict=True):
        known = []
        for axes, method in zip(row, methods, strict=True):
            table = beside.loc[beside["method"] == method, [factor, measure]].dropna()
            places = (100 * table).round().value_counts().reset_index()
            look: dict[str, Any] = {"color": method_colour(method), "alpha": 0.8, "linewidth": 0.6}
            axes.scatter(
                places[factor], places[measure], s=16 * places["count"], edgecolor="black", **look
            )
            rho, _, n = rank_correlation(table[factor], table[measure])
            known += [] if np.isnan(rho) else [rho]
            words = "undefined" if np.isnan(rho) else f"{rho:.2f}"
            axes.set_title(f"{method_label(method)}\nρ = {words}, n = {n}", fontsize=8)
            axes.set_xlabel(f"{NAMES[factor]} [%]")
        row[0].set_ylabel(f"{measure.replace('_', ' ')} [%]")
        ends = dict.fromkeys(f"{rho:.2f}" for rho in (min(known), max(known))) if known else ("?",)
        spans.append(f"{factor.partition('_')[0]} and what is said: ρ {' to '.join(ends)}")
    panels[0, 0].set(xlim=(-9, 109), ylim=(-9, 109))
    caption = stored.described(*stored.said.values())
    note = f"{caption}\nAt the edit prompt; a mark's area counts the records at its place"
    return told(drawn, "; ".join(spans), note)


def _line(
    axes: Axes, places: np.ndarray, tables: Iterable[pd.DataFrame], metric: str, **look: Any
) -> None:
    """Means of a metric joined by a line, with 95 % intervals."""
    found = [metric_interval(metric, table[metric]) for table in tables]
    marked(axes, places, rows_of(found), **look)


def _shown(stored: Studies, variants: Sequence[Variant]) -> dict[Variant, pd.DataFrame]:
    """Metrics of those of the variants that are stored, on the records all of them have."""
    names = [str(variant) for variant in variants]
    scores = {name: stored.scores[name] for name in names if name in stored.scores}
    return finished(variant_metrics(scores), variants)


def _held(tested: Sequence[Evidence], *parts: str) -> str:
    """How many of the tests with these parts hold, all of them corrected for: ``3 of 4``."""
    verdicts = [
        verdict
        for evidence, verdict in zip(tested, corrected_verdicts(tested), strict=True)
        if all(part in evidence.measure for part in parts)
    ]
    return f"{verdicts.count('holds')} of {len(verdicts)}"


def _told(
    drawn: Figure,
    finding: str,
    stored: Studies,
    tables: Iterable[pd.DataFrame],
    *,
    more: str = "",
    below: str = "",
) -> Figure:
    """The figure with its finding, and how many records are behind its means: those with AFF."""
    shown = list(tables)
    counts = sorted({int(table["AFF_hard"].notna().sum()) for table in shown})
    means = f"Means over n = {', '.join(map(str, counts))} records, 95 % intervals"
    return told(drawn, finding, f"{stored.described(*shown)}{more}\n{means}{below}")
