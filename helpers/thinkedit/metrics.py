"""Is an edited-out fact still deducible, and what else was lost? IFR and CKP of ThinkEdit.

Definitions 3 and 4 of *ThinkEdit* (published as *ThinkEval*, where CKP is called Preservation). Let p
and p' be the probability of a fact's original object before and after an edit, R and R' their products
along a chain of n facts. IFR is the mean of R'/R over the *deducible* chains (every fact is known
before), weighted by 1/√n; CKP is the mean of p'/p over the known facts about other subjects:

    IFR = Σ R'/R · 1/√n ÷ Σ 1/√n        CKP = Σ p'/p ÷ number of facts

From stored scores to a number: ``facts_table`` (p, p', known), ``chain_table`` (R, R'), ``terms_of`` (what
the means are of), ``sums_of`` and ``pooled`` (the mean over all edits, with its interval).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from helpers.results.statistics import LEVEL, Contrast, Estimate
from helpers.results.text import INCONCLUSIVE
from helpers.thinkedit.knowgic import Edit

OVERALL = "overall"
DIRECT, OWN = "the edited fact", "other facts about its subject"
_SUCCESS = {"edit": "Efficacy", "paraphrase": "Generalisation", "neighbour": "Specificity"}
_FACT = ["case_id", "item"]
_RESAMPLES = 4_000
_ALL_SIGNS = 14  # edits of which all sign patterns are tried
_POWER = 2.8  # standard errors that a test at 5 % finds in four of five cases
_TOKEN, _WORD = re.compile(r"\w+|[^\w\s]"), re.compile(r"\w\w+")


@dataclass(frozen=True)
class Known:
    """A rule that turns exact scores into probabilities and knowledge.

    Attributes:
        measure: ``"named"``, the probability that the next words name the object by any accepted name:
            the exact counterpart of the paper's share of responses; or ``"mean"``, the geometric mean
            over the tokens of the object as it is written (PEAK's measure), which is far higher for
            long names.
        threshold: probability from which an object is known.
        top: also known, whatever the probability: an object that, as it is written, is more probable
            than the new object and every rival of its kind (by the same measure). Such facts
            can be as improbable as 1e-8, and then p'/p says little. It is for graphs that are not
            the model's own, of which a small model knows next to nothing otherwise.
    """

    measure: Literal["named", "mean"] = "named"
    threshold: float = 0.05
    top: bool = False

    def __str__(self) -> str:
        what = "whole probability" if self.measure == "named" else "geometric mean"
        first = "first of its kind, or " if self.top else ""
        return f"{what}, known: {first}at least {self.threshold:g}"

    def probability(self, scores: pd.DataFrame, answer: str = "original") -> pd.Series:
        """Probability of an answer, "original" or "other" (the new object), of each row."""
        named = self.measure == "named"
        return np.exp(scores[f"{answer}_named"] if named else per_token(scores, answer))

    def of(self, scores: pd.DataFrame) -> pd.Series:
        """Whether each row's object is known."""
        likely = self.probability(scores) >= self.threshold
        if not self.top:
            return likely
        if self.measure == "named":
            own, *others = (scores[name] for name in ("original_sum", "other_sum", "rival_sum"))
        else:
            own = per_token(scores, "original")
            others = [per_token(scores, "other"), scores["rival"]]
        return likely | (own > pd.concat(others, axis=1).max(axis=1))


DEFAULT = Known()
BY_RANK = Known(top=True)  # for other models' graphs
BY_MEAN = Known("mean", top=True)  # counts most facts


def per_token(scores: pd.DataFrame, answer: str) -> pd.Series:
    """Mean over its tokens of the log-probability of an answer, "original" or "other"."""
    return scores[f"{answer}_sum"] / scores[f"{answer}_tokens"]


def chain_index(edits: Sequence[Edit]) -> pd.DataFrame:
    """Which facts make up which chains: case_id, chain, step (from 1), item, ``own`` (own subject)."""
    rows = []
    for edit in edits:
        items = {fact.key: item for item, fact in enumerate(edit.facts)}
        own = edit.subject.casefold()
        rows += [
            (edit.case_id, chain, step, items[fact.key], fact.subject.casefold() == own)
            for chain, facts in enumerate(edit.chains)
            for step, fact in enumerate(facts.facts, start=1)
        ]
    return pd.DataFrame(rows, columns=["case_id", "chain", "step", "item", "own"])


def facts_table(
    before: pd.DataFrame, after: pd.DataFrame, *, rule: Known = DEFAULT
) -> pd.DataFrame:
    """Probabilities and knowledge of each fact (case_id, item) before and after.

    Args:
        before: scores of the unedited model, exact or sampled (a fact is then known when it is named
            at least once, as in the paper).
        after: the same under the edits.
        rule: of exact scores: which probability is taken, and from when on a fact is known.

    Returns:
        ``before``, ``after``, ``known_before``, ``known_after``, and ``new_before``, ``new_after``
        (probability of the new object, NaN where the fact does not end at the original one).
    """
    moments = []
    for name, scores in (("before", before), ("after", after)):
        if "hits" in scores:
            part, known = scores, scores["hits"] > 0
            p, new = scores["hits"] / scores["n"], scores["new_hits"] / scores["n"]
        else:
            part = scores[scores["form"] == "fact"]
            p, new, known = rule.probability(part), rule.probability(part, "other"), rule.of(part)
        values = {name: p, f"known_{name}": known, f"new_{name}": new}
        moments.append(part[_FACT].assign(**values))
    return moments[0].merge(moments[1], on=_FACT, validate="1:1")


def chain_table(facts: pd.DataFrame, chains: pd.DataFrame) -> pd.DataFrame:
    """Fold the facts of ``facts_table`` into the chains of ``chain_index``, a row per (edit, chain).

    Returns:
        ``length``, ``before`` (R), ``after`` (R'), ``kept`` (every step known before: deducible),
        ``active`` (every step known after), ``ratio`` (R'/R, NaN unless kept). Of the chain that asks for
        the *new* object at its end: ``new_before`` and ``new_after`` (products), the ``last_item``, and
        whether the new object is more probable there than the original one (``wins_…``).
    """
    steps = chains.merge(facts, on=_FACT, validate="m:1").rename(columns={"case_id": "edit"})
    steps = steps.sort_values(["edit", "chain", "step"])
    last = ~steps.duplicated(["edit", "chain"], keep="last")
    for moment in ("before", "after"):
        new = steps[f"new_{moment}"]
        steps[f"wins_{moment}"] = (new > steps[moment]) & last
        steps[f"new_{moment}"] = steps[moment].where(~last, new)
    folded = steps.groupby(["edit", "chain"], sort=True).agg(
        length=("step", "size"),
        before=("before", "prod"),
        after=("after", "prod"),
        kept=("known_before", "all"),
        active=("known_after", "all"),
        new_before=("new_before", "prod"),
        new_after=("new_after", "prod"),
        last_item=("item", "last"),
        wins_before=("wins_before", "any"),
        wins_after=("wins_after", "any"),
    )
    folded["ratio"] = (folded["after"] / folded["before"].where(folded["kept"])).astype(float)
    return folded.reset_index()


def terms_of(facts: pd.DataFrame, folded: pd.DataFrame, chains: pd.DataFrame) -> pd.DataFrame:
    """What IFR and CKP are means of: ``measure``, ``edit``, ``length``, ``ratio`` and ``weight``.

    Rows of "IFR" are deducible chains (``folded`` is the facts' ``chain_table``), those of "CKP" known
    facts about other subjects. The known facts about the edited subject are the measures ``DIRECT`` and
    ``OWN`` (beyond the paper).
    """
    recovered = folded.loc[folded["kept"], ["edit", "length", "ratio"]].assign(measure="IFR")
    direct = ~chains.duplicated(["case_id", "chain"], keep=False)
    kinds = chains.assign(direct=direct).groupby(_FACT)[["own", "direct"]].any()
    known = facts[facts["known_before"]].join(kinds, on=_FACT, how="inner")
    about = known["own"].map({True: OWN, False: "CKP"})
    measure = about.mask(known["own"] & known["direct"], DIRECT)
    ratio = known["after"] / known["before"]
    preserved = pd.DataFrame({"edit": known["case_id"], "ratio": ratio, "measure": measure})
    terms = pd.concat([recovered, preserved.assign(length=1)], ignore_index=True)
    return terms.assign(weight=terms["length"] ** -0.5)


def success_terms(scores: pd.DataFrame) -> pd.DataFrame:
    """Efficacy, generalisation and specificity of each edit from exact scores after it, as terms.

    The share of prompts where the new object is strictly more probable per token than the original
    one, or, for specificity (prompts about others), less; neither gains by being short. Generalisation
    and specificity are a reconstruction: KnowGIC has neither paraphrases nor neighbourhood prompts.
    """
    asked = scores[scores["form"].isin(list(_SUCCESS))]
    new, original = (per_token(asked, answer) for answer in ("other", "original"))
    right = (original > new).where(asked["form"] == "neighbour", new > original)
    groups = right.astype(float).groupby([asked["case_id"], asked["form"].map(_SUCCESS)])
    table = groups.mean().rename("ratio").rename_axis(["edit", "measure"]).reset_index()
    return table.assign(weight=1.0, length=1)


def sums_of(
    terms: pd.DataFrame, keys: Sequence[str] = ("edit",), *, capped: bool = False
) -> pd.DataFrame:
    """Numerator ``top`` and denominator ``bottom`` of a measure in each group, and its ``n`` terms.

    IFR and CKP are top/bottom, of one edit or, with the sums of several added up, pooled. ``capped``
    counts ratios above 1 as 1 (the paper caps nothing).
    """
    ratio = terms["ratio"].clip(upper=1.0) if capped else terms["ratio"]
    parts = terms.assign(top=ratio * terms["weight"], bottom=terms["weight"])
    groups = parts.groupby(list(keys), sort=True, as_index=False)
    return groups.agg(top=("top", "sum"), bottom=("bottom", "sum"), n=("top", "size"))


def value_of(terms: pd.DataFrame, measure: str) -> float:
    """IFR or CKP over all these terms; NaN for IFR and, as Definition 4 sets, 1 for CKP without any."""
    own = terms[terms["measure"] == measure]
    if own.empty:
        return 1.0 if measure == "CKP" else float("nan")
    return float(np.average(own["ratio"], weights=own["weight"]))


def recovery_by_steps(folded: pd.DataFrame) -> pd.DataFrame:
    """``value``: IFR of one edit, or of several pooled, for each number of ``steps`` and overall; with all
    ``chains``, those ``kept`` (deducible before) and ``active`` after.
    """
    chains = folded.assign(weight=folded["length"] ** -0.5, steps=folded["length"].astype(str))
    levels = pd.concat([chains, chains.assign(steps=OVERALL)])
    groups = levels.groupby("steps", sort=True)
    table = groups.agg(chains=("kept", "size"), kept=("kept", "sum"), active=("active", "sum"))
    kept = sums_of(levels[levels["kept"]], ["steps"]).set_index("steps")
    return table.assign(value=kept["top"] / kept["bottom"]).reset_index()


def combine_steps(values: ArrayLike, chains: ArrayLike) -> float:
    """Overall IFR that follows from IFRs of 1, 2, … steps and their numbers of deducible chains."""
    counts = np.asarray(chains, dtype=float)
    weights = counts / np.sqrt(np.arange(1, counts.size + 1))
    return float(np.average(np.asarray(values, dtype=float), weights=weights))


@dataclass(frozen=True)
class Difference(Contrast):
    """A pooled difference on the same edits, with the p-value by flipping the signs of edits.

    ``could_show`` is the smallest difference that as many edits would show in four of five cases.
    """

    could_show: float

    @property
    def verdict(self) -> str:
        """``more``, ``less``, or ``inconclusive`` where chance explains the difference."""
        if not self.p_value < LEVEL:
            return INCONCLUSIVE
        return "more" if self.difference.mean > 0 else "less"


def pooled(sums: pd.DataFrame) -> Estimate:
    """Ratio of the sums over all edits, with its interval by bootstrap over edits; ``n`` counts edits.

    An edit's chains and facts belong together, so edits are what is resampled. Of few edits, or where
    a few hold most chains, the percentile interval is somewhat too narrow.
    """
    return _estimate(sums["top"].to_numpy(float), sums["bottom"].to_numpy(float))


def per_edit(sums: pd.DataFrame) -> Estimate:
    """Mean over edits of each one's own ratio, with its interval."""
    return _estimate((sums["top"] / sums["bottom"]).to_numpy(float), np.ones(len(sums)))


def paired_difference(first: pd.DataFrame, second: pd.DataFrame) -> Difference:
    """Pooled ratio of the second ``sums_of`` a measure minus that of the first, over the edits that both
    have; their denominators are the same.
    """
    both = first.merge(second, on="edit", suffixes=("_first", "_second"))
    change = (both["top_second"] - both["top_first"]).to_numpy(float)
    weight = both["bottom_second"].to_numpy(float)
    estimate = _estimate(change, weight)
    if len(both) < 2:
        return Difference(estimate, float("nan"), float("nan"))
    spread = float(_resampled(change, weight).std())
    return Difference(estimate, _sign_flips(change), _POWER * spread)


def _sign_flips(change: NDArray[np.float64]) -> float:
    """Two-sided p-value of the sum of paired differences: all sign patterns of up to 14, else a draw."""
    n = len(change)
    if n <= _ALL_SIGNS:
        signs = np.array(list(product((1, -1), repeat=n)))
    else:  # what was seen is one of them
        draws = np.random.default_rng(0).choice((1, -1), size=(_RESAMPLES, n))
        signs = np.vstack([np.ones((1, n), dtype=draws.dtype), draws])
    sums = np.abs(signs @ change)
    return float((sums >= abs(change.sum()) * (1 - 1e-9)).mean())


def _estimate(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> Estimate:
    """A ratio of sums with the percentile bootstrap over edits; NaN ends below two edits."""
    n = len(top)
    value = float(top.sum() / bottom.sum()) if n else float("nan")
    if n < 2:
        return Estimate(value, float("nan"), float("nan"), n)
    low, high = np.quantile(_resampled(top, bottom), [LEVEL / 2, 1 - LEVEL / 2])
    return Estimate(value, float(low), float(high), n)


def _resampled(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ratios of resampled edits, [resamples]; the same draws for all tables of as many edits."""
    n = len(top)
    drawn = np.random.default_rng(0).integers(n, size=(_RESAMPLES, n))
    ratios: NDArray[np.float64] = top[drawn].sum(axis=1) / bottom[drawn].sum(axis=1)
    return ratios


def fluency(text: str) -> float:
    """Weighted bigram and trigram entropy of a text, in bits: the mean of 2/3 · H2 and 4/3 · H3.

    This is CounterFact's code; the sum of ThinkEdit's equation 4 is twice as large.
    """
    tokens = _TOKEN.findall(text)
    return (2 / 3 * ngram_entropy(tokens, n=2) + 4 / 3 * ngram_entropy(tokens, n=3)) / 2


def ngram_entropy(tokens: Sequence[str], *, n: int) -> float:
    """Entropy in bits of the n-grams of a text; 0 when it is shorter than n tokens."""
    counts = Counter(zip(*(tokens[start:] for start in range(n)), strict=False))
    frequencies = np.array(list(counts.values()), dtype=float) / max(1, counts.total())
    return float(-(frequencies * np.log2(frequencies)).sum()) + 0.0


def inverse_document_frequencies(corpus: Iterable[str]) -> dict[str, float]:
    """Smoothed inverse document frequency, ln((1 + N) / (1 + df)) + 1, of every word of N documents."""
    documents = [set(_WORD.findall(text.lower())) for text in corpus]
    counts = Counter(word for words in documents for word in words)
    return {word: math.log((1 + len(documents)) / (1 + df)) + 1 for word, df in counts.items()}


def consistency(text: str, reference: str, *, idf: Mapping[str, float]) -> float:
    """Cosine of the TF-IDF vectors of a generated text and a reference, from 0 to 1.

    Words of two letters or more count that ``idf`` has; 0 when either text has none.
    """
    one, other = ({w: n * idf[w] for w, n in _counted(t, idf).items()} for t in (text, reference))
    norms = math.hypot(*one.values()) * math.hypot(*other.values())
    product = sum(value * other.get(word, 0.0) for word, value in one.items())
    return product / norms if norms else 0.0


def _counted(text: str, known: Mapping[str, float]) -> Counter[str]:
    return Counter(word for word in _WORD.findall(text.lower()) if word in known)
