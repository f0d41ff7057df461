"""The locality hypothesis in tables: gains of edits and located mass by layer, and their correlation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from helpers.klob.locality import locality_test
from helpers.klob.tables import named_rows, signed


def edit_gains(edits: pd.DataFrame) -> pd.DataFrame:
    """How far an edit moved the new answer past the old at the wordings it did not see.

    Returns:
        [examples, layers] in nats (mean token log-probability), against the unedited model; facts
        with a failed edit are left out.
    """
    unseen = edits.query("wording > 0").assign(lead=lambda table: table["new"] - table["old"])
    lead = unseen.groupby(["example", "layer"])["lead"].agg(
        lambda values: values.mean(skipna=False)
    )
    wide = lead.unstack("layer")
    return wide.drop(columns=-1).sub(wide[-1], axis=0).dropna()


def layer_mass(layers: pd.DataFrame, examples: pd.Index) -> dict[str, NDArray[np.float64]]:
    """Per locator each fact's |mass| per layer as a share of the fact's, [examples, layers].

    A locator that has not scored all these facts is left out.
    """
    mass = {}
    for name, part in layers.query("subtask == 'consistency'").groupby("locator", sort=False):
        if not examples.isin(part["example"]).all():
            continue
        wide = part.pivot(index="example", columns="layer", values="mass").loc[examples].abs()
        mass[str(name)] = wide.div(wide.sum(axis=1), axis=0).to_numpy(dtype=float)
    return mass


def locality_table(
    gains: pd.DataFrame, mass: Mapping[str, NDArray[np.float64]], *, seed: int = 0
) -> pd.DataFrame:
    """The locality test of every locator.

    Returns:
        Two rows per locator: columns locator, pairing (``own``, ``other``), mean, low, high, and for
        ``own`` also specific (own minus other) with its interval, p_value and average (of the mean
        curves).
    """
    rows = []
    for name, curves in mass.items():
        if name == "constant":  # one profile for all facts: nothing to correlate with a fact
            continue
        test = locality_test(curves, gains.to_numpy(dtype=float), seed=seed)
        own, other = test.own, test.control
        specific = test.specific
        extra = {
            "specific": specific.mean,
            "specific_low": specific.low,
            "specific_high": specific.high,
            "p_value": test.p_value,
            "average": test.average,
        }
        rows.append({"locator": name, "pairing": "own", **_interval(own), **extra})
        rows.append({"locator": name, "pairing": "other", **_interval(other)})
    return pd.DataFrame(rows)


def locality_text(table: pd.DataFrame) -> pd.DataFrame:
    """``locality_table`` as rounded text, a row per locator."""
    own = table.query("pairing == 'own'").set_index("locator")
    other = table.query("pairing == 'other'").set_index("locator")
    columns = {
        "same fact": [
            f"{r['mean']:+.2f} ({r.low:+.2f} … {r.high:+.2f})" for _, r in own.iterrows()
        ],
        "other facts": other["mean"].map(signed),
        "difference": [
            f"{r.specific:+.2f} ({r.specific_low:+.2f} … {r.specific_high:+.2f})"
            for _, r in own.iterrows()
        ],
        "p": own["p_value"].map("{:.3f}".format),
        "mean curves": own["average"].map(signed),
    }
    return named_rows(pd.DataFrame(columns, index=own.index))


def _interval(estimate: object) -> dict[str, float]:
    return {name: getattr(estimate, name) for name in ("mean", "low", "high")}
