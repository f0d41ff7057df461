"""KLoB's published figures, each drawn from a stored run alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from matplotlib.figure import Figure

from helpers.metrics.klob_sets import DEFAULT_SHARE
from helpers.metrics.klob_tables import criteria_table, rsim_table
from helpers.reporting.klob_figures import (
    criteria_dots,
    layer_curves,
    locality_dots,
    share_lines,
)
from helpers.reporting.klob_stored import KlobRun, load_klob_run, stored_klob_runs
from helpers.reporting.klob_tables import edit_gains, layer_mass, locality_table, null_means

CONTROLS = ("random", "constant")


def evaluation(
    run: KlobRun, *, granularity: str = "neuron", share: float = DEFAULT_SHARE
) -> Figure:
    """Three criteria per locator with exact Sim_all, and what chance gives."""
    table = criteria_table(
        run.tables["similarities"],
        run.tables["sentences"],
        granularity=granularity,
        share=share,
        baseline="pairwise",
    )
    chance = null_means(run.tables["null"], granularity=granularity, share=share)
    return criteria_dots(table, chance, caption=f"{run}; {granularity}s, k = {100 * share:g} %")


def shares(run: KlobRun, *, granularity: str = "neuron") -> Figure:
    """RSim against the located share, exact Sim_all."""
    similarities = run.tables["similarities"]
    chosen = similarities[similarities["granularity"] == granularity]
    table = rsim_table(chosen, baseline="pairwise")
    return share_lines(table, caption=f"{run}; {granularity}s")


def layers(run: KlobRun) -> Figure:
    """Where editing works and where locators see the facts, by layer."""
    gains = edit_gains(run.tables["edits"])
    mass = layer_mass(run.tables["layers"], gains.index)
    shown = {name: curves for name, curves in mass.items() if name not in CONTROLS}
    return layer_curves(gains.to_numpy(), shown, caption=_edits(run, len(gains)))


def locality(run: KlobRun, *, seed: int = 0) -> Figure:
    """Rank correlation of located mass with the edit's gain, own fact and other facts."""
    gains = edit_gains(run.tables["edits"])
    tests = locality_table(gains, layer_mass(run.tables["layers"], gains.index), seed=seed)
    return locality_dots(tests, caption=_edits(run, len(gains)))


def klob_figures() -> Iterator[tuple[str, str, Callable[[], Figure]]]:
    """Name, title and drawing of every figure whose data is stored."""
    for name in stored_klob_runs():
        run = load_klob_run(name)
        suffix = "" if name == "smollm2-135m_klob-mini" else f"_{name}"
        of = f"{run.about['model']} on {run.about['source']}"
        yield f"05_evaluation{suffix}", f"KLoB's criteria per locator, {of}", _bind(evaluation, run)
        yield f"05_share{suffix}", f"RSim against the located share, {of}", _bind(shares, run)
        if "edits" in run.tables:
            title = f"Located mass and gain of edits by layer, {of}"
            yield f"05_layers{suffix}", title, _bind(layers, run)
            yield f"05_locality{suffix}", f"The locality hypothesis, {of}", _bind(locality, run)


def _bind(draw: Callable[[KlobRun], Figure], run: KlobRun) -> Callable[[], Figure]:
    return lambda: draw(run)


def _edits(run: KlobRun, facts: int) -> str:
    how = f"{run.about['model']} ({run.about['dtype']} on {run.about['device']})"
    return f"ours: {how}, {run.about['source']}; ROME at every layer, {facts} facts"
