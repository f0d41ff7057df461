"""ThinkEdit's figures, each drawn from the stored runs of all models together, the paper's next to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.editing.editors import method_label
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.style import (
    PALETTE,
    WHISKERS,
    captioned,
    marked,
    method_colour,
    method_hatch,
    method_line,
    method_mark,
    plain,
    told,
    use_style,
)
from helpers.results.text import INCONCLUSIVE
from helpers.thinkedit import metrics, tables
from helpers.thinkedit.evaluation import (
    Evaluation,
    caption_of,
    evaluate,
    is_recalled,
    split_app,
)

MAIN = "smollm2-135m"
_BARS = "; bars: 95 % intervals over edits"
_STEPS = ["1", "2", "3", "4", "5"]
_ALL, _LONG = slice(1, None), slice(3, None)  # of the counts overall and by length
_BETTER = {"IFR": "← better", "CKP": "better →"}
_OUTSIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
# Made-up numbers for readers who meet the measures for the first time: probabilities of each step
# before and after the edit, by chain; of each fact about other subjects.
CHAINS = {"1 step": ((0.9, 0.09),), "2 steps": ((0.8, 0.2), (0.5, 0.5))}
FACTS = {"fact 1": (0.6, 0.6), "fact 2": (0.5, 0.4), "fact 3": (0.8, 0.48)}


def _made(run: Run, *ends: str) -> bool:
    """Whether it has exact scores of methods and modes whose words end in each of these."""
    parts = [part for part in run.tables if part.startswith("exact: ")]
    return all(any(part.endswith(end) for part in parts) for end in ends)


_stored = partial(figure, of="thinkedit", needs=("exact", "chains"), together=True)
_exact = partial(
    _stored, main=MAIN, when=lambda run: not is_recalled(run) and _made(run, ", sequential")
)
_own = partial(_stored, main=f"{MAIN}_recalled-{MAIN}")


def _plain(runs: Sequence[Run]) -> Evaluation:
    """Exact metrics of the methods without APP."""
    return _split(runs)[0]


def _split(runs: Sequence[Run]) -> tuple[Evaluation, Evaluation]:
    rule = metrics.DEFAULT if all(map(is_recalled, runs)) else metrics.BY_RANK
    return split_app(evaluate(tuple(runs), rule=rule))


def _caption(runs: Sequence[Run], mode: str) -> str:
    return caption_of(runs, f"exact, {mode}")


def _panels(
    count: int, width: float, height: float, *, sharex: bool = False
) -> tuple[Figure, list[Axes]]:
    """Panels next to each other, ``width`` inches each."""
    use_style()
    drawn, axes = plt.subplots(
        1, count, figsize=(width * count, height), sharex=sharex, sharey=True, squeeze=False
    )
    return drawn, list(axes[0])


@_exact("06_ifr_by_length", title="IFR by chain length")
def lengths(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """IFR of chains of one to five steps (the paper's Figure 5)."""
    table = tables.length_table(_plain(runs), mode=mode, intervals=True)
    counts = table.drop_duplicates("model")["chains"].str.split("/").tolist()
    every, long = (sum(int(n) for row in counts for n in row[part]) for part in (_ALL, _LONG))
    finding = f"{long} of the {every} deducible chains have three steps or more"
    caption = f"{_caption(runs, mode)}; 95 % intervals, bootstrap over edits"
    return recovery_by_length(table, finding=finding, caption=caption)


@figure("06_paper_ifr_by_length", title="IFR by chain length, the paper's own numbers", alone=True)
def paper_lengths() -> Figure:
    """The same from the paper."""
    table = tables.paper_lengths()
    more = int((table["3"] > table["1"]).sum())
    finding = f"In {more} of {len(table)} rows, chains of three steps keep more than those of one"
    caption = "the paper's numbers (Table 10), not ours; it prints neither intervals nor numbers of chains"
    return recovery_by_length(table, finding=finding, caption=caption)


def recovery_by_length(lengths: pd.DataFrame, *, finding: str, caption: str) -> Figure:
    """IFR of chains of 1 to 5 steps, one panel per model, on one axis for the paper's numbers and ours;
    with intervals and numbers of chains where the table has them.
    """
    models = lengths["model"].unique()
    drawn, panels = _panels(len(models), 3.6, 3.4)
    for axes, model in zip(panels, models, strict=True):
        mine = lengths[lengths["model"] == model]
        for place, (_, row) in enumerate(mine.iterrows()):
            aside = np.arange(len(_STEPS)) + 0.1 * (place - (len(mine) - 1) / 2)
            look = method_line(row["method"]) | {"elinewidth": 0.8, "capsize": 2, "linewidth": 0.9}
            ends = np.hstack([_sides(row, step) for step in _STEPS]) if "1 low" in row else None
            axes.errorbar(aside, row[_STEPS].to_numpy(float), yerr=ends, **look)
        counts = mine["chains"].iloc[0].split("/")[1:] if "chains" in mine else [""] * len(_STEPS)
        names = [f"{step}\n{n}" if n else step for step, n in zip(_STEPS, counts, strict=True)]
        axes.set_xticks(range(len(_STEPS)), names)
        axes.set(title=model, xlabel="steps of the chain" + "\nn of deducible chains" * any(counts))
        axes.set_yscale("symlog", linthresh=1, linscale=2)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1, 10, 100], ["0", "", "0.5", "", "1", "10", "100"])
        axes.set_ylim(-0.05, 150)
        axes.axhline(1, color="0.4", linewidth=0.8)
    panels[0].set_ylabel("IFR (lower: less deducible)")
    panels[-1].legend(**_OUTSIDE)
    return told(drawn, finding, caption)


