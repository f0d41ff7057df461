"""Notebook 05: locating."""

from __future__ import annotations

from helpers.klob.figures import CONTROLS
from helpers.klob.metrics import edit_gains, layer_mass, locality_table
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
    dealt = run.joined("null").query("locator == 'knowledge-neurons' and subtask == 'relevance'")
    chance = dealt.query("granularity == 'neuron' and share == @SHARE and shuffled == 'all'")[
        "mean"
    ].item()
    gains = edit_gains(run.joined("edits"))
    places = locality_table(gains, layer_mass(run.joined("layers"), gains.index))
    added = places[places["pairing"] == "specific"].set_index("locator")
    tracing = added.loc["causal-tracing"].to_dict()
    if not (real["low"].min() > 0.1 and relevance["high"] < 0.1 and added["p_value"].min() > 0.05):
        raise UnsupportedError("KLoB's headline: see consistency, relevance and the locality test")
    return [
        Headline(
            "05",
            "With twelve facts we find no locator that predicts where a given fact is best edited; all"
            " select similar neurons for paraphrases",
            f"A fact's wordings share neurons for all {len(real)} methods: RSim, which is 0 where they share"
            f" no more than any two sentences and 1 where they share all, is {ends[0]:.2f} to"
            f" {ends[1]:.2f}. A chain and its fact share about as many knowledge neurons as sentences"
            f" dealt at random (RSim {relevance['mean']:.2f}; at random {chance:.2f}). For no locator"
            f" does a fact's own attribution predict its best layers better than another fact's"
            f" (n = {len(gains)}).",
            (
                (
                    "what a fact's own causal trace adds (rank correlation with gain)",
                    ranged(tracing),
                ),
                ("consistency of knowledge neurons (RSim)", ranged(consistency)),
                ("their relevance (RSim)", ranged(relevance)),
            ),
            "05_locality",
            "Shown for klob-mini (our reconstruction of KLoB's data), SmolLM2-135M-Instruct (4-bit weights,"
            " dequantised). Also shown: Gemma 3 270M, Qwen2.5-Coder 1.5B. Not shown: the official files,"
            " edits of a second model. The paper reports no results. Gain is how far ROME's edit moves the"
            " new answer past the old one.",
        )
    ]
