"""ThinkEdit's tables of methods: pooled first, as the authors pool, the mean over edits beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from helpers.results.statistics import Estimate, holm, share_interval
from helpers.results.text import INCONCLUSIVE
from helpers.thinkedit import pooled
from helpers.thinkedit.known import Known
from helpers.thinkedit.report_tables import STEPS, Evaluation, evaluate_scores, of_mode, ordered

MEASURES = ("IFR", "CKP")
CAPPED = "IFR capped"
SHARES = ("Efficacy", "Generalisation", "Specificity")
DEEP = "Deep-edited"
_KEYS = ["model", "method"]
Pairs = dict[tuple[str, str], tuple[pd.DataFrame, pd.DataFrame]]


def technique_table(evaluation: Evaluation, *, mode: str) -> pd.DataFrame:
    """IFR, CKP, efficacy and specificity of each method, pooled (the paper's Tables 5 and 6).

    IFR is Definition 3 over the deducible chains of all edits, CKP Definition 4 over their known facts:
    this is how the authors' own overall values come about. Generalisation is added; it and
    specificity are a reconstruction (see ``tables.success``).

    Returns:
        One row per (model, method): each measure with its 95 % interval (``IFR low``, ``IFR high``, …;
        bootstrap over edits, exact for shares that are 0 or 1 in every edit), the ``chains`` and
        ``edits`` behind IFR and the ``facts`` behind CKP. ``IFR capped`` counts a chain that became
        more probable as kept.
    """
    return _table(evaluation, mode, pooled.pooled)


def per_edit_table(evaluation: Evaluation, *, mode: str) -> pd.DataFrame:
    """The same as means over edits, which weigh an edit of one chain like one of a hundred.

    Edits without a deducible chain have no IFR, those without known context no CKP; both are left out.
    """
    return _table(evaluation, mode, pooled.per_edit)


def deep_table(evaluation: Evaluation, *, mode: str) -> pd.DataFrame:
    """Share of edits after which no chain of two to five steps is fully known (Definition 2).

    Only edits of which such a chain was fully known before count; and of an edit's chains only those
    that its record lists.

    Returns:
        One row per (model, method): ``Deep-edited`` with its exact 95 % interval (``Deep-edited low``,
        ``Deep-edited high``) and the number of ``edits``.
    """
    chains = of_mode(evaluation.chains, mode)
    longer = chains[chains["length"] > 1].groupby([*_KEYS, "edit"], as_index=False)
    edits = longer[["kept", "active"]].any()
    rows = []
    for (model, method), own in edits[edits["kept"]].groupby(_KEYS):
        share = share_interval(1.0 - own["active"])
        rows.append({"model": model, "method": method, **_ends(DEEP, share), "edits": share.n})
    return ordered(pd.DataFrame(rows))


def length_table(evaluation: Evaluation, *, mode: str, intervals: bool = False) -> pd.DataFrame:
    """IFR overall and by chain length, pooled (the paper's Table 10).

    Returns:
        One row per (model, method); ``chains`` lists the deducible chains behind overall and each
        length. With ``intervals`` each length has its ends, too: ``1 low``, ``1 high``, ….
    """
    levels = {step: pooled.edit_sums(evaluation, mode=mode, steps=step) for step in STEPS}
    known = of_mode(evaluation.chains, mode)
    rows = []
    for model, method in (
        known.loc[known["kept"], _KEYS].drop_duplicates().sort_values(_KEYS).to_numpy()
    ):
        row: dict[str, object] = {"model": model, "method": method}
        counts = []
        for step, sums in levels.items():
            own = sums[(sums["model"] == model) & (sums["method"] == method)]
            own = own[own["measure"] == "IFR"]
            ends = _ends(step, pooled.pooled(own))
            row |= ends if intervals else {step: ends[step]}
            counts.append(str(int(own["n"].sum())))
        rows.append({**row, "chains": "/".join(counts)})
    return ordered(pd.DataFrame(rows, columns=None if rows else [*_KEYS, *STEPS, "chains"]))


def changes(pairs: Pairs) -> pd.DataFrame:
    """``difference_table`` in numbers, for a figure: before, after, mean, low, high, edits, verdict."""
    rows = []
    for (model, method), (ours, theirs) in pairs.items():
        for measure in MEASURES:
            after, before = (table[table["measure"] == measure] for table in (ours, theirs))
            common = set(after["edit"]) & set(before["edit"])
            change = pooled.difference(before, after)
            if not change.estimate.n:
                continue
            own = [pooled.pooled(t[t["edit"].isin(common)]).mean for t in (before, after)]
            row: dict[str, object] = {"model": model, "method": method, "measure": measure}
            row |= {"before": own[0], "after": own[1], "verdict": change.verdict}
            ends = {key: getattr(change.estimate, key) for key in ("mean", "low", "high")}
            rows.append({**row, **ends, "edits": change.estimate.n})
    names = [*_KEYS, "measure", "before", "after", "verdict", "mean", "low", "high", "edits"]
    return ordered(pd.DataFrame(rows, columns=names))


def difference_table(
    pairs: Mapping[tuple[str, str], tuple[pd.DataFrame, pd.DataFrame]],
) -> pd.DataFrame:
    """Pooled differences on the same edits, tested, with what Holm's correction leaves of them.

    Args:
        pairs: by (model, method), the ``edit_sums`` of what is compared and of what it is compared
            with, in this order; see ``against_method`` and ``against_mode``.

    Returns:
        One row per (model, method, measure): ``difference`` with its 95 % interval (bootstrap over
        edits), ``edits``, ``verdict`` (more, less or inconclusive, by flipping signs), ``Holm`` (the verdict
        that is left when all tests of the table are corrected for), and ``could show``: the smallest
        difference that as many edits would show in four of five cases.
    """
    found = []
    for (model, method), (ours, theirs) in pairs.items():
        for measure in MEASURES:
            parts = (table[table["measure"] == measure] for table in (theirs, ours))
            change = pooled.difference(*parts)
            if change.estimate.n:
                found.append((model, method, measure, change))
    corrected = holm([change.p_value for *_, change in found])
    rows = [
        {
            "model": model,
            "method": method,
            "measure": measure,
            "difference": with_interval(change.estimate, signed=True),
            "edits": change.estimate.n,
            "verdict": change.verdict,
            "Holm": change.verdict if p_value < pooled.LEVEL else INCONCLUSIVE,
            "could show": round(change.could_show, 2),
        }
        for (model, method, measure, change), p_value in zip(found, corrected, strict=True)
    ]
    names = [*_KEYS, "measure", "difference", "edits", "verdict", "Holm", "could show"]
    return pd.DataFrame(rows, columns=names)


def against_method(evaluation: Evaluation, method: str, *, mode: str) -> Pairs:
    """Every method with another one on the same model and edits; empty where that was not run."""
    sums = _by_method(evaluation, mode)
    return {
        key: (own, sums[key[0], method])
        for key, own in sums.items()
        if key[1] != method and (key[0], method) in sums
    }


def against_mode(evaluation: Evaluation, other: Evaluation, *, mode: str, other_mode: str) -> Pairs:
    """Every method in one mode with itself in another, or in another evaluation (with APP)."""
    ours, theirs = _by_method(evaluation, mode), _by_method(other, other_mode)
    return {key: (own, theirs[key]) for key, own in ours.items() if key in theirs}


def rules_table(
    scores: pd.DataFrame, chains: pd.DataFrame, rules: Sequence[Known], *, mode: str
) -> pd.DataFrame:
    """IFR and CKP of every method when "known" means something else (exact estimator).

    Returns:
        One row per (model, rule): known ``facts`` and deducible ``chains`` before editing, then pooled
        IFR and CKP of each method, in columns ``IFR rome``, ``CKP rome``, …
    """
    rows = []
    for rule in rules:
        found = evaluate_scores(
            scores[scores["mode"].isin(["before", mode])], chains, estimator="exact", rule=rule
        )
        table = technique_table(found, mode=mode)
        for model, part in table.groupby("model", sort=True):
            before = scores[
                (scores["model"] == model)
                & (scores["mode"] == "before")
                & (scores["form"] == "fact")
            ]
            row = {"model": model, "rule": str(rule), "facts": int(rule.of(before).sum())}
            row["chains"] = int(part["chains"].max())
            for values in part.to_dict("records"):
                row |= {f"{name} {values['method']}": values[name] for name in MEASURES}
            rows.append(row)
    return pd.DataFrame(rows).sort_values("model", kind="stable", ignore_index=True)


def as_text(table: pd.DataFrame, *, digits: int = 2) -> pd.DataFrame:
    """A table whose measures stand as text with their intervals in brackets."""
    shown = table.copy()
    for name in (*MEASURES, CAPPED, *SHARES, DEEP):
        if name in table:
            ends = zip(table[name], table[f"{name} low"], table[f"{name} high"], strict=True)
            shown[name] = [with_interval(Estimate(*values, 0), digits=digits) for values in ends]
            shown = shown.drop(columns=[f"{name} low", f"{name} high"])
    return shown


def with_interval(estimate: Estimate, *, signed: bool = False, digits: int = 2) -> str:
    """``0.17 [0.05, 0.41]``; without brackets where there is no interval, n/a where no value."""
    if np.isnan(estimate.mean):
        return "n/a"
    sign = "+" if signed else ""
    mean, low, high = (
        f"{value:{sign}.{digits}f}" for value in (estimate.mean, estimate.low, estimate.high)
    )
    return mean if np.isnan(estimate.low) else f"{mean} [{low}, {high}]"


def _table(
    evaluation: Evaluation, mode: str, estimate: Callable[[pd.DataFrame], Estimate]
) -> pd.DataFrame:
    sums = pooled.edit_sums(evaluation, mode=mode)
    capped = pooled.edit_sums(evaluation, mode=mode, capped=True).query("measure == 'IFR'")
    sums = pd.concat([sums, capped.assign(measure=CAPPED)])
    shares = pooled.success_sums(evaluation, mode=mode)
    rows = []
    for model, method in of_mode(evaluation.chains, mode)[_KEYS].drop_duplicates().to_numpy():
        row = {"model": model, "method": method}
        own = sums[(sums["model"] == model) & (sums["method"] == method)]
        for measure in ("IFR", CAPPED, "CKP"):
            row |= _ends(measure, estimate(own[own["measure"] == measure]))
        own_shares = shares[(shares["model"] == model) & (shares["method"] == method)]
        for measure in SHARES if len(own_shares) else ():
            values = own_shares.loc[own_shares["measure"] == measure, "top"].astype(float)
            row |= _ends(measure, share_interval(values))
        counts = own.groupby("measure")["n"]
        row |= {"chains": int(counts.sum().get("IFR", 0)), "facts": int(counts.sum().get("CKP", 0))}
        rows.append(row | {"edits": int(counts.size().get("IFR", 0))})
    return ordered(pd.DataFrame(rows))


def _ends(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.mean, f"{name} low": estimate.low, f"{name} high": estimate.high}


def _by_method(evaluation: Evaluation, mode: str) -> dict[tuple[str, str], pd.DataFrame]:
    groups = pooled.edit_sums(evaluation, mode=mode).groupby(_KEYS, sort=True)
    return {(str(model), str(method)): part for (model, method), part in groups}
