"""ThinkEdit's tables from stored scores, ours beside the paper's; needs no model and no benchmark text."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pandas as pd

from helpers.results.archive import ArchiveError
from helpers.results.text import published_table
from helpers.thinkedit import metrics, tables
from helpers.thinkedit.known import DEFAULT, Known

RUN = ["model", "method", "mode"]
METHODS = ("alphaedit", "memit", "rect", "prune", "rome")  # the paper's order
_ORDER = (*METHODS[:-1], "prune-added", METHODS[-1])
STEPS = (metrics.OVERALL, "1", "2", "3", "4", "5")
PAPER_TABLE = {"llama3-8b-instruct": 5, "qwen2.5-7b-instruct": 6}


@dataclass(frozen=True)
class Evaluation:
    """All metrics of one estimator, per edit, with the columns model, method and mode.

    ``recovery`` (IFR by chain length), ``new_recovery`` (probability of the new fact's chains),
    ``chains`` (one row per chain), ``context`` (one row per fact about another
    subject) and ``success`` (efficacy, generalisation, specificity; exact estimator only, else empty).
    """

    estimator: str
    chains: pd.DataFrame
    context: pd.DataFrame
    recovery: pd.DataFrame
    new_recovery: pd.DataFrame
    success: pd.DataFrame


def evaluate_scores(
    scores: pd.DataFrame,
    chains: pd.DataFrame,
    *,
    estimator: str,
    rule: Known = DEFAULT,
) -> Evaluation:
    """All metrics from scores with columns model, method and mode, the unedited ones ("before") included.

    Args:
        scores: tables of one estimator (see ``stored_scores.scores_of``).
        chains: the run's table *chains*.
        estimator: "exact" or "sampled".
        rule: of the exact estimator, see ``tables.exact_facts``.

    Raises:
        ArchiveError: edits without scores of the unedited model.
    """
    parts: dict[str, list[pd.DataFrame]] = {
        field.name: [] for field in fields(Evaluation) if field.name != "estimator"
    }
    for (model, method, mode), after in scores[scores["mode"] != "before"].groupby(RUN, sort=True):
        unedited = scores[(scores["mode"] == "before") & (scores["model"] == model)]
        unedited = unedited[unedited["case_id"].isin(after["case_id"])]
        if missing := set(after["case_id"]) - set(unedited["case_id"]):
            raise ArchiveError(
                f"{model}: {len(missing)} edits by {method}, {mode}, have no scores of the unedited model:"
                " publish them again"
            )
        for part, table in _metrics(unedited, after, chains, estimator, rule).items():
            parts[part].append(table.assign(model=str(model), method=str(method), mode=str(mode)))
    joined = {
        name: pd.concat(found, ignore_index=True) if found else pd.DataFrame()
        for name, found in parts.items()
    }
    return Evaluation(estimator, **joined)


def split_app(evaluation: Evaluation) -> tuple[Evaluation, Evaluation]:
    """The methods as they are, and their versions with APP under the same names, to set side by side."""
    parts: list[dict[str, pd.DataFrame]] = [{}, {}]
    for field in fields(Evaluation):
        if field.name == "estimator":
            continue
        table = getattr(evaluation, field.name)
        with_app = table["method"].str.endswith("+app") if len(table) else pd.Series(dtype=bool)
        plain = table[~with_app].reset_index(drop=True)
        changed = table[with_app].reset_index(drop=True)
        if len(changed):
            changed["method"] = changed["method"].str.removesuffix("+app")
        parts[0][field.name], parts[1][field.name] = plain, changed
    return Evaluation(evaluation.estimator, **parts[0]), Evaluation(
        evaluation.estimator, **parts[1]
    )


def new_fact_table(evaluation: Evaluation, *, mode: str) -> pd.DataFrame:
    """Does the new object stand at the end of the chains that lead to the edited fact?

    Returns:
        One row per (model, method), over chains of two steps and more (one step is the edit
        itself), per edit first and then over the ``n`` edits that have any: mean probability of
        the new fact's chains ``before`` and ``after``, and the share of the distinct facts at the
        chains' ends of which the new object is more probable than the original one
        (``wins_before``, ``wins_after``). ``pooled_before`` and ``pooled_after`` are that share
        over all chains of all edits.
    """
    keys = ["model", "method"]
    new = of_mode(evaluation.new_recovery, mode)
    longer = new[new["length"] > 1]
    wins = ["wins_before", "wins_after"]
    ends = longer.drop_duplicates([*keys, "edit", "last_item"]).groupby([*keys, "edit"])[wins]
    chains = longer.groupby([*keys, "edit"])[["before", "after"]]
    means = pd.concat([chains.mean(), ends.mean()], axis=1).groupby(keys)
    pooled = longer.groupby(keys)[wins].mean()
    table = means.mean().assign(
        pooled_before=pooled["wins_before"], pooled_after=pooled["wins_after"], n=means.size()
    )
    return ordered(table.reset_index())


def paper_techniques() -> pd.DataFrame:
    """The paper's Tables 5 and 6 in the form of ``technique_table``."""
    return _techniques(*(f"thinkedit_table_{n}" for n in PAPER_TABLE.values()))


def repository_techniques() -> pd.DataFrame:
    """IFR and CKP that the authors' repository gives, which are not the paper's."""
    return _techniques("thinkedit_repository")


def _techniques(*names: str) -> pd.DataFrame:
    table = pd.concat([published_table(name) for name in names])
    wide = table.pivot(index=["model", "method"], columns="metric", values="value")
    titles = {"ifr": "IFR", "ckp": "CKP", "efficacy": "Efficacy", "specificity": "Specificity"}
    wide = wide[[metric for metric in titles if metric in wide]]
    return ordered(wide.rename(columns=titles).reset_index())


def paper_lengths() -> pd.DataFrame:
    """The paper's Table 10 in the form of ``length_table``."""
    table = published_table("thinkedit_table_10").query("metric == 'ifr'")
    wide = table.pivot(index=["model", "method"], columns="steps", values="value")
    return ordered(wide.reindex(columns=list(STEPS)).reset_index())


def chain_counts(evaluation: Evaluation, *, mode: str) -> pd.DataFrame:
    """How many chains there are, were deducible before, and are active after, by length.

    Returns:
        One row per (model, method, length): ``chains``, ``deducible`` (every step known before
        editing: D') and ``active`` (every step known after).
    """
    groups = of_mode(evaluation.chains, mode).groupby(["model", "method", "length"], sort=True)
    return groups.agg(
        chains=("kept", "size"), deducible=("kept", "sum"), active=("active", "sum")
    ).reset_index()


def _metrics(
    before: pd.DataFrame,
    after: pd.DataFrame,
    chains: pd.DataFrame,
    estimator: str,
    rule: Known,
) -> dict[str, pd.DataFrame]:
    if estimator == "exact":
        facts = tables.exact_facts(before, after, rule=rule)
    else:
        facts = tables.sampled_facts(before, after)
    folded = metrics.chain_table(tables.steps_table(facts, chains))
    new = tables.new_fact_chains(facts, chains)
    context = tables.context_table(facts, chains)
    found = {
        "chains": folded,
        "context": context,
        "recovery": metrics.recovery_per_edit(folded),
        "new_recovery": new,
    }
    if estimator == "exact":
        found["success"] = tables.success(after)
    return found


def of_mode(table: pd.DataFrame, mode: str) -> pd.DataFrame:
    """The rows of one mode.

    Raises:
        ArchiveError: there are none.
    """
    chosen = table[table["mode"] == mode]
    if chosen.empty:
        raise ArchiveError(f"no results of mode {mode!r}; there are {set(table['mode'])}")
    return chosen


def ordered(table: pd.DataFrame) -> pd.DataFrame:
    """Models by name, methods in the paper's order, others after them."""
    rank = {method: place for place, method in enumerate(_ORDER)}
    order = table["method"].map(lambda m: (rank.get(m.split("+")[0], len(rank)), m))
    return table.assign(_order=order).sort_values(["model", "_order"]).drop(columns="_order")
