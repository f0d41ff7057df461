"""Is an edited-out fact still deducible, and what else was lost? IFR and CKP of ThinkEdit.

Definitions 3 and 4 of *ThinkEdit* (published as *ThinkEval*, where CKP is called Preservation). All
functions are pure and take probabilities p, p' that a fact's original object is the model's answer
before and after an edit; how they were estimated (share of sampled responses, or exact
log-probabilities) is the caller's business and is told through ``known`` columns:

- sampled: known = probability is not zero, as in the paper;
- exact: probabilities are never zero, so known needs a threshold.

Tables are long. *Steps* have one row per (edit, chain, step) with ``before``, ``after`` (probabilities)
and ``known_before``, ``known_after`` (booleans); *facts* have one row per (edit, fact) with
``before``, ``after`` and ``known_before``. Any further columns named in ``by`` (model, method, mode,
estimator) separate runs.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

OVERALL = "overall"
STEP_COLUMNS = ("edit", "chain", "step", "before", "after", "known_before", "known_after")
FACT_COLUMNS = ("edit", "fact", "before", "after", "known_before")


def recovery_terms(chains: pd.DataFrame) -> pd.DataFrame:
    """The chains that IFR averages (Definition 3): ``ratio`` R'/R, with the ``weight`` 1/√length.

    Args:
        chains: table of ``chain_table``; those outside D' are left out.
    """
    kept = chains[chains["kept"].astype(bool)]
    return kept.assign(weight=kept["length"] ** -0.5)


def preservation_terms(facts: pd.DataFrame) -> pd.DataFrame:
    """The facts that CKP averages (Definition 4): ``ratio`` p'/p, all with the ``weight`` 1.

    Args:
        facts: table with ``FACT_COLUMNS``; those that were not known before are left out.
    """
    known = facts[facts["known_before"].astype(bool)]
    return known.assign(ratio=known["after"] / known["before"], weight=1.0)


def sums(terms: pd.DataFrame, keys: Sequence[str], *, capped: bool = False) -> pd.DataFrame:
    """Numerator ``top`` and denominator ``bottom`` of IFR or CKP, and the ``n`` terms of each group.

    IFR and CKP are top/bottom, of one edit or, with the sums of several added up, pooled.

    Args:
        terms: from ``recovery_terms`` or ``preservation_terms``.
        keys: columns that separate groups.
        capped: count ratios above 1 as 1 (the paper caps nothing).
    """
    ratio = terms["ratio"].clip(upper=1.0) if capped else terms["ratio"]
    parts = terms.assign(top=ratio * terms["weight"], bottom=terms["weight"])
    groups = parts.groupby(list(keys), sort=True, as_index=False)
    return groups.agg(top=("top", "sum"), bottom=("bottom", "sum"), n=("top", "size"))


def chain_table(steps: pd.DataFrame, *, by: Sequence[str] = ()) -> pd.DataFrame:
    """Fold steps into chains: R, R' and their ratio.

    Args:
        steps: one row per (*by*, edit, chain, step), see the module's text.
        by: columns that separate runs.

    Returns:
        One row per chain: *by*, edit, chain, length, ``before`` (R), ``after`` (R'), ``kept`` (every
        step known before: D'), ``active`` (every step known after), ``ratio`` (R'/R, NaN outside D').

    Raises:
        ValueError: a missing column, a probability outside [0, 1], steps that are not 1 … n, or a
            fact called known with probability 0.
    """
    _check(steps, STEP_COLUMNS, by)
    keys = [*by, "edit", "chain"]
    numbering = steps.groupby(keys, sort=False)["step"].agg(["min", "max", "nunique", "size"])
    proper = (numbering["min"] == 1) & (numbering["max"] == numbering["size"])
    proper &= numbering["nunique"] == numbering["size"]
    if not proper.all():
        raise ValueError(f"steps of chain {numbering.index[~proper][0]} are not numbered 1 … n")
    groups = steps.groupby(keys, sort=True)
    chains = groups.agg(
        length=("step", "size"),
        before=("before", "prod"),
        after=("after", "prod"),
        kept=("known_before", "all"),
        active=("known_after", "all"),
    ).reset_index()
    chains["ratio"] = (chains["after"] / chains["before"].where(chains["kept"])).astype(float)
    return chains


def recovery_per_edit(chains: pd.DataFrame, *, by: Sequence[str] = ()) -> pd.DataFrame:
    """IFR of each edit, overall and for each chain length.

    Args:
        chains: table of ``chain_table``.
        by: columns that separate runs.

    Returns:
        One row per (*by*, edit, ``steps``), where steps is "overall" or a length as text: ``chains``,
        ``kept``, ``active`` (counts), ``value`` and ``capped`` (IFR; NaN where no chain is kept, so
        that means leave the edit out; Definition 3 sets 0).
    """
    levels = pd.concat(
        [chains.assign(steps=OVERALL), chains.assign(steps=chains["length"].astype(str))]
    )
    keys = [*by, "edit", "steps"]
    counts = levels.groupby(keys, sort=True).agg(
        chains=("kept", "size"), kept=("kept", "sum"), active=("active", "sum")
    )
    return _ratios(counts, recovery_terms(levels))


def preservation_per_edit(facts: pd.DataFrame, *, by: Sequence[str] = ()) -> pd.DataFrame:
    """CKP of each edit.

    Args:
        facts: one row per (*by*, edit, fact): the distinct facts about other subjects.
        by: columns that separate runs.

    Returns:
        One row per (*by*, edit): ``facts``, ``kept`` (counts), ``value`` and ``capped`` (CKP; 1
        without known facts, as defined).

    Raises:
        ValueError: a missing column, a repeated fact, or an impossible probability.
    """
    _check(facts, FACT_COLUMNS, by)
    keys = [*by, "edit"]
    if facts.duplicated([*keys, "fact"]).any():
        repeated = facts.loc[facts.duplicated([*keys, "fact"]), "fact"].iloc[0]
        raise ValueError(f"fact {repeated!r} is listed twice; CKP counts distinct facts")
    counts = facts.groupby(keys, sort=True).agg(
        facts=("known_before", "size"), kept=("known_before", "sum")
    )
    return _ratios(counts, preservation_terms(facts)).fillna({"value": 1.0, "capped": 1.0})


def pooled_recovery(chains: pd.DataFrame, *, by: Sequence[str] = ()) -> pd.DataFrame:
    """IFR over all chains of all edits at once, columns as in ``recovery_per_edit`` without edit.

    Edits have very different numbers of chains, so this figure belongs to the largest few.
    """
    pooled = recovery_per_edit(chains.assign(edit="all"), by=by)
    return pooled.drop(columns="edit")


def pooled_preservation(facts: pd.DataFrame, *, by: Sequence[str] = ()) -> pd.DataFrame:
    """CKP over the facts of all edits at once, columns as in ``preservation_per_edit`` without edit."""
    distinct = facts["edit"].astype(str) + "\t" + facts["fact"].astype(str)
    return preservation_per_edit(facts.assign(edit="all", fact=distinct), by=by).drop(
        columns="edit"
    )


def combine_steps(values: ArrayLike, chains: ArrayLike) -> float:
    """Overall IFR that follows from n-step IFRs by Definition 3, if every chain is in D'.

    Args:
        values: IFR of the chains of 1, 2, … steps, [lengths].
        chains: how many chains have that length, [lengths].
    """
    counts = np.asarray(chains, dtype=float)
    weights = counts / np.sqrt(np.arange(1, counts.size + 1))
    return float(np.average(np.asarray(values, dtype=float), weights=weights))


def _ratios(counts: pd.DataFrame, terms: pd.DataFrame) -> pd.DataFrame:
    """The counts of each group with the ``value`` of its terms and its ``capped`` one; NaN without."""
    keys = [str(name) for name in counts.index.names]
    for name, capped in (("value", False), ("capped", True)):
        found = sums(terms, keys, capped=capped).set_index(keys)
        counts[name] = found["top"] / found["bottom"]
    return counts.reset_index()


def _check(table: pd.DataFrame, columns: Sequence[str], by: Sequence[str]) -> None:
    missing = [name for name in (*by, *columns) if name not in table.columns]
    if missing:
        raise ValueError(f"the table lacks the columns {', '.join(missing)}")
    probabilities = table[["before", "after"]]
    if not ((probabilities >= 0) & (probabilities <= 1)).all(axis=None):
        raise ValueError("a probability lies outside [0, 1] or is missing")
    if (table["known_before"].astype(bool) & (table["before"] == 0)).any():
        raise ValueError("a fact counts as known before the edit although its probability is 0")
