"""Figures of PEAK's construction: what is lost at each step, list sizes, what a model knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from helpers.results.style import HATCHES, MARKERS, PALETTE, plain, share_below, told, use_style


def construction_funnel(
    funnels: Mapping[str, Sequence[tuple[str, int]]], *, caption: str = ""
) -> Figure:
    """Facts left after each step, one panel per set of records, on a logarithmic scale.

    Args:
        funnels: for each set its (step, facts left), in order.
    """
    use_style()
    rows = max(len(steps) for steps in funnels.values())
    figure, panels = plt.subplots(
        1, len(funnels), figsize=(7.2, 0.32 * rows + 1.1), sharex=True, squeeze=False
    )
    for index, (name, steps) in enumerate(funnels.items()):
        axes = panels[0, index]
        places = np.arange(len(steps))[::-1]
        counts = [count for _, count in steps]
        axes.barh(
            places,
            counts,
            color=PALETTE[index],
            hatch=HATCHES[index],
            edgecolor="black",
            linewidth=0.5,
        )
        for place, count in zip(places, counts, strict=True):
            axes.text(max(count, 1) * 1.15, place, f"{count:,}", va="center", fontsize=7)
        axes.set_yticks(places, [step for step, _ in steps], fontsize=7)
        axes.set_xscale("log")
        axes.set_xlim(1, 12 * max(count for steps in funnels.values() for _, count in steps))
        axes.grid(axis="y", visible=False)
        axes.set_title(name, loc="left")
    become = [
        f"{steps[-1][1]:,} of {steps[0][1]:,} facts become {name} records"
        for name, steps in funnels.items()
    ]
    return told(figure, ", ".join(become), f"{caption}\nFacts left after each step, log scale")


def list_sizes(sizes: Mapping[str, pd.DataFrame], *, caption: str = "") -> Figure:
    """Distribution of the number of correct and of hard false answers per record.

    Args:
        sizes: for each set a table with columns ``correct`` and ``hard``, one row per record.
    """
    use_style()
    figure, panels = plt.subplots(1, 2, figsize=(7.2, 2.6), sharey=True)
    styles = ["-", "--", "-.", ":"]
    labels = {"correct": "correct answers O", "hard": "hard false answers $O_h$"}
    for axes, (column, label) in zip(panels, labels.items(), strict=True):
        for index, (name, table) in enumerate(sizes.items()):
            share_below(
                axes,
                table[column],
                label=f"{name} (n={len(table)})",
                color=PALETTE[index % len(PALETTE)],
                linestyle=styles[index % len(styles)],
            )
        axes.set_xlabel(f"{label} in a record")
        axes.set_xlim(left=0)
    panels[0].set_ylabel("share of records at or below")
    panels[0].legend(loc="upper left")
    medians = [f"{table['correct'].median():g} in {name}" for name, table in sizes.items()]
    finding = f"Correct answers in the median record: {', '.join(medians)}"
    return told(figure, finding, caption)


def known_by_relation(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """Share of correct answers that the model knows, per relation, with every record as a dot.

    Args:
        table: ``Filtered.table``; with a column ``name`` for the relation in words, if there is one.
    """
    use_style()
    shares = table.assign(share=100 * table["correct_kept"] / table["correct"])
    shares["name"] = shares["name"] if "name" in shares else shares["relation"]
    order = shares.groupby("name")["share"].mean().sort_values()
    figure, axes = plt.subplots(figsize=(7.2, 0.155 * len(order) + 1.1))
    places = {name: place for place, name in enumerate(order.index)}
    for index, (lost, label) in enumerate([(False, "record kept"), (True, "record filtered out")]):
        part = shares[(shares["step"] != "") == lost]
        axes.scatter(
            part["share"],
            part["name"].map(places),
            s=14,
            color=PALETTE[index],
            marker=MARKERS[index],
            alpha=0.55,
            linewidth=0,
            label=label,
        )
    axes.scatter(
        order.to_numpy(), range(len(order)), marker="|", s=60, color="black", label="mean", zorder=3
    )
    axes.set_yticks(range(len(order)), map(plain, order.index), fontsize=7)
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.set_xlabel("correct answers the model knows [%]")
    axes.grid(axis="x", visible=True)
    axes.legend(loc="lower right")
    fewer = int((order < 50).sum())
    finding = f"In {fewer} of {len(order)} relations the model knows less than half of the correct answers"
    note = f"{caption}\nOne dot a record, n = {len(shares)}; known: the filter keeps the answer"
    return told(figure, finding, note)
