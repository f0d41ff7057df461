"""Is an edited-out fact still deducible, and what else was lost? IFR and CKP of ThinkEdit.

Definitions 3 and 4 of *ThinkEdit* (published as *ThinkEval*, where CKP is called Preservation). Let p
and p' be the probability of a fact's original object before and after an edit, R and R' their products
along a chain of n facts. IFR is the mean of R'/R over the *deducible* chains (every fact is known
before), weighted by 1/√n; CKP is the mean of p'/p over the known facts about other subjects:

    IFR = Σ R'/R · 1/√n ÷ Σ 1/√n        CKP = Σ p'/p ÷ number of facts

The paper pools: its sums run over all edits at once, so that one edit with many chains, or one improbable
fact that an edit makes a million times as probable, can be the whole result. Here the measure is the mean
over edits of each edit's own ratio, at most 1 (``capped_mean``); the pooled one is next to it (``pooled``).
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
        first = "first of its kind, or " if self.top else ""
        return f"whole probability, known: {first}at least {self.threshold:g}"

    def of(self, scores: Table) -> pd.Series:
        """Whether each row's object is known."""
        likely = np.exp(scores["original_named"]) >= self.threshold
        rivals = scores[["other_sum", "rival_sum"]].max(axis=1)
        return likely | (scores["original_sum"] > rivals) if self.top else likely


DEFAULT = Known()  # in every mean that is set next to the paper's
# More facts of other models' graphs, of any probability: a ratio can be 10^6. For single edits and counts.
BY_RANK = Known(top=True)


def chain_index(edits: Sequence[EditedGraph]) -> Table:
    """Which facts make up which chains: case_id, chain, step (from 1), item, ``own`` (own subject)."""
    rows = []
    for edit in edits:
        items = {fact.key: item for item, fact in enumerate(edit.facts)}
        own = comparable(edit.subject)
        rows += [
            (edit.case_id, chain, step, items[fact.key], comparable(fact.subject) == own)
            for chain, facts in enumerate(edit.chains)
            for step, fact in enumerate(facts.facts, start=1)
        ]
    return Table(rows, columns=["case_id", "chain", "step", "item", "own"])


def facts_table(before: Table, after: Table, *, rule: Known = DEFAULT) -> Table:
    """Probabilities ``before`` and ``after`` of each (case_id, item); ``known_before``, ``known_after``."""
    moments = []
    for name, scores in (("before", before), ("after", after)):
        if "hits" in scores:  # sampled: known when it is named at least once
            part, p, known = scores, scores["hits"] / scores["n"], scores["hits"] > 0
        else:
            part = scores[scores["form"] == "fact"]
            p, known = np.exp(part["original_named"]), rule.of(part)
        moments.append(part[_FACT].assign(**{name: p, f"known_{name}": known}))
    return moments[0].merge(moments[1], on=_FACT, validate="1:1")


def chain_table(facts: Table, chains: Table) -> Table:
    """Fold the facts of ``facts_table`` into the chains of ``chain_index``, a row per (edit, chain):
    ``length``, ``before`` (R), ``after`` (R'), ``kept`` (all steps known before: deducible), ``active`` (all
    known after), ``ratio`` (R'/R, NaN unless kept).
    """
    steps = chains.merge(facts, on=_FACT, validate="m:1").rename(columns={"case_id": "edit"})
    folded = steps.groupby(["edit", "chain"], sort=True).agg(
        length=("step", "size"),
        before=("before", "prod"),
        after=("after", "prod"),
        kept=("known_before", "all"),
        active=("known_after", "all"),
    )
    deducible = folded["before"].where(folded["kept"])
    folded["ratio"] = (folded["after"] / deducible).astype(float)
    return folded.reset_index()


def terms_of(facts: Table, chains: Table) -> Table:
    """What the measures are means of: ``measure``, ``edit``, ``length``, ``ratio`` and ``weight``.

    "IFR" has deducible chains, "CKP" known facts about other subjects, ``DIRECT`` and ``OWN`` those about the
    edited one (beyond the paper). ``DEEP`` is 1 for an edit after which no chain of two steps or more is
    active (Definition 2), of those with a deducible one before.
    """
    folded = chain_table(facts, chains)
    recovered = folded.loc[folded["kept"], ["edit", "length", "ratio"]].assign(measure="IFR")
    longer = folded[folded["length"] > 1].groupby("edit")[["kept", "active"]].any()
    deep = 1.0 - longer.loc[longer["kept"], "active"].astype(float)
    direct = ~chains.duplicated(["case_id", "chain"], keep=False)
    kinds = chains.assign(direct=direct).groupby(_FACT)[["own", "direct"]].any()
    known = facts[facts["known_before"]].join(kinds, on=_FACT, how="inner")
    about = known["own"].map({True: OWN, False: "CKP"})
    measure = about.mask(known["own"] & known["direct"], DIRECT)
    ratio = known["after"] / known["before"]
    preserved = Table({"edit": known["case_id"], "ratio": ratio, "measure": measure})
    single = [preserved, deep.rename("ratio").reset_index().assign(measure=DEEP)]
    terms = pd.concat([recovered, *(part.assign(length=1) for part in single)], ignore_index=True)
    return terms.assign(weight=terms["length"] ** -0.5)