@_own(
    "06_definition_2",
    title="Deep edits: no longer chain is left (Definition 2)",
    when=lambda run: is_recalled(run) and _made(run, ", independent"),
)
def definition_2(runs: Sequence[Run], *, mode: str = "independent") -> Figure:
    """Share of edits after which no chain of two or more steps is fully known."""
    table = tables.deep_table(_plain(runs), mode=mode)
    deep = tables.DEEP
    fewest = table.loc[table.groupby("model")[deep].idxmin()]
    named = [
        f"{method_label(r['method'])} on {r['model']} ({r[deep]:.0%})" for _, r in fewest.iterrows()
    ]
    counts = (f"{model} {n}" for model, n in table.groupby("model")["edits"].max().items())
    finding = f"Deep edits are fewest with {' and '.join(named)}"
    caption = (
        f"{_caption(runs, mode)}\nDeep: no chain of two or more steps is fully known after the edit;"
        f" edits with such a chain before: {', '.join(counts)}"
    )
    return _bars(table, deep, "share of deep edits", finding, caption)


@_exact("06_ckp", title="CKP by method")
def preservation(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """CKP of each method with its interval (the paper's Figure 6)."""
    table = tables.technique_table(_plain(runs), mode=mode)
    apart = (table["CKP low"] > 1) | (table["CKP high"] < 1)
    finding = f"{apart.sum()} of {len(apart)} intervals exclude 1, a context unchanged"
    return _bars(table, "CKP", "CKP (1: context kept)", finding, _caption(runs, mode))


def _bars(table: pd.DataFrame, measure: str, label: str, finding: str, caption: str) -> Figure:
    use_style()
    wide, low, high = (
        table.pivot(index="model", columns="method", values=name)
        for name in (measure, f"{measure} low", f"{measure} high")
    )
    methods = list(table["method"].drop_duplicates())
    drawn, axes = plt.subplots(figsize=(1.6 + 2.2 * len(wide), 3.0))
    width = 0.8 / len(methods)
    places = np.arange(len(wide))
    for index, method in enumerate(methods):
        axes.bar(
            places + index * width,
            wide[method],
            width,
            label=method_label(method),
            color=method_colour(method),
            hatch=method_hatch(method),
            edgecolor="white",
            yerr=[wide[method] - low[method], high[method] - wide[method]],
            error_kw=WHISKERS,
        )
    axes.set_xticks(places + 0.4 - width / 2, wide.index)
    axes.axhline(1, color="0.4", linewidth=0.8)
    axes.set_ylabel(label)
    axes.legend(ncols=1, **_OUTSIDE)
    return told(drawn, finding, f"{caption}{_BARS}")


@_exact("06_ifr_against_ckp", title="IFR against CKP")
def trade_off(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """How much of the old fact is left, against how much of the context (the paper's Figure 7)."""
    found = _plain(runs)
    tests = tables.difference_table(tables.against_method(found, "memit", mode=mode))
    left = tests[tests["Holm"] != INCONCLUSIVE]
    rows = left[["model", "method", "measure", "Holm"]].itertuples(index=False)
    parts = [f"Differences from MEMIT left after correction: {len(left)} of {len(tests)}"]
    parts += [f"{method_label(name)} has {how} {what} ({model})" for model, name, what, how in rows]
    table = tables.technique_table(found, mode=mode)
    return _against(table, finding="; ".join(parts), caption=_caption(runs, mode))


@figure(
    "06_recalled_methods",
    title="IFR against CKP on what a model recalls",
    of="thinkedit",
    needs=("exact", "chains"),
    main=f"{MAIN}_recalled-{MAIN}",
    when=lambda run: is_recalled(run) and _made(run, ", independent", ", sequential"),
)
def recalled_methods(run: Run) -> Figure:
    """Every method, each edit alone and all as a sequence."""
    found = evaluate((run,))
    modes = {"independent": "each edit alone", "sequential": "a sequence"}
    parts = [
        tables.technique_table(found, mode=m).assign(model=words) for m, words in modes.items()
    ]
    pairs = tables.against_mode(found, found, mode="sequential", other_mode="independent")
    # PRUNE does nothing to updates this small: it is MEMIT, and counted once.
    changes = tables.changes(pairs).query("measure == 'CKP' and method != 'prune'")
    less = int((changes["verdict"] == "less").sum())
    finding = f"In a sequence {less} of {len(changes)} methods keep less of the context than alone"
    caption = _caption([run], "edits that the model recalls")
    return _against(pd.concat(parts), finding=finding, caption=caption)


def _against(techniques: pd.DataFrame, *, finding: str, caption: str) -> Figure:
    """IFR against CKP with 95 % intervals, one panel per model; the ideal is the upper left."""
    models = techniques["model"].unique()
    drawn, panels = _panels(len(models), 2.9 + 1.8 / len(models), 3.1, sharex=True)
    marks: dict[str, Any] = {}  # not every method is in every panel
    for axes, model in zip(panels, models, strict=True):
        rows = techniques[techniques["model"] == model].set_index("method")
        for method, row in rows.iterrows():
            look = method_mark(str(method)) | {"markersize": method_line(str(method))["markersize"]}
            axes.plot(row["IFR"], row["CKP"], **look)
            axes.errorbar(
                row["IFR"],
                row["CKP"],
                xerr=_sides(row, "IFR"),
                yerr=_sides(row, "CKP"),
                fmt="none",
                color=method_colour(str(method)),
                linewidth=0.8,
                alpha=0.6,
                capsize=2,
                zorder=1,
            )
        marks |= {str(line.get_label()): line for line in axes.get_legend_handles_labels()[0]}
        counts = f"{rows['chains'].max()} chains of {rows['edits'].max()} edits"
        axes.set_title(f"{plain(model)}\nIFR over {counts}", fontsize=9)
        axes.set_xlabel("IFR (lower is better)")
    # A tenth of the scale at least: a hundredth of CKP should not look like a cliff.
    low = min(0.9, techniques["CKP"].min(), techniques["CKP low"].min())
    high = max(1.0, techniques["CKP"].max(), techniques["CKP high"].max())
    right = max(techniques["IFR"].max(), techniques["IFR high"].max())
    panels[0].set(
        ylabel="CKP (higher is better)",
        ylim=(low - 0.06 * (high - low), high + 0.06 * (high - low)),
        xlim=(-0.03 * right, 1.05 * right),  # a mark at zero is whole
    )
    panels[-1].legend(marks.values(), marks, **_OUTSIDE)
    return told(drawn, finding, f"{caption}{_BARS}")


@_exact("06_active_chains", title="Chains deducible before and active after")
def chains(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """Chains by length: how many were deducible before editing, and are active after each method.

    All chains, many more, are a number under each length, so that the axis can be even.
    """
    counts = tables.chain_counts(_plain(runs), mode=mode)
    models = counts["model"].unique()
    drawn, panels = _panels(len(models), 3.8, 3.2)
    totals = []
    for axes, model in zip(panels, models, strict=True):
        mine = counts[counts["model"] == model]
        first = mine.drop_duplicates("length")
        totals.append((first["deducible"].sum(), first["chains"].sum()))
        axes.bar(first["length"], first["deducible"], color="0.85", label="deducible before")
        methods = list(mine["method"].drop_duplicates())
        for place, method in enumerate(methods):
            part = mine[mine["method"] == method]
            # Side by side, since methods often leave the same number.
            aside = 0.7 * ((place + 0.5) / len(methods) - 0.5)
            axes.plot(part["length"] + aside, part["active"], **method_mark(str(method)))
        names = [f"{row.length}\nof {row.chains}" for row in first.itertuples()]
        axes.set_xticks(first["length"], names)
        axes.set(title=model, xlabel="steps of the chain, of all chains")
        axes.locator_params(axis="y", integer=True)
    panels[0].set_ylim(bottom=-0.04 * max(1, counts["deducible"].max(), counts["active"].max()))
    panels[0].set_ylabel("chains")
    panels[-1].legend(title="active after the edit,\nby method", **_OUTSIDE)
    known = " and ".join(str(deducible) for deducible, _ in totals)
    finding = (
        f"{known} of {max(total for _, total in totals)} chains were deducible before any edit"
    )
    return told(drawn, finding, _caption(runs, mode))


@_own(
    "06_deep_edit",
    title="Deep edits: change of IFR and CKP",
    when=lambda run: is_recalled(run) and _made(run, ", deep"),
)
def deep(runs: Sequence[Run]) -> Figure:
    """What deep edits change against plain independent ones, on the same edits."""
    found = _plain(runs)
    pairs = tables.against_mode(found, found, mode="deep", other_mode="independent")
    return _changed(runs, pairs, mode="independent", what="A deep edit")


@_own(
    "06_app",
    title="Edits with APP: change of IFR and CKP",
    when=lambda run: is_recalled(run) and _made(run, "+app, independent"),
)
def with_app(runs: Sequence[Run], *, mode: str = "independent") -> Figure:
    """What APP changes, on the same edits."""
    plain, changed = _split(runs)
    pairs = tables.against_mode(changed, plain, mode=mode, other_mode=mode)
    return _changed(runs, pairs, mode=mode, what="APP")


def _changed(runs: Sequence[Run], pairs: tables.Pairs, *, mode: str, what: str) -> Figure:
    """Paired differences, hollow where chance explains them, and the values they lead from and to."""
    changes = tables.ordered(tables.changes(pairs))
    rows = changes[["model", "method"]].drop_duplicates().to_numpy()[::-1]
    several = len({model for model, _ in rows}) > 1
    drawn, panels = _panels(2, 3.6, 0.36 * len(rows) + 1.6)
    for axes, (measure, better) in zip(panels, _BETTER.items(), strict=True):
        own = changes[changes["measure"] == measure].set_index(["model", "method"])
        for place, key in enumerate(map(tuple, rows)):
            if key not in own.index:
                continue
            row = own.loc[[key]]
            look = method_mark(key[1]) | {"label": None, "elinewidth": 0.9}
            sure = row["verdict"].item() != INCONCLUSIVE
            look["fillstyle"] = "full" if sure else "none"
            marked(axes, [place], row, across=True, **look)
            values = (row[name].item() for name in ("before", "after", "edits"))
            words = "{:.2f} → {:.2f}, n = {}".format(*values)
            axes.annotate(words, (row["mean"].item(), place + 0.18), ha="center", fontsize=7)
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.set_xlabel(f"change of {measure} ({better})")
        axes.locator_params(axis="x", nbins=5)
        axes.grid(axis="y", visible=False)
    names = [method_label(method) + f"\n{model}" * several for model, method in rows]
    panels[0].set_yticks(range(len(rows)), names)
    panels[0].set_ylim(-0.5, len(rows) - 0.3)
    shown = [run for run in runs if run.about.source["model"] in set(changes["model"])]
    sure = int((changes["verdict"] != INCONCLUSIVE).sum())
    finding = f"{what}: {sure} of {len(changes)} changes are more than chance explains"
    how = "Paired on n edits, 95 % intervals; filled: p < 0.05 by flipping signs"
    return told(drawn, finding, f"{_caption(shown, mode)}\n{how}")


@figure("06_reading", title="ThinkEdit's measures in one picture each", alone=True)
def reading() -> Figure:
    """What is left of made-up chains to the old fact, and of the facts around it, a panel each."""
    use_style()
    found = worked()
    drawn, (recovery, preserved) = plt.subplots(1, 2, figsize=(7.2, 2.0), sharex=True)
    _moved(recovery, {name: tuple(np.prod(chain, axis=0)) for name, chain in CHAINS.items()})
    title = f"IFR = {found['IFR']:.2f}: little of the chains\nto the old fact is left"
    recovery.set_title(title, fontsize=9)
    _moved(preserved, FACTS)
    title = f"CKP = {found['CKP']:.2f}: most facts about\nother subjects are left"
    preserved.set_title(title, fontsize=9)
    return captioned(drawn, "Made-up numbers. ○ before the edit, ● after; the ratio at the right")


def worked() -> dict[str, float]:
    """IFR and CKP of the made-up chains and facts; each fact is a chain of its own to CKP."""
    places = [
        (True, n, step) for n, c in enumerate(CHAINS.values()) for step in range(1, len(c) + 1)
    ]
    places += [(False, len(CHAINS) + n, 1) for n in range(len(FACTS))]
    index = pd.DataFrame(places, columns=["own", "chain", "step"]).assign(case_id=1)
    index["item"] = index.index
    values = [*(step for chain in CHAINS.values() for step in chain), *FACTS.values()]
    facts = pd.DataFrame(values, columns=["before", "after"])
    known = {"known_before": True, "known_after": True, "new_before": 0.0, "new_after": 0.0}
    facts = facts.assign(case_id=1, item=facts.index, **known)
    folded = metrics.chain_table(facts, index[index["own"]])
    terms = metrics.terms_of(facts, folded, index)
    return {measure: metrics.value_of(terms, measure) for measure in tables.MEASURES}


def _moved(axes: Axes, values: Mapping[str, tuple[float, ...]]) -> None:
    rows = np.arange(len(values))[::-1]
    for row, (before, after) in zip(rows, values.values(), strict=True):
        axes.plot([before, after], [row, row], color="0.7")
        axes.plot(before, row, "o", mfc="none", color=PALETTE[0])
        axes.plot(after, row, "o", color=PALETTE[0])
        axes.text(1.02, row, f"× {after / before:.2f}", va="center", fontsize=8)
    axes.set(xlim=(0, 1.15), ylim=(-0.6, len(values) - 0.4), xlabel="probability")
    axes.set_yticks(rows, list(values))
    axes.grid(axis="y", visible=False)


def _sides(row: pd.Series, name: str) -> list[list[float]]:
    """What lies below and above a value, as matplotlib wants it; nothing where there is no interval."""
    ends = row[name] - row[f"{name} low"], row[f"{name} high"] - row[name]
    return [[max(0.0, float(end)) if end == end else 0.0] for end in ends]
