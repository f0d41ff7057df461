"""ThinkEdit's published figures, each drawn from the stored runs of all models together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from helpers.results.archive import Run
from helpers.results.figure import figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from helpers.thinkedit.report_tables import Evaluation

MAIN = "smollm2-135m"


def _given(run: Run) -> bool:
    """Whether the run's edits were given, and not taken from what the model recalls."""
    return not str(run.about.source.get("layout", "")).startswith("recalled-")


@figure("06_reading", title="ThinkEdit's measures in one picture each", alone=True)
def reading() -> Figure:
    """Made-up numbers, for readers who meet the measures for the first time."""
    from helpers.thinkedit.reading import pictures

    return pictures()


def _made(run: Run, end: str) -> bool:
    """Whether exact scores of some method and mode whose words end so are stored."""
    made = any(key.startswith("exact: ") and end in key for key in run.about.settings)
    return made and _given(run)


_stored = partial(figure, of="thinkedit", main=MAIN, together=True, when=_given)
_exact = partial(_stored, needs=("exact", "chains"))


@_exact("06_ifr_by_length", title="IFR by chain length")
def lengths(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """IFR of chains of one to five steps."""
    from helpers.thinkedit import figures, technique_tables

    table = technique_tables.length_table(_plain(runs, mode), mode=mode)
    return figures.recovery_by_length(table, caption=_caption(runs, mode))


@figure("06_paper_ifr_by_length", title="IFR by chain length, the paper's own numbers", alone=True)
def paper_lengths() -> Figure:
    """The same from the paper."""
    from helpers.thinkedit import figures, report_tables

    return figures.recovery_by_length(report_tables.paper_lengths(), caption=figures.THE_PAPER)


@figure("06_recalled", title="What a model recalls: links and chains, stage by stage", alone=True)
def recalled() -> Figure:
    """The packaged graph of the embedded model."""
    from helpers.thinkedit import recalled_tables

    return recalled_tables.funnel(MAIN)


@_exact("06_ckp", title="CKP by method")
def preservation(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """CKP of each method with its interval."""
    from helpers.thinkedit import figures, technique_tables

    table = technique_tables.technique_table(_plain(runs, mode), mode=mode)
    return figures.preservation_bars(table, caption=_caption(runs, mode))


@_exact("06_ifr_against_ckp", title="IFR against CKP")
def trade_off(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """How much of the old fact is left, against how much of the context."""
    from helpers.thinkedit import figures, technique_tables

    table = technique_tables.technique_table(_plain(runs, mode), mode=mode)
    return figures.recovery_against_preservation(table, caption=_caption(runs, mode))


@_exact("06_active_chains", title="Chains deducible before and active after")
def chains(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """Chains by length: all, deducible before, active after."""
    from helpers.thinkedit import figures, report_tables

    counts = report_tables.chain_counts(_plain(runs, mode), mode=mode)
    return figures.chain_counts_bars(counts, caption=_caption(runs, mode))


@_exact("06_deep_edit", title="Deep edits: IFR against CKP", when=partial(_made, end=", deep"))
def deep(runs: Sequence[Run]) -> Figure:
    """IFR against CKP, from plain independent edits to deep ones, where there are both."""
    from helpers.thinkedit import technique_tables

    plain, changed = (
        technique_tables.technique_table(_plain(runs, mode, by_mean=True), mode=mode)
        for mode in ("independent", "deep")
    )
    about = "exact by geometric mean, independent"
    return _from_to(runs, plain, changed, about=about, end="deep edit")


@_exact("06_app", title="Edits with APP: IFR against CKP", when=partial(_made, end="+app, "))
def with_app(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """IFR against CKP, from edits without APP to edits with it, where there are both."""
    from helpers.thinkedit import report_tables, technique_tables
    from helpers.thinkedit.known import BY_MEAN
    from helpers.thinkedit.stored_scores import evaluation

    found = evaluation(tuple(runs), modes=(mode,), rule=BY_MEAN)
    plain, changed = (
        technique_tables.technique_table(part, mode=mode) for part in report_tables.split_app(found)
    )
    about = f"exact by geometric mean, {mode}"
    return _from_to(runs, plain, changed, about=about, end="with APP")


@_stored(
    "06_sequence",
    title="Edits of a sequence, right after and at the end",
    needs=("along", "exact"),
)
def sequence(runs: Sequence[Run]) -> Figure:
    """How the edits of a sequence fare, a row of panels per model; methods without APP."""
    from helpers.thinkedit import figures
    from helpers.thinkedit.side_tables import sequence_leads
    from helpers.thinkedit.stored_scores import scores_of

    tables = (scores_of(runs, kind) for kind in ("along", "exact"))
    plain = (table[~table["method"].str.endswith("+app")] for table in tables)
    return figures.sequence_lines(sequence_leads(*plain), caption=_caption(runs, "sequential"))


@_stored("06_sampled", title="IFR against CKP by sampling", needs=("sampled", "chains"))
def sampled(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """IFR against CKP, both from sampled responses."""
    from helpers.thinkedit import figures, technique_tables
    from helpers.thinkedit.stored_scores import evaluation

    found = evaluation(tuple(runs), estimator="sampled", modes=(mode,))
    table = technique_tables.technique_table(found, mode=mode)
    caption = _caption(runs, mode, kind="sampled")
    return figures.recovery_against_preservation(table, caption=caption)


def _plain(runs: Sequence[Run], mode: str, by_mean: bool = False) -> Evaluation:
    """Exact metrics of the methods without APP."""
    from helpers.thinkedit.known import BY_MEAN, DEFAULT
    from helpers.thinkedit.report_tables import split_app
    from helpers.thinkedit.stored_scores import evaluation

    rule = BY_MEAN if by_mean else DEFAULT
    return split_app(evaluation(tuple(runs), modes=(mode,), rule=rule))[0]


def _caption(runs: Sequence[Run], mode: str, *, kind: str = "exact") -> str:
    from helpers.thinkedit.stored_scores import caption, scores_of

    return caption(scores_of(runs, kind), f"{kind}, {mode}")


def _from_to(
    runs: Sequence[Run], plain: pd.DataFrame, changed: pd.DataFrame, *, about: str, end: str
) -> Figure:
    """Arrows, for the models and methods that are in both tables."""
    from helpers.thinkedit import figures, stored_scores

    keys = ["model", "method"]
    both = plain.merge(changed[keys], on=keys)
    changed = changed.merge(plain[keys], on=keys)
    shown = [run for run in runs if run.about.source["model"] in set(both["model"])]
    caption = stored_scores.caption(stored_scores.scores_of(shown, "exact"), about)
    return figures.recovery_against_preservation(both, changed, caption=caption, end=end)
