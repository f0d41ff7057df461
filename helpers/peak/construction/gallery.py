"""The published figures of PEAK's construction, each drawn from a stored run alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helpers.results.archive import Run
from helpers.results.figure import figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAIN = "packaged_smollm2-135m"


@figure(
    "02_funnel",
    title="Facts lost at each step of PEAK's construction",
    of="construction",
    needs=("funnel",),
    main=MAIN,
)
def funnel(run: Run) -> Figure:
    """Facts left after each step, set by set."""
    from helpers.peak.construction.figures import construction_funnel

    steps = {
        str(name): list(zip(part["step"], part["left"], strict=True))
        for name, part in run.tables["funnel"].groupby("set", sort=False)
    }
    return construction_funnel(steps, caption=made_of(run))


@figure(
    "02_known",
    title="What the model knows, per relation",
    of="construction",
    needs=("filter",),
    main=MAIN,
)
def known(run: Run) -> Figure:
    """Share of correct answers that the model knows, record by record."""
    from helpers.peak.construction.figures import known_by_relation

    return known_by_relation(run.tables["filter"], caption=made_of(run))


@figure(
    "02_list_sizes",
    title="Answers per record",
    of="construction",
    needs=("filter",),
    main=MAIN,
)
def sizes(run: Run) -> Figure:
    """Answers per record that the filter keeps, set by set."""
    from helpers.peak.construction.figures import list_sizes

    table = run.tables["filter"]
    kept = table[table["step"] == ""]
    by_set = {str(name): part for name, part in kept.groupby("set", sort=False)}
    return list_sizes(by_set, caption=made_of(run))


def made_of(run: Run) -> str:
    """What a run's tables are of: facts, model and rule."""
    source = run.about.source
    return (
        f"{source['facts']} facts, {source['model']}, {source['dtype']} on {source['device']},"
        f" rule {source['rule']}"
    )
