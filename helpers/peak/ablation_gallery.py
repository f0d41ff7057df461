"""The ablations' published figures, each drawn from whatever studies of a run are stored."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from helpers.peak.stored_scores import Studies, states_of, studies_of, variants_of
from helpers.results.archive import Run
from helpers.results.figure import figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.figure import Figure

    from helpers.editing.editors import Variant
    from helpers.results.text import Evidence

# The runs notebook 04 shows; figures of others carry the run's name.
MAIN = "smollm2-135m_peak-cf"
MAIN_SAID = "smollm2-135m_peak-mini-cf"
_of_run = partial(figure, of="ablations", main=MAIN)


def editors_with(run: Run, field: str) -> list[str]:
    """Editors with APP and a variant in this field of it."""
    names = variants_of(run)
    editors = (name.partition("+")[0] for name in names if f"@{field}=" in name)
    return [editor for editor in dict.fromkeys(editors) if f"{editor}+app" in names]


def fairer_editors(run: Run) -> list[str]:
    """Editors that were given all answers as targets."""
    return list(dict.fromkeys(n.partition("+")[0] for n in variants_of(run) if "+all" in n))


def _per_editor(field: str) -> tuple[str, partial[list[str]]]:
    return "editor", partial(editors_with, field=field)


@_of_run("04_objectives", title="APP short of one objective", each=_per_editor("alpha"))
def objectives(run: Run, *, editor: str) -> Figure:
    """APP short of one objective."""
    from helpers.editing.editors import objectives
    from helpers.peak import ablation_pairs as figures

    stored = studies_of(run)
    shown = _metrics(stored, objectives(editor))
    scores = {v: _only(stored.scores[str(v)], table.index) for v, table in shown.items()}
    return figures.objectives_panels(shown, scores, caption=stored.described(*shown.values()))


@_of_run(
    "04_neighbours",
    title="More neighbours for APP",
    when=lambda run: bool(editors_with(run, "neighbours")),
)
def neighbours(run: Run) -> Figure:
    """The number of neighbours APP is given, for every editor studied."""
    from helpers.peak import ablation_figures as figures
    from helpers.peak.ablation_findings import neighbour_findings
    from helpers.peak.ablation_tables import variant_metrics, with_field

    stored, editors = studies_of(run), editors_with(run, "neighbours")
    metrics = variant_metrics(stored.scores)
    shown = {v: t for e in editors for v, t in with_field(metrics, e, "neighbours").items()}
    finding = (
        f"More neighbours protect more: {_held(neighbour_findings(metrics, editors))} tests hold"
    )
    caption = stored.described(*shown.values())
    return figures.neighbours_lines(shown, editors=editors, finding=finding, caption=caption)


@_of_run(
    "04_fairer",
    title="Fairer baselines",
    when=lambda run: bool(fairer_editors(run)),
)
def fairer(run: Run) -> Figure:
    """Plain, all answers as targets, APP."""
    from helpers.editing.editors import fairer
    from helpers.peak import ablation_figures as figures
    from helpers.peak.ablation_findings import fairer_findings

    stored, editors = studies_of(run), fairer_editors(run)
    shown = _metrics(stored, [v for e in editors for v in fairer(e)])
    noisy = _held(fairer_findings(shown, editors), "ANF", "(sum)")
    finding = f"Targets weighted as a sum leave more noise than APP with {noisy} editors"
    return figures.fairer_bars(shown, finding=finding, caption=stored.described(*shown.values()))


@_of_run(
    "04_editors",
    title="Every editor with and without APP",
    when=lambda run: bool(variants_of(run)),
)
def every_editor(run: Run) -> Figure:
    """Every editor alone and with APP."""
    from helpers.editing.editors import Variant
    from helpers.peak.ablation_figures import means_over
    from helpers.peak.ablation_findings import app_findings
    from helpers.peak.ablation_tables import by_label
    from helpers.peak.overview import additivity_pairs

    stored = studies_of(run)
    plain = [name for name in variants_of(run) if "+" not in name]
    shown = _metrics(stored, [Variant(name + suffix) for name in plain for suffix in ("", "+app")])
    tested = app_findings(shown, [name for name in plain if name != "prune"])  # equals MEMIT here
    noise, forgetting = (_held(tested, name) for name in ("ANF", "AFF"))
    finding = f"APP lowers the noise of {noise} editors, the forgetting of {forgetting}"
    caption = f"{stored.described(*shown.values())}\n{means_over(shown.values())}"
    return additivity_pairs(by_label(shown), finding=finding, caption=caption)


@_of_run("04_sensitivity", title="APP's coefficients", each=_per_editor("margin"))
def sensitivity(run: Run, *, editor: str) -> Figure:
    """One of APP's coefficients changed alone."""
    from helpers.editing.editors import OBJECTIVES, Variant, method_label
    from helpers.peak import ablation_figures as figures
    from helpers.peak.ablation_tables import variant_metrics, with_field

    stored = studies_of(run)
    metrics, margin = variant_metrics(stored.scores), stored.margin(editor)
    shown: dict[Variant, pd.DataFrame] = {}
    for field in (*OBJECTIVES, "margin"):
        shown |= with_field(metrics, editor, field, margin=margin)
    whole = metrics[Variant(f"{editor}+app")]
    moved = [
        abs(100 * (table[metric] - whole[metric]).mean())
        for variant, table in shown.items()
        for metric in figures.FACTORS
        if variant.value
    ]
    most = f"moves AFF and ANF by {max(moved):.0f} points at most"
    finding = f"{method_label(editor)}+APP: half or twice one value {most}"
    how = {"finding": finding, "caption": stored.described(*shown.values())}
    return figures.sensitivity_panels(shown, editor=editor, margin=margin, **how)