def success_terms(scores: Table) -> Table:
    """Efficacy, generalisation and specificity of each edit from exact scores after it, as terms.

    The share of prompts where the new object is more probable per token than the original one, or, for
    specificity (prompts about others), less. The last two are a reconstruction: KnowGIC has no prompts.
    """
    asked = scores[scores["form"].isin(list(_SUCCESS))]
    new, original = (asked[f"{a}_sum"] / asked[f"{a}_tokens"] for a in ("other", "original"))
    right = (original > new).where(asked["form"] == "neighbour", new > original)
    groups = right.astype(float).groupby([asked["case_id"], asked["form"].map(_SUCCESS)])
    table = groups.mean().rename("ratio").rename_axis(["edit", "measure"]).reset_index()
    return table.assign(weight=1.0, length=1)


def sums_of(terms: Table, key: str = "edit") -> Table:
    """Numerator ``top`` and denominator ``bottom`` of a measure in each group."""
    parts = terms.assign(top=terms["ratio"] * terms["weight"], bottom=terms["weight"])
    return parts.groupby(key, sort=True, as_index=False)[["top", "bottom"]].sum()


def recovery_by_steps(folded: Table) -> Table:
    """IFR (``value``), ``chains``, and those ``kept`` and ``active``, by number of ``steps`` and overall."""
    chains = folded.assign(weight=folded["length"] ** -0.5, steps=folded["length"].astype(str))
    levels = pd.concat([chains, chains.assign(steps=OVERALL)])
    groups = levels.groupby("steps", sort=True)
    table = groups.agg(chains=("kept", "size"), kept=("kept", "sum"), active=("active", "sum"))
    kept = sums_of(levels[levels["kept"]], "steps").set_index("steps")
    return table.assign(value=kept["top"] / kept["bottom"]).reset_index()


def capped_mean(sums: Table) -> Estimate:
    """Mean over edits of each edit's own ratio, at most 1: the measure that claims and verdicts use.

    No edit weighs more than another, and none more than 1, whatever it holds.
    """
    return fraction_interval(capped_ratios(sums))


def capped_ratios(sums: Table) -> pd.Series:
    """min(1, top / bottom) of every edit, by its number."""
    ratios = sums.set_index("edit")["top"] / sums.set_index("edit")["bottom"]
    return ratios.clip(upper=1.0)


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
        left = "" if np.isnan(self.low) else f"{self.low:.2f} to {self.high:.2f}; "
        return f"{self.ratio:.2f} ({left}{100 * self.share:.0f} %)"


def pooled(sums: Table) -> Pooled:
    """The ratio of the sums; NaN without edits, and of one edit no ratio is left without it."""
    top, bottom = sums["top"].to_numpy(float), sums["bottom"].to_numpy(float)
    nan = float("nan")
    if not len(sums):
        return Pooled(nan, nan, nan, nan)
    ratio = float(top.sum() / bottom.sum())
    share = float(top.max() / top.sum()) if top.any() else nan
    if len(sums) < 2:
        return Pooled(ratio, nan, nan, share)
    without = (top.sum() - top) / (bottom.sum() - bottom)
    return Pooled(ratio, float(without.min()), float(without.max()), share)


def fluency(text: str) -> float:
    """Weighted bigram and trigram entropy of a text, in bits: the mean of 2/3 · H2 and 4/3 · H3.

    This is CounterFact's code; the sum of ThinkEdit's equation 4 is twice as large.
    """
    tokens, entropies = _TOKEN.findall(text), []
    for n in (2, 3):
        counts = Counter(zip(*(tokens[start:] for start in range(n)), strict=False))
        shares = np.array(list(counts.values()), dtype=float) / max(1, counts.total())
        entropies.append(float(-(shares * np.log2(shares)).sum()) + 0.0)
    return (2 / 3 * entropies[0] + 4 / 3 * entropies[1]) / 2


def inverse_document_frequencies(corpus: Iterable[str]) -> dict[str, float]:
    """Smoothed inverse document frequency, ln((1 + N) / (1 + df)) + 1, of every word of N documents."""
    documents = [set(_WORD.findall(text.lower())) for text in corpus]
    counts = Counter(word for words in documents for word in words)
    return {word: math.log((1 + len(documents)) / (1 + df)) + 1 for word, df in counts.items()}


def consistency(text: str, reference: str, *, idf: Mapping[str, float]) -> float:
    """Cosine of the TF-IDF vectors of two texts, over words that ``idf`` has; 0 where a text has none."""
    counts = [Counter(_WORD.findall(each.lower())) for each in (text, reference)]
    one, other = ({w: n * idf[w] for w, n in words.items() if w in idf} for words in counts)
    norms = math.hypot(*one.values()) * math.hypot(*other.values())
    product = sum(value * other.get(word, 0.0) for word, value in one.items())
    return product / norms if norms else 0.0
