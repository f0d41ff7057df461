"""Is an edited-out fact still deducible, and what else was lost? IFR and CKP of ThinkEdit.

Definitions 3 and 4 of *ThinkEdit* (published as *ThinkEval*, where CKP is called Preservation). Let p
and p' be the probability of a fact's original object before and after an edit, R and R' their products
along a chain of n facts. IFR is the mean of R'/R over the *deducible* chains (every fact is known
before), weighted by 1/√n; CKP is the mean of p'/p over the known facts about other subjects:

    IFR = Σ R'/R · 1/√n ÷ Σ 1/√n        CKP = Σ p'/p ÷ number of facts

The paper pools: its sums run over all edits at once, so that one edit with many chains, or one improbable
fact that an edit makes a million times as probable, can be the whole result. Here the measure is the mean
over edits of each edit's own ratio, at most 1 (``capped_mean``); the pooled one is next to it
(``pooled_ratio``).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from pandas import DataFrame as Table

from helpers.records import comparable
from helpers.results.statistics import Estimate, fraction_interval
from helpers.thinkedit.knowgic import EditedGraph

OVERALL, DEEP = "overall", "Deep-edited"
SUCCESSFUL = "IFR of successful edits"
DIRECT, OWN = "the edited fact", "other facts about its subject"
_SUCCESS = {"edit": "Efficacy", "paraphrase": "Generalisation", "neighbour": "Specificity"}
_FACT = ["case_id", "item"]
_TOKEN, _WORD = re.compile(r"\w+|[^\w\s]"), re.compile(r"\w\w+")


@dataclass(frozen=True)
class Known:
    """When exact scores count as knowledge."""

    threshold: float = 0.05  # of the whole probability of the object, by any of its names
    # Also where the object as written is more probable than the new one and all rivals of its kind.
    top: bool = False

    def __str__(self) -> str:
        rank_words = "first of its kind, or " if self.top else ""
        return f"whole probability, known: {rank_words}at least {self.threshold:g}"

    def of(self, scores: Table) -> pd.Series:
        """Whether each row's object is known."""
        is_likely = np.exp(scores["original_named"]) >= self.threshold
        best_rival_score = scores[["other_sum", "rival_sum"]].max(axis=1)
        return is_likely | (scores["original_sum"] > best_rival_score) if self.top else is_likely


DEFAULT = Known()  # in every mean that is set next to the paper's
# More facts of other models' graphs, of any probability: a ratio can be 10^6. For single edits and counts.
BY_RANK = Known(top=True)


def chain_index(edits: Sequence[EditedGraph]) -> Table:
    """Which facts make up which chains: case_id, chain, step (from 1), item, ``own`` (own subject)."""
    rows_of_steps = []
    for edit in edits:
        item_of_fact = {fact.key: item for item, fact in enumerate(edit.facts)}
        edited_subject = comparable(edit.subject)
        for chain_number, chain in enumerate(edit.chains):
            for step, fact in enumerate(chain.facts, start=1):
                is_own = comparable(fact.subject) == edited_subject
                item = item_of_fact[fact.key]
                rows_of_steps.append((edit.case_id, chain_number, step, item, is_own))
    return Table(rows_of_steps, columns=["case_id", "chain", "step", "item", "own"])


def facts_table(scores_before: Table, scores_after: Table, *, rule: Known = DEFAULT) -> Table:
    """Probabilities ``before`` and ``after`` of each (case_id, item); ``known_before``, ``known_after``."""
    facts_before = _known_facts(scores_before, "before", rule)
    facts_after = _known_facts(scores_after, "after", rule)
    return facts_before.merge(facts_after, on=_FACT, validate="1:1")


def _known_facts(scores: Table, moment: str, rule: Known) -> Table:
    """Each fact's probability at a ``moment``, and whether it is known then."""
    if "hits" in scores:  # sampled: known when it is named at least once
        fact_scores = scores
        probability = scores["hits"] / scores["n"]
        is_known = scores["hits"] > 0
    else:
        fact_scores = scores[scores["form"] == "fact"]
        probability = np.exp(fact_scores["original_named"])
        is_known = rule.of(fact_scores)
    return fact_scores[_FACT].assign(**{moment: probability, f"known_{moment}": is_known})


