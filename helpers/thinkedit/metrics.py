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

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

OVERALL = "overall"
STEP_COLUMNS = ("edit", "chain", "step", "before", "after", "known_before", "known_after")
FACT_COLUMNS = ("edit", "fact", "before", "after", "known_before")


def indirect_fact_recovery(ratios: ArrayLike, lengths: ArrayLike, *, capped: bool = False) -> float:
    """IFR: mean retention ratio R'/R of the deducible chains, weighted by 1/√length (Definition 3).

    Args:
        ratios: R'/R of each chain with R ≠ 0 before the edit, [chains]; may exceed 1.
        lengths: number of steps of the same chains, [chains].
        capped: count ratios above 1 as 1 (the paper caps nothing).

    Returns:
        The weighted mean; 0 without chains, as defined. Means over edits leave such edits out
        (``recovery_per_edit``).

    Raises:
        ValueError: unequal lengths, a negative or undefined ratio, a chain without steps.
    """
    values, steps = _ratios(ratios, capped=capped), np.asarray(lengths, dtype=float)
    if values.shape != steps.shape:
        raise ValueError(f"{values.size} ratios for {steps.size} chain lengths")
    if (steps < 1).any():
        raise ValueError("a chain has no steps; every chain needs at least one question")
    return float(np.average(values, weights=1 / np.sqrt(steps))) if values.size else 0.0


def connected_knowledge_preservation(ratios: ArrayLike, *, capped: bool = False) -> float:
    """CKP: mean of p'/p over the facts about other subjects that were known (Definition 4).

    Args:
        ratios: p'/p of each distinct fact with p ≠ 0, [facts]; may exceed 1.
        capped: count ratios above 1 as 1 (the paper caps nothing).

    Returns:
        The mean; 1 without facts, as defined.

    Raises:
        ValueError: a negative or undefined ratio.
    """
    values = _ratios(ratios, capped=capped)
    return float(values.mean()) if values.size else 1.0


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
        that means leave the edit out).
    """
    levels = pd.concat(
        [chains.assign(steps=OVERALL), chains.assign(steps=chains["length"].astype(str))]
    )
    keys = [*by, "edit", "steps"]
    groups = slices(levels, keys, ["kept", "active", "ratio", "length"])
    rows = [(*key, *_recovery(*columns)) for key, columns in groups]
    names = [*by, "edit", "steps", "chains", "kept", "active", "value", "capped"]
    return pd.DataFrame(rows, columns=names)


def preservation_per_edit(facts: pd.DataFrame, *, by: Sequence[str] = ()) -> pd.DataFrame:
    """CKP of each edit.

    Args:
        facts: one row per (*by*, edit, fact): the distinct facts about other subjects.
        by: columns that separate runs.

    Returns:
        One row per (*by*, edit): ``facts``, ``kept`` (counts), ``value`` and ``capped`` (CKP).

    Raises:
        ValueError: a missing column, a repeated fact, or an impossible probability.
    """
    _check(facts, FACT_COLUMNS, by)
    keys = [*by, "edit"]
    if facts.duplicated([*keys, "fact"]).any():
        repeated = facts.loc[facts.duplicated([*keys, "fact"]), "fact"].iloc[0]
        raise ValueError(f"fact {repeated!r} is listed twice; CKP counts distinct facts")
    groups = slices(facts, keys, ["before", "after", "known_before"])
    rows = [(*key, *_preservation(*columns)) for key, columns in groups]
    return pd.DataFrame(rows, columns=[*keys, "facts", "kept", "value", "capped"])


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


def _ratios(ratios: ArrayLike, *, capped: bool) -> NDArray[np.float64]:
    values = np.asarray(ratios, dtype=float)
    if np.isnan(values).any() or (values < 0).any():
        raise ValueError("a retention ratio is negative or undefined; leave unknown facts out")
    return np.minimum(values, 1.0) if capped else values


def slices(
    table: pd.DataFrame, keys: Sequence[str], columns: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], list[NDArray[Any]]]]:
    """Each group's key, in order, and arrays of its columns: many groups cost far less than as tables."""
    numbers = table.groupby(list(keys)).ngroup().to_numpy()
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    ends = np.append(starts, len(order))[1:]
    names = table[list(keys)].iloc[order[starts]].itertuples(index=False, name=None)
    arrays = [table[column].to_numpy()[order] for column in columns]
    for name, start, end in zip(names, starts, ends, strict=True):
        yield name, [array[start:end] for array in arrays]


def _recovery(
    kept: NDArray[np.bool_],
    active: NDArray[np.bool_],
    ratios: NDArray[np.float64],
    lengths: NDArray[np.int64],
) -> tuple[int, int, int, float, float]:
    values = [
        indirect_fact_recovery(ratios[kept], lengths[kept], capped=capped) if kept.any() else np.nan
        for capped in (False, True)
    ]
    return len(kept), int(kept.sum()), int(active.sum()), values[0], values[1]


def _preservation(
    before: NDArray[np.float64], after: NDArray[np.float64], known: NDArray[np.bool_]
) -> tuple[int, int, float, float]:
    kept = known.astype(bool)
    ratios = after[kept] / before[kept]
    values = [connected_knowledge_preservation(ratios, capped=capped) for capped in (False, True)]
    return len(kept), int(kept.sum()), values[0], values[1]


def _check(table: pd.DataFrame, columns: Sequence[str], by: Sequence[str]) -> None:
    missing = [name for name in (*by, *columns) if name not in table.columns]
    if missing:
        raise ValueError(f"the table lacks the columns {', '.join(missing)}")
    probabilities = table[["before", "after"]]
    if not ((probabilities >= 0) & (probabilities <= 1)).all(axis=None):
        raise ValueError("a probability lies outside [0, 1] or is missing")
    if (table["known_before"].astype(bool) & (table["before"] == 0)).any():
        raise ValueError("a fact counts as known before the edit although its probability is 0")