@_of_run(
    "04_sequences",
    title="Sequential edits",
    when=lambda run: any(" after " in name for name in run.tables),
)
def sequences(run: Run) -> Figure:
    """What is left of all edited records after n sequential edits."""
    from helpers.editing.editors import Variant
    from helpers.peak import ablation_figures as figures
    from helpers.peak.ablation_findings import app_findings
    from helpers.peak.ablation_tables import sequence_metrics
    from helpers.results.text import corrected_verdicts

    stored = studies_of(run)
    metrics = sequence_metrics(stored)
    last = max(n for _, n in metrics)
    tested = app_findings(
        {Variant(method): table for (method, n), table in metrics.items() if n == last},
        [method for method, n in metrics if n == last and "+" not in method],
    )
    verdicts = zip(tested, corrected_verdicts(tested), strict=True)
    lower = [e.measure for e, verdict in verdicts if "AFF" in e.measure and verdict == "holds"]
    editors = [measure.partition(", ")[2].partition(":")[0] for measure in lower]
    whose = " and ".join(editors) or "no editor"
    finding = f"After {last} edits APP lowers the forgetting of {whose}"
    caption = stored.described(*stored.sequences.values())
    return figures.sequence_lines(metrics, finding=finding, caption=caption)


@figure(
    "04_said",
    title="AFF and ANF against what the model generates",
    of="ablations",
    main=MAIN_SAID,
    when=lambda run: "before" in states_of(run) and bool({*states_of(run)} & {*variants_of(run)}),
)
def said(run: Run) -> Figure:
    """AFF and ANF against what the edited model generates."""
    from helpers.peak import ablation_pairs as figures
    from helpers.peak.ablation_tables import said_beside_factors

    stored = studies_of(run)
    caption = stored.described(*stored.said.values())
    return figures.said_scatter(said_beside_factors(stored), caption=caption)


def _metrics(stored: Studies, variants: list[Variant]) -> dict[Variant, pd.DataFrame]:
    from helpers.peak.ablation_tables import finished, variant_metrics

    names = [str(variant) for variant in variants]
    scores = {name: stored.scores[name] for name in names if name in stored.scores}
    return finished(variant_metrics(scores), variants)


def _held(tested: Sequence[Evidence], *parts: str) -> str:
    """How many of the tests with these parts hold, all of them corrected for: ``3 of 4``."""
    from helpers.results.text import corrected_verdicts

    verdicts = [
        verdict
        for evidence, verdict in zip(tested, corrected_verdicts(tested), strict=True)
        if all(part in evidence.measure for part in parts)
    ]
    return f"{verdicts.count('holds')} of {len(verdicts)}"


def _only(scores: pd.DataFrame, case_ids: pd.Index) -> pd.DataFrame:
    return scores[scores["case_id"].isin(case_ids)]
