"""Does locating help editing? What each rule that names a fact's layer costs, against a ceiling.

With g[t, i, l] the gain of fact i edited at layer l to its new answer t (``metrics.edit_gains``), a rule that
names layer r(i) costs

    regret(i) = mean over t of  g[t, i, oracle(t, i)] − g[t, i, r(i)]
    oracle(t, i) = argmax over l of  g[t', i, l],  t' the fact's other answer

The oracle's layer is thus never chosen on the edits that it is scored on. Nor is the best fixed layer, which
is the best for all other facts. A rule's regret can be negative. The oracle is the same for all rules: it
cancels in a difference of two. ``helpers.klob.ceiling`` makes the runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from helpers.klob.metrics import ANY_LAYER, BEST_FIXED, ORACLE, Numbers, edit_gains
from helpers.klob.tables import LABELS
from helpers.results.archive import Run
from helpers.results.notes import ShownTable, with_note, with_power, with_relations
from helpers.results.statistics import (
    LEVEL,
    Contrast,
    Estimate,
    detectable,
    holm,
    mean_interval,
    paired,
)
from helpers.results.text import with_interval, with_p_values

LayerIndices = NDArray[np.int64]  # among the layers that are edited
PRESET_LAYER = "preset"
RULE_LABELS = {
    **LABELS,
    ORACLE: "best by the fact's other edit (oracle)",
    PRESET_LAYER: "the preset's layer",
}
TOKEN_LABELS = {"last": "last", "all": "all", "subject": "subject's last", "": ""}
NULLS = ("any fact", "same relation", "same relation and answer")


@dataclass(frozen=True)
class LayerGains:
    """The gains of facts at the layers at which they were edited, to each of two answers."""

    gains: Numbers  # [targets, facts, layers]
    facts: pd.MultiIndex  # levels example, relation and answer
    layers: tuple[int, ...]
    left_out: int = 0  # facts of which an edit failed

    @cached_property
    def mean_gains(self) -> Numbers:
        """The gains' means over the two answers [facts, layers]."""
        return self.gains.mean(axis=0)

    def gain_at(self, indices: LayerIndices) -> Numbers:
        """Each fact's mean gain at its layer [facts]; ``indices`` are [facts], or [targets, facts]."""
        chosen = np.broadcast_to(indices, self.gains.shape[:2])[..., None]
        return np.take_along_axis(self.gains, chosen, axis=2)[..., 0].mean(axis=0)

    @cached_property
    def oracle(self) -> LayerIndices:
        """The layer of the highest gain to the fact's other answer [targets, facts]."""
        return self.gains.argmax(axis=2)[::-1]

    @cached_property
    def best_fixed(self) -> LayerIndices:
        """The layer of the highest mean gain over all other facts [facts]."""
        of_others = self.mean_gains.sum(axis=0) - self.mean_gains  # [facts, layers]
        return of_others.argmax(axis=1)

    @cached_property
    def best_on_all(self) -> int:
        """The layer of the highest mean gain over all facts, those included that it is scored on."""
        return int(self.mean_gains.mean(axis=0).argmax())

    def regret(self, gain: Numbers) -> pd.Series:
        """How far gains [facts] stay behind the oracle's, by fact."""
        return pd.Series(self.gain_at(self.oracle) - gain, index=self.facts)


def layer_gains(edits: pd.DataFrame) -> LayerGains:
    """The facts of a stored table of edits all of which were made."""
    gains_of_targets = [
        edit_gains(edits_to_target) for _, edits_to_target in edits.groupby("target")
    ]
    examples = gains_of_targets[0].index
    for gains in gains_of_targets[1:]:
        examples = examples.intersection(gains.index)
    facts = edits[["example", "relation", "answer"]].drop_duplicates()
    complete_facts = facts[facts["example"].isin(examples)].sort_values("example")
    gains_by_target = [
        gains.loc[complete_facts["example"]].to_numpy(dtype=float) for gains in gains_of_targets
    ]
    return LayerGains(
        np.stack(gains_by_target),
        pd.MultiIndex.from_frame(complete_facts),
        tuple(int(layer) for layer in gains_of_targets[0].columns),
        left_out=len(facts) - len(complete_facts),
    )


@dataclass(frozen=True)
class Located:
    """The layers that a locator names."""

    locator: str
    tokens: str  # that it scores
    indices: LayerIndices  # of the layer with the highest mass [facts]


