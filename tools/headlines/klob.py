"""Notebook 05: locating."""

from __future__ import annotations

from dataclasses import asdict

from helpers.klob.figures import CONTROLS
from helpers.klob.metrics import (
    BEST_FIXED,
    edit_gains,
    layer_mass,
    locality_table,
)
from helpers.klob.regret import better_locators, layer_gains, rule_regrets
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
    edited = archive("regret").get("smollm2-135m_klob-mini")
    regrets = rule_regrets(edited)
    facts = layer_gains(edited.tables["edits"])
    least = facts.regret(facts.mean_gains[:, facts.best_on_all]).mean()
    by_rule = {(regret.rule, regret.tokens): regret for regret in regrets}
    fixed = by_rule[BEST_FIXED, ""]
    tracing = by_rule["causal-tracing", "subject"].contrast.difference
    locators = [regret for regret in regrets if regret.is_locator]
    better_in_sample = sum(regret.against_fixed.mean() < 0 for regret in locators)
    null = run.joined("null").query(
        "locator == 'knowledge-neurons' and subtask == 'relevance' and granularity == 'neuron'"
        f" and share == {SHARE} and shuffled == 'all'"
    )
    (chance,) = null["mean"]
    if not (real["low"].min() > 0.1 and relevance["high"] < 0.1 and added["p_value"].min() > 0.05):
        raise UnsupportedError("KLoB's headline: see consistency, relevance and the locality test")
    if better_locators(regrets) or not fixed.estimate.low > 0:
        raise UnsupportedError("a locator's layer loses less than one layer for all facts")
    return [
        Headline(
            "05",
            "We find no locator that names a better layer for an edit than one layer for all facts",
            "Compared with each fact's best layer, editing every fact at one layer loses"
            f" {fixed.estimate.mean:.1f} nats per token ({least:.1f} if this layer is chosen on the same"
            " facts). One nat is a factor of 2.7 in probability. Of"
            f" {len(locators)} rows of locators {better_in_sample} lose less in the sample, none"
            f" significantly (n = {fixed.estimate.n}). A small gain could have been missed, so this does not"
            f" show that locating is useless. All {len(real)} methods compared select similar neurons for the"
            f" wordings of a fact (RSim {ends[0]:.2f} to {ends[1]:.2f}; 0: as for any two sentences, 1:"
            " identical).",
            (
                (
                    "loss with one layer for all facts, nats per token",
                    ranged(asdict(fixed.estimate)),
                ),
                (
                    "change of this loss with the layer that a locator (causal tracing) names",
                    ranged(asdict(tracing)),
                ),
                ("consistency of knowledge neurons (RSim)", ranged(consistency)),
                (
                    f"their relevance: similarity of a chain and its fact (RSim; by chance {chance:.2f})",
                    ranged(relevance),
                ),
            ),
            "05_locality",
            "Shown for klob-mini (our reconstruction of KLoB's data), SmolLM2-135M-Instruct (4-bit weights,"
            " dequantised). Also shown: Gemma 3 270M, Qwen2.5-Coder 1.5B. Not shown: the official files,"
            " edits of a second model. The paper reports no results.",
        )
    ]
