"""From stored scores to the tables that the metrics take; needs no model and no text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from helpers.thinkedit import counterfact
from helpers.thinkedit.edits import Edit
from helpers.thinkedit.known import DEFAULT, Known, mean_log_probability

_SUCCESS = {
    "edit": ("efficacy", counterfact.efficacy),
    "paraphrase": ("generalisation", counterfact.paraphrase_success),
    "neighbour": ("specificity", counterfact.neighbourhood_success),
}


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


def edit_index(edits: Sequence[Edit]) -> pd.DataFrame:
    """How much each edit holds, in numbers alone.

    Returns:
        One row per case_id: ``chains``, ``facts``, and of its deep edit the further ``questions`` and
        how many of them have the edit's own key (``same_key``: they begin as its prompt does).
    """
    # Questions need the model's code, which no table drawn from stored scores does.
    from helpers.thinkedit.deep import beginning, further_questions
    from helpers.thinkedit.probes import kinds_of

    kinds = kinds_of(edits)
    rows = []
    for edit in edits:
        prompts = [question.prompt for question in further_questions(edit, kinds)]
        alike = sum(beginning(prompt) == beginning(edit.prompt) for prompt in prompts)
        rows.append((edit.case_id, len(edit.chains), len(edit.facts), len(prompts), alike))
    return pd.DataFrame(rows, columns=["case_id", "chains", "facts", "questions", "same_key"])


def exact_facts(
    before: pd.DataFrame, after: pd.DataFrame, *, rule: Known = DEFAULT
) -> pd.DataFrame:
    """Probabilities and knowledge of each fact before and after, by exact scoring.

    Args:
        before: table of ``exact_scores`` of the unedited model.
        after: the same under the edits.
        rule: which probability is taken, and from when on a fact is known.

    Returns:
        One row per (case_id, item): ``before``, ``after``, ``known_before``, ``known_after``, and
        ``new_before``, ``new_after`` (probability of the new object, NaN where the fact does not end
        at the original one).
    """
    moments = []
    for name, scores in (("before", before), ("after", after)):
        facts = scores[scores["form"] == "fact"]
        moments.append(
            facts[["case_id", "item"]].assign(
                **{
                    name: rule.probability(facts),
                    f"known_{name}": rule.of(facts),
                    f"new_{name}": rule.probability(facts, "other"),
                }
            )
        )
    merged = moments[0].merge(moments[1], on=["case_id", "item"], validate="1:1")
    wanted = ["before", "after", "known_before", "known_after", "new_before", "new_after"]
    return merged[["case_id", "item", *wanted]]


def sampled_facts(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """The same from shares of sampled responses; known = named at least once, as in the paper."""
    merged = before.merge(
        after, on=["case_id", "item"], suffixes=("_before", "_after"), validate="1:1"
    )
    return pd.DataFrame(
        {
            "case_id": merged["case_id"],
            "item": merged["item"],
            "before": merged["hits_before"] / merged["n_before"],
            "after": merged["hits_after"] / merged["n_after"],
            "known_before": merged["hits_before"] > 0,
            "known_after": merged["hits_after"] > 0,
            "new_before": merged["new_hits_before"] / merged["n_before"],
            "new_after": merged["new_hits_after"] / merged["n_after"],
        }
    )


def steps_table(facts: pd.DataFrame, chains: pd.DataFrame) -> pd.DataFrame:
    """Steps for ``helpers.thinkedit.metrics.chain_table``.

    Args:
        facts: table of ``exact_facts`` or ``sampled_facts``.
        chains: table of ``chain_index``, of the same edits or more.
    """
    chains = chains[chains["case_id"].isin(facts["case_id"])]
    steps = chains.merge(facts, on=["case_id", "item"], how="left", validate="m:1")
    return steps.rename(columns={"case_id": "edit"})


def new_fact_chains(facts: pd.DataFrame, chains: pd.DataFrame) -> pd.DataFrame:
    """Is the *new* fact deducible? The same chains with the new object at their end.

    The paper's first limitation. A chain's last step then asks for the new object.

    Returns:
        One row per (edit, chain): length, ``last_item`` (its last fact), ``before`` and ``after``
        (products of the steps' probabilities), ``wins_before`` and ``wins_after``: whether the new
        object is more probable than the original one at the chain's last step.
    """
    steps = steps_table(facts, chains).sort_values(["edit", "chain", "step"])
    last = ~steps.duplicated(["edit", "chain"], keep="last")
    for moment in ("before", "after"):
        steps[f"wins_{moment}"] = (steps[f"new_{moment}"] > steps[moment]) & last
        steps[moment] = steps[moment].where(~last, steps[f"new_{moment}"])
    groups = steps.groupby(["edit", "chain"], sort=True)
    return groups.agg(
        length=("step", "size"),
        last_item=("item", "last"),
        before=("before", "prod"),
        after=("after", "prod"),
        wins_before=("wins_before", "any"),
        wins_after=("wins_after", "any"),
    ).reset_index()


def context_table(facts: pd.DataFrame, chains: pd.DataFrame) -> pd.DataFrame:
    """Facts about other subjects, for ``preservation_per_edit``."""
    others = chains.loc[~chains["own"], ["case_id", "item"]].drop_duplicates()
    table = others.merge(facts, on=["case_id", "item"], validate="1:1")
    return table.rename(columns={"case_id": "edit", "item": "fact"})


def success(scores: pd.DataFrame) -> pd.DataFrame:
    """Efficacy, generalisation and specificity of each edit from exact scores after it.

    Compares mean-token log-probabilities of the new and the original object, so that neither gains
    by being short. Generalisation and specificity are a reconstruction: KnowGIC has neither
    paraphrases nor neighbourhood prompts.

    Returns:
        One row per (case_id, metric) with ``value``, a share of prompts.
    """
    means = {answer: mean_log_probability(scores, answer) for answer in ("other", "original")}
    rows = []
    for (case_id, form), (new, true) in slices(
        scores.assign(**means), ["case_id", "form"], list(means)
    ):
        if form in _SUCCESS:
            name, measure = _SUCCESS[form]
            rows.append((case_id, name, measure(new=new, true=true)))
    return pd.DataFrame(rows, columns=["case_id", "metric", "value"])


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


def other_forms(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """How often reverse and yes/no questions about the facts still find their answer.

    Returns:
        One row per (case_id, form, item): probability of naming the answer ``before`` and ``after``
        (yes/no: share of "yes" against "no").
    """
    keys = ["case_id", "form", "item"]
    tables = []
    for table in (before, after):
        chosen = table[table["form"].isin(["reverse", "yes_no"])]
        named = DEFAULT.probability(chosen)
        yes = 1 / (1 + np.exp(chosen["other_sum"] - chosen["original_sum"]))
        p = np.where(chosen["form"] == "reverse", named, yes)
        tables.append(chosen[keys].assign(p=p))
    merged = tables[0].merge(tables[1], on=keys, suffixes=("_before", "_after"), validate="1:1")
    return merged.rename(columns={"p_before": "before", "p_after": "after"})
