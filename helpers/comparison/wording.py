"""Is an edit too broad in its subject or in its wording? What it leaves of each kind of known fact.

An editor that recognises the edited subject changes other facts about it; one that recognises the edit's
wording changes facts about other subjects that are worded alike. Packaged graphs have the texts to tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.editing.editors import distinct, method_label
from helpers.records import comparable
from helpers.results.archive import Run, TableKey, archive
from helpers.results.figure import figure
from helpers.results.looks import method_line
from helpers.results.notes import ShownTable, with_note
from helpers.results.statistics import FEWEST, Estimate, fraction_interval
from helpers.results.style import with_caption
from helpers.results.text import footer, with_interval
from helpers.thinkedit import metrics
from helpers.thinkedit.knowgic import load_edited_graphs
from helpers.thinkedit.metrics import OWN
from helpers.thinkedit.modes import BEFORE
from helpers.thinkedit.tables import is_recalled, ratios_by_wording, terms_of_runs

# How a fact about another subject is worded, next to the edit's prompt.
AS_EDIT, SAME_END, OTHER_WORDS = "worded as the edit", "same last word", "other words"
MAIN_RUN = "smollm2-135m_recalled-smollm2-135m"
_ALONE = "independent"
_KINDS: dict[str, tuple[str, Literal["full", "none"]]] = {  # of facts in the figure: their marks
    OWN: ("o", "full"),
    "other subjects, the edit's last word": ("s", "full"),
    "other subjects, another last word": ("s", "none"),
}


def methods_alone(run: Run) -> list[str]:
    """Plain methods whose edits of a run were made alone, without those that are another by construction."""
    methods = [
        key.method
        for key in run.keys
        if key.kind == "exact" and key.mode == _ALONE and "+" not in key.method
    ]
    return list(distinct(methods))


def others_left(run: Run, method: str) -> pd.DataFrame:
    """What edits made alone leave of known facts about other subjects: ``words`` and ``left``, a row a fact.

    ``left`` is at most 1. The index, ``relation``, has the wording of the fact's edit.
    """
    edits = {edit.case_id: edit for edit in load_edited_graphs(run.about.source["layout"])}
    scores_before = run.tables[str(TableKey("exact", "none", BEFORE))]
    scores_after = run.tables[str(TableKey("exact", method, _ALONE))]
    known_facts = metrics.facts_table(scores_before, scores_after).query("known_before")
    rows = []
    for known_fact in known_facts.to_dict("records"):
        edit = edits[known_fact["case_id"]]
        fact = edit.facts[known_fact["item"]]
        if comparable(fact.subject) != comparable(edit.subject):
            left = min(1.0, known_fact["after"] / known_fact["before"])
            rows.append((_words_next_to(edit.prompt, fact.prompt), edit.prompt, left))
    return pd.DataFrame(rows, columns=["words", "relation", "left"]).set_index("relation")


def _words_next_to(edit_prompt: str, fact_prompt: str) -> str:
    if fact_prompt == edit_prompt:
        return AS_EDIT
    return SAME_END if fact_prompt.split()[-1] == edit_prompt.split()[-1] else OTHER_WORDS


def facts_by_wording_table(*runs: Run) -> ShownTable:
    """What each method leaves of facts about other subjects, by how they are worded next to the edit.

    Intervals are over the edits' wordings, or over facts where these are fewer than ``FEWEST``.
    """
    rows = []
    for run in runs:
        for method in methods_alone(run):
            row = {"model": run.about.source["model"], "method": method_label(method)}
            for words, left in others_left(run, method).groupby("words")["left"]:
                estimate = with_interval(fraction_interval(left))
                row[str(words)] = f"{estimate} ({len(left)}; {left.index.nunique()})"
            rows.append(row)
    note = (
        "part left of known facts about other subjects; in brackets the numbers of facts and of their edits'"
        f" wordings; 95 % intervals over wordings, or over facts where these are fewer than {FEWEST}"
    )
    columns = ["model", "method", AS_EDIT, SAME_END, OTHER_WORDS]
    return with_note(pd.DataFrame(rows, columns=columns), note)


def recalled_runs_of(model: str) -> list[Run]:
    """The stored runs of what a model recalls: of the main editors, and of further ones."""
    stored = archive("thinkedit")
    name = f"{model}_recalled-{model}"
    main_and_further = [stored.known(name), stored.known(f"{name}@editors")]
    return [run for run in main_and_further if run]


@figure(
    "09_wording",
    of="thinkedit",
    main=MAIN_RUN,
    needs=("exact", "chains"),
    together=True,
    when=lambda run: is_recalled(run) and len(recalled_runs_of(run.about.source["model"])) > 1,
)
def breadth(runs: Sequence[Run]) -> Figure:
    """What editors leave of the subject's other facts, and of other subjects' facts by their last word.

    A panel a model with further editors, each edit made alone. Intervals are over the edits' wordings, or
    over edits or facts where these are fewer than ``FEWEST``.
    """
    shown = {run.about.source["model"]: recalled_runs_of(run.about.source["model"]) for run in runs}
    left_by_model = {model: _left_by_method(stored_runs) for model, stored_runs in shown.items()}
    fig = plt.figure(figsize=(10.2, 4.8), layout="constrained")
    grid = fig.add_gridspec(2, len(shown), height_ratios=[20, 1])
    for column, (model, left_by_method) in enumerate(left_by_model.items()):
        axes = fig.add_subplot(grid[0, column])
        _draw_methods(axes, left_by_method)
        axes.set_title(model, fontsize=9)
        axes.set_xlabel("part left of the facts' probability", fontsize=8)
    handles = [
        plt.Line2D([], [], color="0.3", linestyle="", marker=marker, fillstyle=fill, label=kind)
        for kind, (marker, fill) in _KINDS.items()
    ]
    below = fig.add_subplot(grid[1, :])
    below.set_axis_off()
    below.legend(handles=handles, loc="center", ncols=len(_KINDS), fontsize=8, frameon=False)
    shown_runs = [run for stored_runs in shown.values() for run in stored_runs]
    counts = [
        of_kinds[OWN].n
        for left_by_method in left_by_model.values()
        for of_kinds in left_by_method.values()
    ]
    numbers = f"n = {min(counts)} to {max(counts)} edits made alone"
    notes = (f"95 % intervals over wordings ({FEWEST} or more) or facts", "MEND: undertrained")
    caption = footer(shown_runs, numbers, *notes, with_app=False)
    return with_caption(fig, _breadth_in_words(left_by_model), caption)


def _left_by_method(runs: Sequence[Run]) -> dict[str, dict[str, Estimate]]:
    """By method and kind of fact the mean part left, those that leave most of the subject's facts first."""
    left_by_method = {}
    for run in runs:
        terms = terms_of_runs((run,))
        own_terms = terms[(terms["measure"] == OWN) & (terms["mode"] == _ALONE)]
        for method in methods_alone(run):
            others = others_left(run, method)
            has_other_end = others["words"] == OTHER_WORDS
            own = ratios_by_wording(run, own_terms[own_terms["method"] == method])
            of_kinds = [own, others.loc[~has_other_end, "left"], others.loc[has_other_end, "left"]]
            left_by_method[method] = dict(
                zip(_KINDS, map(fraction_interval, of_kinds), strict=True)
            )
    by_own = sorted(left_by_method, key=lambda method: -left_by_method[method][OWN].mean)
    return {method: left_by_method[method] for method in by_own}