def located_layers(run: Run, facts: LayerGains) -> list[Located]:
    """Each locator's layers, in the order of publication."""
    examples = facts.facts.get_level_values("example")
    located = []
    for key in run.keys:
        if key.kind == "layers":
            table = run.tables[str(key)]
            mass = table.pivot(index="example", columns="layer", values="mass")
            at_edited_layers = mass.loc[examples, list(facts.layers)].to_numpy(float)
            tokens = str(run.about.settings[str(key)]["tokens"])
            located.append(Located(key.method, tokens, at_edited_layers.argmax(axis=1)))
    return located


@dataclass(frozen=True)
class RuleRegret:
    """What a rule costs, and how much more than the best fixed layer."""

    rule: str  # a locator, or one of those without
    tokens: str  # that a locator scores; empty: the rule needs no locator
    regret: pd.Series  # by fact
    against_fixed: pd.Series  # by fact, negative where the rule is better

    @property
    def is_locator(self) -> bool:
        """Whether a locator names the layer."""
        return bool(self.tokens)

    @property
    def estimate(self) -> Estimate:
        """The mean regret with its interval."""
        return mean_interval(self.regret)

    @property
    def contrast(self) -> Contrast:
        """The test against the best fixed layer."""
        return paired(0 * self.against_fixed, self.against_fixed, "number")


def rule_regrets(run: Run) -> list[RuleRegret]:
    """The regret of every rule of a stored run: first those without a locator."""
    facts = layer_gains(run.tables["edits"])
    preset_layer = int(run.about.settings["edits"]["preset_layer"])
    preset_index = np.full(len(facts.facts), facts.layers.index(preset_layer))
    gains = {
        (ORACLE, ""): facts.gain_at(facts.oracle),
        (BEST_FIXED, ""): facts.gain_at(facts.best_fixed),
        (PRESET_LAYER, ""): facts.gain_at(preset_index),
        (ANY_LAYER, ""): facts.mean_gains.mean(axis=1),
    }
    for located in located_layers(run, facts):
        gains[located.locator, located.tokens] = facts.gain_at(located.indices)
    fixed_regret = facts.regret(gains[BEST_FIXED, ""])
    regrets = []
    for (rule, tokens), gain in gains.items():
        regret = facts.regret(gain)
        regrets.append(RuleRegret(rule, tokens, regret, regret - fixed_regret))
    return regrets


def corrected_p_values(regrets: Sequence[RuleRegret]) -> dict[tuple[str, str], float]:
    """Holm's p-values of all locators' tests against the best fixed layer, by locator and tokens."""
    locators = [regret for regret in regrets if regret.is_locator]
    corrected = holm([regret.contrast.p_value for regret in locators])
    return {
        (regret.rule, regret.tokens): float(p_value)
        for regret, p_value in zip(locators, corrected, strict=True)
    }


def better_locators(regrets: Sequence[RuleRegret]) -> list[RuleRegret]:
    """The locators that lose less than the best fixed layer, after Holm's correction."""
    corrected = corrected_p_values(regrets)
    return [
        regret
        for regret in regrets
        if regret.is_locator
        and corrected[regret.rule, regret.tokens] < LEVEL
        and regret.against_fixed.mean() < 0
    ]


def rule_regret_text(run: Run) -> ShownTable:
    """Regret by rule, and each locator's test against the best fixed layer (Holm over locators).

    ``could detect`` is at 5 % divided by the number of locators' tests.
    """
    regrets = sorted(rule_regrets(run), key=lambda regret: regret.estimate.mean)
    locators = [regret for regret in regrets if regret.is_locator]
    tests = _test_count(regret.contrast for regret in locators)
    least_detectable = {
        (regret.rule, regret.tokens): detectable(regret.against_fixed, tests=tests)
        for regret in locators
    }
    rows = []
    p_values = []
    for regret in regrets:
        is_fixed = regret.rule == BEST_FIXED
        contrast = regret.contrast
        difference = "" if is_fixed else with_interval(contrast.difference, signed=True)
        least = least_detectable.get((regret.rule, regret.tokens))
        rows.append(
            {
                "layer chosen by": RULE_LABELS.get(regret.rule, regret.rule),
                "tokens": TOKEN_LABELS[regret.tokens],
                "regret, nats per token": with_interval(regret.estimate),
                "minus one layer for all": difference,
                "could detect": "" if least is None else _detectable_text(least),
            }
        )
        p_values.append(float("nan") if is_fixed else contrast.p_value)
    table = with_p_values(rows, p_values, [regret.is_locator for regret in regrets])
    table = table.set_index(["layer chosen by", "tokens"])
    fact_counts = [regret.against_fixed.count() for regret in locators]
    shown = with_power(
        table, least_detectable.values(), fact_counts, unit=" nats", digits=2, tests=tests
    )
    shown = with_relations(shown, [regret.regret for regret in regrets])
    return with_note(shown, *_notes(run))


