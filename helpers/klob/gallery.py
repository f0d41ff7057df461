"""KLoB's published figures, each drawn from a stored run alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from helpers.results.archive import Run
from helpers.results.figure import figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAIN = "smollm2-135m_klob-mini"
CONTROLS = ("random", "constant")


@figure(
    "05_evaluation",
    title="KLoB's criteria per locator",
    of="klob",
    needs=("similarities", "sentences", "null"),
    main=MAIN,
)
def evaluation(run: Run, *, granularity: str = "neuron", share: float = 0.01) -> Figure:
    """Three criteria per locator with exact Sim_all, and what chance gives."""
    from helpers.klob import figures, tables
    from helpers.klob.criteria import criteria_table

    how: dict[str, Any] = {"granularity": granularity, "share": share}
    similarities, sentences = run.tables["similarities"], run.tables["sentences"]
    criteria = criteria_table(similarities, sentences, baseline="pairwise", **how)
    chance = tables.null_means(run.tables["null"], **how)
    caption = f"{tables.made_of(run)}; {granularity}s, k = {100 * share:g} %"
    return figures.criteria_dots(criteria, chance, caption=caption)


@figure(
    "05_share",
    title="RSim against the located share",
    of="klob",
    needs=("similarities",),
    main=MAIN,
)
def shares(run: Run, *, granularity: str = "neuron") -> Figure:
    """RSim against the located share, exact Sim_all."""
    from helpers.klob import figures, tables
    from helpers.klob.criteria import rsim_table

    similarities = run.tables["similarities"]
    one_granularity = similarities[similarities["granularity"] == granularity]
    caption = f"{tables.made_of(run)}; {granularity}s"
    return figures.share_lines(rsim_table(one_granularity, baseline="pairwise"), caption=caption)


@figure(
    "05_layers",
    title="Located mass and gain of edits by layer",
    of="klob",
    needs=("edits", "layers"),
    main=MAIN,
)
def layers(run: Run) -> Figure:
    """Where editing works and where locators see the facts, by layer."""
    from helpers.klob import layer_figures, locality_tables, tables

    gains = locality_tables.edit_gains(run.tables["edits"])
    mass = locality_tables.layer_mass(run.tables["layers"], gains.index)
    shown = {name: curves for name, curves in mass.items() if name not in CONTROLS} or mass
    caption = tables.edits_of(run, facts=len(gains))
    return layer_figures.layer_curves(gains.to_numpy(), shown, caption=caption)


@figure(
    "05_locality",
    title="The locality hypothesis",
    of="klob",
    needs=("edits", "layers"),
    main=MAIN,
)
def locality(run: Run, *, seed: int = 0) -> Figure:
    """Rank correlation of located mass with the edit's gain, own fact and other facts."""
    from helpers.klob import figures, locality_tables, tables

    gains = locality_tables.edit_gains(run.tables["edits"])
    mass = locality_tables.layer_mass(run.tables["layers"], gains.index)
    tests = locality_tables.locality_table(gains, mass, seed=seed)
    own = tests[(tests["pairing"] == "own") & ~tests["locator"].isin(CONTROLS)]
    better = int(((own["specific_low"] > 0) & (own["p_value"] < 0.05)).sum())
    finding = f"Own mass predicts gains better than another fact's: {better} of {len(own)} locators"
    caption = tables.edits_of(run, facts=len(gains))
    return figures.locality_dots(tests, finding=finding, caption=caption)


@figure("05_reading", title="KLoB's measures in one picture each", alone=True)
def reading() -> Figure:
    """Made-up numbers, for readers who meet the measures for the first time."""
    from helpers.klob.reading import pictures

    return pictures()