def chain_table(fact_probabilities: Table, steps_of_chains: Table) -> Table:
    """Fold the facts of ``facts_table`` into the chains of ``chain_index``, a row per (edit, chain):
    ``length``, ``before`` (R), ``after`` (R'), ``kept`` (all steps known before: deducible), ``active`` (all
    known after), ``ratio`` (R'/R, NaN unless kept).
    """
    chain_steps = steps_of_chains.merge(fact_probabilities, on=_FACT, validate="m:1").rename(
        columns={"case_id": "edit"}
    )
    by_chain = chain_steps.groupby(["edit", "chain"], sort=True).agg(
        length=("step", "size"),
        before=("before", "prod"),
        after=("after", "prod"),
        kept=("known_before", "all"),
        active=("known_after", "all"),
    )
    probability_before = by_chain["before"].where(by_chain["kept"])
    by_chain["ratio"] = (by_chain["after"] / probability_before).astype(float)
    return by_chain.reset_index()


def terms_of(fact_probabilities: Table, steps_of_chains: Table) -> Table:
    """What the measures are means of: ``measure``, ``edit``, ``length``, ``ratio`` and ``weight``.

    "IFR" has deducible chains, "CKP" known facts about other subjects, ``DIRECT`` and ``OWN`` those about the
    edited one (beyond the paper). ``DEEP`` is 1 for an edit after which no chain of two steps or more is
    active (Definition 2), of those with a deducible one before.
    """
    chains_of_edits = chain_table(fact_probabilities, steps_of_chains)
    recovered_chains = chains_of_edits.loc[
        chains_of_edits["kept"], ["edit", "length", "ratio"]
    ].assign(measure="IFR")
    longer_chains = (
        chains_of_edits[chains_of_edits["length"] > 1].groupby("edit")[["kept", "active"]].any()
    )
    deep_edited = 1.0 - longer_chains.loc[longer_chains["kept"], "active"].astype(float)
    is_direct = ~steps_of_chains.duplicated(["case_id", "chain"], keep=False)
    kinds_of_facts = (
        steps_of_chains.assign(direct=is_direct).groupby(_FACT)[["own", "direct"]].any()
    )
    known_facts = fact_probabilities[fact_probabilities["known_before"]].join(
        kinds_of_facts, on=_FACT, how="inner"
    )
    measure_by_subject = known_facts["own"].map({True: OWN, False: "CKP"})
    measure_of_fact = measure_by_subject.mask(known_facts["own"] & known_facts["direct"], DIRECT)
    share_left = known_facts["after"] / known_facts["before"]
    preserved_facts = Table(
        {"edit": known_facts["case_id"], "ratio": share_left, "measure": measure_of_fact}
    )
    terms_of_facts = [
        preserved_facts,
        deep_edited.rename("ratio").reset_index().assign(measure=DEEP),
    ]
    measure_terms = pd.concat(
        [recovered_chains, *(table_of_terms.assign(length=1) for table_of_terms in terms_of_facts)],
        ignore_index=True,
    )
    return measure_terms.assign(weight=measure_terms["length"] ** -0.5)


def success_terms(scores: Table) -> Table:
    """Efficacy, generalisation and specificity of each edit from exact scores after it, as terms.

    The share of prompts where the new object is more probable per token than the original one, or, for
    specificity (prompts about others), less. The last two are a reconstruction: KnowGIC has no prompts.
    """
    prompt_scores = scores[scores["form"].isin(list(_SUCCESS))]
    new_mean = prompt_scores["other_sum"] / prompt_scores["other_tokens"]
    original_mean = prompt_scores["original_sum"] / prompt_scores["original_tokens"]
    is_neighbour = prompt_scores["form"] == "neighbour"
    succeeds = (original_mean > new_mean).where(is_neighbour, new_mean > original_mean)
    measures = prompt_scores["form"].map(_SUCCESS)
    successes = succeeds.astype(float).groupby([prompt_scores["case_id"], measures])
    shares = successes.mean().rename("ratio").rename_axis(["edit", "measure"]).reset_index()
    return shares.assign(weight=1.0, length=1)


def sums_of(measure_terms: Table, key: str = "edit") -> Table:
    """Numerator ``top`` and denominator ``bottom`` of a measure in each group."""
    weighted_terms = measure_terms.assign(
        top=measure_terms["ratio"] * measure_terms["weight"], bottom=measure_terms["weight"]
    )
    return weighted_terms.groupby(key, sort=True, as_index=False)[["top", "bottom"]].sum()


def recovery_by_steps(folded: Table) -> Table:
    """IFR (``value``), ``chains``, and those ``kept`` and ``active``, by number of ``steps`` and overall."""
    chains = folded.assign(weight=folded["length"] ** -0.5, steps=folded["length"].astype(str))
    chains_at_each_level = pd.concat([chains, chains.assign(steps=OVERALL)])
    chains_by_steps = chains_at_each_level.groupby("steps", sort=True)
    counts_by_steps = chains_by_steps.agg(
        chains=("kept", "size"), kept=("kept", "sum"), active=("active", "sum")
    )
    sums_of_kept = sums_of(chains_at_each_level[chains_at_each_level["kept"]], "steps").set_index(
        "steps"
    )
    return counts_by_steps.assign(value=sums_of_kept["top"] / sums_of_kept["bottom"]).reset_index()


