"""Notebook 05: locating."""

from __future__ import annotations

from helpers.klob.figures import CONTROLS
from helpers.klob.metrics import (
    BEST_FIXED,
    REFERENCES,
    edit_gains,
    layer_mass,
    locality_table,
    regret_table,
)
from helpers.klob.tables import criteria_table
from helpers.results.archive import archive
from tools.headlines.headline import Headline, UnsupportedError, ranged

SHARE = 0.01


def headlines() -> list[Headline]:
    """From the published run."""
    run = archive("klob").get("smollm2-135m_klob-mini")
    kinds = run.joined("similarities"), run.joined("sentences")
    table = criteria_table(*kinds, granularity="neuron", share=SHARE).table
    real = table[~table["locator"].isin(CONTROLS) & (table["criterion"] == "consistency")]
    ends = real["mean"].agg(["min", "max"]).tolist()
    neurons = table[table["locator"] == "knowledge-neurons"].set_index("criterion").to_dict("index")
    consistency, relevance = neurons["consistency"], neurons["relevance"]
    gains = edit_gains(run.joined("edits"))
    mass = layer_mass(run.joined("layers"), gains.index)
    places = locality_table(gains, mass)
    added = places[places["pairing"] == "specific"].set_index("locator")
    at_edit_prompt = edit_gains(run.joined("edits"), at_edit_prompt=True).loc[gains.index]
    regrets = regret_table(gains, mass, at_edit_prompt).set_index("rule").to_dict("index")
    fixed, tracing = regrets[BEST_FIXED], regrets["causal-tracing"]
    least_of_locators = min(
        regret["mean"] for rule, regret in regrets.items() if rule not in (*REFERENCES, *CONTROLS)
    )
    if not (real["low"].min() > 0.1 and relevance["high"] < 0.1 and added["p_value"].min() > 0.05):
        raise UnsupportedError("KLoB's headline: see consistency, relevance and the locality test")
    if not least_of_locators > fixed["mean"]:
        raise UnsupportedError("a locator's layer loses less than one layer for all facts")
    return [
        Headline(
            "05",
            "With twelve facts we find no locator that predicts where a given fact is best edited; all"
            " select similar neurons for paraphrases",
            f"One layer for all facts loses {fixed['mean']:.1f} nats per token against each"
            f" fact's best layer; where a locator points, edits lose {least_of_locators:.1f} or more"
            f" (n = {len(gains)}). A fact's wordings share neurons for all {len(real)} methods (RSim"
            f" {ends[0]:.2f} to {ends[1]:.2f}; 0 is as many as any two sentences, 1 is all).",
            (
                ("lost with one layer for all facts, nats", ranged(fixed)),
                ("lost where causal tracing points, nats", ranged(tracing)),
                ("consistency of knowledge neurons (RSim)", ranged(consistency)),
                ("their relevance: a chain and its fact (RSim)", ranged(relevance)),
            ),
            "05_locality",
            "Shown for klob-mini (our reconstruction of KLoB's data), SmolLM2-135M-Instruct (4-bit weights,"
            " dequantised). Also shown: Gemma 3 270M, Qwen2.5-Coder 1.5B. Not shown: the official files,"
            " edits of a second model. The paper reports no results.",
        )
    ]