def _test_count(contrasts: Iterable[Contrast]) -> int:
    """The number of contrasts that are tested, at least one."""
    return max(1, sum(not np.isnan(contrast.p_value) for contrast in contrasts))


def _detectable_text(least: float) -> str:
    """A detectable difference, or a dash where there is no test."""
    return "–" if np.isnan(least) else f"{least:.2f}"


def _notes(run: Run) -> list[str]:
    """What must be known of the ceiling and the fixed layer next to their numbers."""
    facts = layer_gains(run.tables["edits"])
    layers, counts = np.unique(np.array(facts.layers)[facts.best_fixed], return_counts=True)
    counts_in_words = ", ".join(
        f"{layer} for {count}" for layer, count in zip(layers, counts, strict=True)
    )
    by_chance_too = facts.gains.max(axis=2).mean() - facts.gain_at(facts.oracle).mean()
    regret_of_best = facts.regret(facts.mean_gains[:, facts.best_on_all]).mean()
    notes = [
        f"edited layers {', '.join(map(str, facts.layers))}",
        f"the best layer for all other facts: {counts_in_words} facts",
        f"layer {facts.layers[facts.best_on_all]}, chosen on all facts and used for all:"
        f" {regret_of_best:.2f}",
        f"a layer chosen on the edits that it is scored on: {by_chance_too:.2f} nats above the oracle",
    ]
    if facts.left_out:
        notes.append(f"excluded, since an edit failed: {facts.left_out}")
    return notes


def is_donor(facts: pd.MultiIndex) -> dict[str, NDArray[np.bool_]]:
    """Whose layers may replace a fact's own, by null [facts, donors]; never the fact's."""
    relations = facts.get_level_values("relation").to_numpy()
    answers = facts.get_level_values("answer").to_numpy()
    is_other = ~np.eye(len(facts), dtype=bool)
    same_relation = is_other & (relations[:, None] == relations)
    return {
        NULLS[0]: is_other,
        NULLS[1]: same_relation,
        NULLS[2]: same_relation & (answers[:, None] == answers),
    }


def own_layers_worth(
    facts: LayerGains, indices: LayerIndices, donors: NDArray[np.bool_]
) -> pd.Series:
    """By fact, the gain at its own layer minus the mean gain at its donors'; NaN without a donor.

    Args:
        facts: whose gains are compared.
        indices: of each fact's layer [facts].
        donors: whose layers replace a fact's own [facts, donors].
    """
    gain_at_layer_of = facts.mean_gains[:, indices]  # [facts, donors]
    donor_counts = donors.sum(axis=1)
    sums = np.where(donors, gain_at_layer_of, 0.0).sum(axis=1)
    mean_of_donors = np.where(donor_counts > 0, sums / np.maximum(donor_counts, 1), np.nan)
    return pd.Series(facts.gain_at(indices) - mean_of_donors, index=facts.facts)


def regret_nulls_text(run: Run) -> ShownTable:
    """What a fact's own located layer gains over those of other facts (p: sign flips, Holm over locators)."""
    facts = layer_gains(run.tables["edits"])
    located = located_layers(run, facts)
    columns = {
        "locator": [RULE_LABELS.get(layers.locator, layers.locator) for layers in located],
        "tokens": [TOKEN_LABELS[layers.tokens] for layers in located],
    }
    notes = []
    samples = []
    for null, donors in is_donor(facts.facts).items():
        worths = [own_layers_worth(facts, layers.indices, donors) for layers in located]
        contrasts = [paired(0 * worth, worth, "number") for worth in worths]
        corrected = holm([contrast.p_value for contrast in contrasts])
        columns[null] = [
            f"{with_interval(contrast.difference, signed=True)}{_p_in_brackets(p_value)}"
            for contrast, p_value in zip(contrasts, corrected, strict=True)
        ]
        fact_counts = [int(worth.count()) for worth in worths]
        tests = _test_count(contrasts)
        least_detectable = [detectable(worth, tests=tests) for worth in worths]
        power = with_power(pd.DataFrame(), least_detectable, fact_counts, digits=2, tests=tests)
        if power.note:
            notes.append(f"{null}: {power.note}")
        samples += worths
    table = pd.DataFrame(columns).set_index(["locator", "tokens"])
    return with_note(with_relations(table, samples), *notes)


def _p_in_brackets(p_value: float) -> str:
    return "" if np.isnan(p_value) else f" (p = {p_value:.3f})"