def capped_mean(sums_of_edits: Table) -> Estimate:
    """Mean over edits of each edit's own ratio, at most 1: the measure that claims and verdicts use.

    No edit weighs more than another, and none more than 1, whatever it holds.
    """
    return fraction_interval(capped_ratios(sums_of_edits))


def capped_ratios(sums_of_edits: Table) -> pd.Series:
    """min(1, top / bottom) of every edit, by its number."""
    ratio_of_edit = (
        sums_of_edits.set_index("edit")["top"] / sums_of_edits.set_index("edit")["bottom"]
    )
    return ratio_of_edit.clip(upper=1.0)


@dataclass(frozen=True)
class Pooled:
    """A ratio of sums over all edits at once, as the paper pools, and how far one edit decides it."""

    ratio: float
    low: float  # the lowest and the highest ratio that is left without one of the edits
    high: float
    share: float  # of the numerator, that of the edit which holds most of it

    def __str__(self) -> str:
        if np.isnan(self.ratio):
            return "n/a"
        range_words = "" if np.isnan(self.low) else f"{self.low:.2f} to {self.high:.2f}; "
        return f"{self.ratio:.2f} ({range_words}{100 * self.share:.0f} %)"


def pooled_ratio(sums_of_edits: Table) -> Pooled:
    """The ratio of the sums; NaN without edits, and of one edit no ratio is left without it."""
    numerators = sums_of_edits["top"].to_numpy(float)
    denominators = sums_of_edits["bottom"].to_numpy(float)
    nan = float("nan")
    if not len(sums_of_edits):
        return Pooled(nan, nan, nan, nan)
    ratio = float(numerators.sum() / denominators.sum())
    largest_share = float(numerators.max() / numerators.sum()) if numerators.any() else nan
    if len(sums_of_edits) < 2:
        return Pooled(ratio, nan, nan, largest_share)
    ratios_without_one = (numerators.sum() - numerators) / (denominators.sum() - denominators)
    lowest = float(ratios_without_one.min())
    highest = float(ratios_without_one.max())
    return Pooled(ratio, lowest, highest, largest_share)


def fluency(text: str) -> float:
    """Weighted bigram and trigram entropy of a text, in bits: the mean of 2/3 · H2 and 4/3 · H3.

    This is CounterFact's code; the sum of ThinkEdit's equation 4 is twice as large.
    """
    tokens = _TOKEN.findall(text)
    return (2 / 3 * _ngram_entropy(tokens, 2) + 4 / 3 * _ngram_entropy(tokens, 3)) / 2


def _ngram_entropy(tokens: Sequence[str], length: int) -> float:
    """Entropy in bits of a text's sequences of ``length`` tokens."""
    shifted_tokens = [tokens[start:] for start in range(length)]
    ngram_counts = Counter(zip(*shifted_tokens, strict=False))
    shares = np.array(list(ngram_counts.values()), dtype=float) / max(1, ngram_counts.total())
    return float(-(shares * np.log2(shares)).sum()) + 0.0


def inverse_document_frequencies(corpus: Iterable[str]) -> dict[str, float]:
    """Smoothed inverse document frequency, ln((1 + N) / (1 + df)) + 1, of every word of N documents."""
    word_sets = [set(_WORD.findall(text.lower())) for text in corpus]
    document_frequencies = Counter(
        word for words_of_document in word_sets for word in words_of_document
    )
    return {
        word: math.log((1 + len(word_sets)) / (1 + frequency)) + 1
        for word, frequency in document_frequencies.items()
    }


def consistency(text: str, reference: str, *, idf: Mapping[str, float]) -> float:
    """Cosine of the TF-IDF vectors of two texts, over words that ``idf`` has; 0 where a text has none."""
    weights = _tfidf_weights(text, idf)
    reference_weights = _tfidf_weights(reference, idf)
    norms = math.hypot(*weights.values()) * math.hypot(*reference_weights.values())
    product = sum(weight * reference_weights.get(word, 0.0) for word, weight in weights.items())
    return product / norms if norms else 0.0


def _tfidf_weights(text: str, idf: Mapping[str, float]) -> dict[str, float]:
    """A text's words that ``idf`` has, each with its number times its inverse document frequency."""
    word_counts = Counter(_WORD.findall(text.lower()))
    return {word: count * idf[word] for word, count in word_counts.items() if word in idf}
