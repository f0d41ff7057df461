"""Notebook 05: locating."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from helpers.klob.metrics import edit_gains, layer_mass, locality_table
from helpers.klob.tables import criteria_table
from helpers.results.archive import archive
from tools.headlines.headline import Headline, UnsupportedError

SHARE = 0.01


def headlines() -> list[Headline]:
    """From the published run."""
    run = archive("klob").get("smollm2-135m_klob-mini")
    kinds = run.joined("similarities"), run.joined("sentences")
    table = criteria_table(*kinds, granularity="neuron", share=SHARE)
    neurons = {
        row["criterion"]: row
        for row in table[table["locator"] == "knowledge-neurons"].to_dict("records")
    }
    consistency, relevance = neurons["consistency"], neurons["relevance"]
    gains = edit_gains(run.joined("edits"))
    places = locality_table(gains, layer_mass(run.joined("layers"), gains.index))
    own = places[places["pairing"] == "own"].set_index("locator")
    tracing = own.loc["causal-tracing"].to_dict()
    if not (consistency["low"] > 0.1 and relevance["high"] < 0.1 and own["p_value"].min() > 0.05):
        raise UnsupportedError("KLoB's headline: see consistency, relevance and the locality test")
    examples = f"{consistency['n']} c, {relevance['n']} r"
    return [
        Headline(
            "05",
            "Locators recognise a fact's wordings; none predicts where to edit it",
            "The wordings of a fact share knowledge neurons; a chain that contains the fact shares"
            " almost none with it. For no locator does a fact's own attribution predict its best layers"
            f" better than another fact's (n = {len(gains)}).",
            (
                ("consistency of knowledge neurons (RSim)", _range(consistency)),
                ("their relevance (RSim)", _range(relevance)),
                (
                    "what a fact's own causal trace adds (rank correlation)",
                    _range(tracing, "specific", "specific_low", "specific_high"),
                ),
            ),
            "05_evaluation",
            f"klob-mini ({examples}), {len(gains)} edited facts, SmolLM2-135M-Instruct (4-bit"
            " weights, dequantised). The paper reports no results.",
        )
    ]


def _range(row: Mapping[Hashable, Any], *columns: str) -> str:
    mean, low, high = (row[name] for name in columns or ("mean", "low", "high"))
    return f"{mean:z.2f} [{low:z.2f}, {high:z.2f}]"