def _draw_methods(axes: Axes, left_by_method: dict[str, dict[str, Estimate]]) -> None:
    for row, (method, of_kinds) in enumerate(left_by_method.items()):
        colour = method_line(method)["color"]
        for place, (kind, left) in enumerate(of_kinds.items()):
            marker, fill = _KINDS[kind]
            height = row + 0.24 * (place - 1)
            axes.plot([left.low, left.high], [height, height], color=colour, linewidth=0.8)
            axes.plot(left.mean, height, color=colour, marker=marker, fillstyle=fill, markersize=5)
    axes.set_yticks(range(len(left_by_method)), [method_label(name) for name in left_by_method])
    axes.set_ylim(len(left_by_method) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.tick_params(axis="y", labelsize=8)


def _breadth_in_words(left_by_model: dict[str, dict[str, dict[str, Estimate]]]) -> str:
    """How many methods of the first model leave less than half, in the mean, of each kind of fact."""
    (model, left_by_method), *_ = left_by_model.items()
    own, same_end, _ = _KINDS
    losing_own, losing_alike = (
        {name for name, of_kinds in left_by_method.items() if of_kinds[kind].mean < 0.5}
        for kind in (own, same_end)
    )
    groups = [
        (losing_own - losing_alike, "most of the subject's other facts"),
        (losing_alike - losing_own, "most of other subjects' facts with the edit's last word"),
        (losing_own & losing_alike, "most of both"),
    ]
    losses = [
        f"{len(methods)} {'lose' if len(methods) > 1 else 'loses'} {facts}"
        for methods, facts in groups
        if methods
    ]
    return f"Of {len(left_by_method)} editors on {model}, in the mean, {', '.join(losses)}"
