"""Do scorers agree? Edits' success under every scorer, and correct answers that generated text still names.

A state is a method or ``unedited``. *figures/data/scorers* holds, for each method, scores before and after
by name (``rome+app``) and, for each state, the known answers that its responses name (``named by
rome+app``). All states share their random numbers; ``unedited, again``, the draw with which their lists
are compared, has others, so that an edit that changes nothing loses nothing beyond ``unedited``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from helpers.editing.editors import distinct, method_label
from helpers.peak.findings import HARD_FACTORS
from helpers.peak.metrics import METRICS, metrics_table
from helpers.peak.tables import Metrics
from helpers.results.archive import NAMED_BY, Run, TableKey
from helpers.results.notes import ShownTable, with_power, with_relations
from helpers.results.statistics import (
    LEVEL,
    Contrast,
    Estimate,
    Kind,
    Numbers,
    detectable,
    holm,
    interval,
    mean_interval,
    paired,
    relation_count_of,
    share_interval,
    standard_error,
    too_few,
    unit_draws,
    units_of,
)
from helpers.results.text import in_points, with_interval
from helpers.samples.design import POWER

UNEDITED = "unedited"
ASKED = {  # scorers that read probabilities, and their titles
    "ES": "probability:\nabove the list",
    "GS": "the same,\nparaphrases",
    "tokens": "token match",
    "tokens, paraphrases": "token match,\nparaphrases",
    "choice": "multiple\nchoice",
    "yes": "is it true?\n(yes)",
    "negated": "is it false?\n(no)",
}
GENERATED = {  # scorers that search responses for o*
    "free, greedy": "free text,\ngreedy",
    "free, sampled": "free text,\nsampled",
    "asked, greedy": "instructed,\ngreedy",
    "asked, sampled": "instructed,\nsampled",
    "chat, greedy": "chat,\ngreedy",
    "chat, sampled": "chat,\nsampled",
}
SCORERS = {**ASKED, **GENERATED}
_FRACTIONS = ("tokens", "tokens, paraphrases", "choice")  # of many values; the others are shares
_ENDS = [100 * LEVEL / 2, 100 - 100 * LEVEL / 2]  # percentiles of a 95 % interval
_AGREEMENT_COLUMNS = [
    "scorer",
    "other",
    "rank correlation",
    "same",
    "opposite",
    "inconclusive",
    "n",
]
_RIGHT = {"choice": "target", "yes": "yes", "negated": "no"}
_TOKENS = {"edit": "tokens", "paraphrase": "tokens, paraphrases"}
PROBABILITY = "P(o*)"  # a column of ``successes`` that is no scorer: it decides nothing by itself
_PREDICTED = {
    "AFF_hard": "fewer answers recalled",
    "ANF_hard": "new hard false answers",
}

# Columns of ``list_table`` and their titles. A table's titles differ, these by a blank that nobody sees.
LIST_TITLES = {
    "recall": "list recall",
    "recall_change": "- unedited",
    "recall_holm": "Holm",
    "new_hard": "new hard false",
    "new_hard_change": "- unedited ",
    "new_hard_holm": "Holm ",
    "target": "o* named",
}


def named_table(state: str, *, second_draw: bool = False) -> str:
    """Name of the published table of the known answers that a state's responses name.

    Of the unedited state there are two: of its own responses, and of a ``second_draw``.
    """
    return str(TableKey(NAMED_BY, state, "again" if second_draw else ""))


def successes(scores: pd.DataFrame, answers_named: pd.DataFrame) -> pd.DataFrame:
    """Success of the appended answer o* under each scorer, a row a record, as fractions.

    ES, GS, and AFF and ANF against hard false answers: ``metrics_table``. tokens: share of o*'s tokens
    that are the most probable ones, given those before (EasyEdit's efficacy). P(o*): the whole answer's
    probability after the edit, at the edit prompt. choice: share of the orders
    in which o*'s letter is the most probable. Responses: share that names o*. yes, negated: whether the
    edit's truth is more probable than its denial.
    """
    metrics = metrics_table(scores)[["ES", "GS", *HARD_FACTORS]]
    target_scores = scores[(scores["list"] == "target") & scores["role"].isin([*_TOKENS])]
    target_scores = target_scores.assign(share=target_scores["top_after"] / target_scores["tokens"])
    token_shares = target_scores.groupby(["case_id", "role"])["share"].mean()
    at_edit_prompt = target_scores[target_scores["role"] == "edit"].set_index("case_id")
    sums_after = at_edit_prompt["sum_after"].astype(float).rename(PROBABILITY)
    probabilities = sums_after.map(np.exp)
    comparisons = scores[scores["role"].isin([*_RIGHT])]
    comparisons = comparisons.sort_values("sum_after", kind="stable")
    most_probable = comparisons.groupby(["case_id", "role", "prompt_index"])["list"].last()
    is_right = most_probable == most_probable.index.get_level_values("role").map(_RIGHT)
    by_scorer: list[pd.DataFrame | pd.Series] = [
        token_shares.unstack().rename(columns=_TOKENS),
        probabilities,
        is_right.groupby(["case_id", "role"]).mean().unstack(),
        naming_shares(answers_named),
    ]
    return metrics.join(by_scorer)


def naming_shares(answers_named: pd.DataFrame) -> pd.DataFrame:
    """Share of a record's responses that name o*, a row a record, a column a scorer of ``GENERATED``."""
    answers_with_hits = answers_named.assign(hit=answers_named["list"] == "target")
    hits_of_responses = (
        answers_with_hits.groupby(["case_id", "form", "sample"])["hit"].any().reset_index()
    )
    response_kinds = hits_of_responses["form"] + np.where(
        hits_of_responses["sample"] > 0, ", sampled", ", greedy"
    )
    return hits_of_responses.groupby(["case_id", response_kinds])["hit"].mean().unstack()


def lists_in_text(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """What all sampled responses to a record name, after and before: a row a record of both tables.

    recall: share of the correct answers named before that are named after, NaN where none was;
    new_hard: number of hard false answers newly named; target: whether o* is named.
    """
    named_before = _named_in_samples(before)
    named_after = _named_in_samples(after)
    measures_of_records = {}
    for case_id in named_before:
        if case_id not in named_after:
            continue
        correct_before = {answer for answer in named_before[case_id] if answer[0] == "correct"}
        newly_named = named_after[case_id] - named_before[case_id]
        new_hard = {answer for answer in newly_named if answer[0] == "hard"}
        recalled = correct_before & named_after[case_id]
        recall = len(recalled) / len(correct_before) if correct_before else np.nan
        target_named = float(("target", 0) in named_after[case_id])
        measures_of_records[case_id] = recall, len(new_hard), target_named
    column_names = ["recall", "new_hard", "target"]
    return pd.DataFrame.from_dict(measures_of_records, orient="index", columns=column_names)


def _named_in_samples(answers_named: pd.DataFrame) -> dict[object, set[tuple[str, int]]]:
    """What the sampled responses of each case_id name: the list and the index of each answer."""
    sampled_answers = answers_named[answers_named["sample"] > 0]
    return {
        case_id: set(zip(answers_of_record["list"], answers_of_record["answer_index"], strict=True))
        for case_id, answers_of_record in sampled_answers.groupby("case_id")
    }


@lru_cache(maxsize=4)  # tables and figures of a notebook begin with the same runs
def by_state(run: Run) -> dict[str, pd.DataFrame]:
    """``successes`` and ``lists_in_text`` of a published run's states, by label; the unedited first."""
    stored_tables = {
        table_name: table.astype({"list": str}) for table_name, table in run.tables.items()
    }
    scored_methods = [key.method for key in run.keys if key.is_method]
    methods = [method for method in scored_methods if named_table(method) in stored_tables]
    states = [UNEDITED, *methods]
    named_by_state = {
        state: stored_tables[named_table(state)].astype({"form": str}) for state in states
    }
    named_in_second_draw = stored_tables[named_table(UNEDITED, second_draw=True)].astype(
        {"form": str}
    )
    relation_of_case = {
        int(case_id): relation for case_id, relation in run.about.caption["relations"].items()
    }
    scores_by_state = {method: stored_tables[method].astype({"role": str}) for method in methods}
    longest_scores = max(scores_by_state.values(), key=len)
    scores_by_state[UNEDITED] = longest_scores.assign(
        sum_after=longest_scores["sum_before"], top_after=longest_scores["top_before"]
    )
    measures_by_state = {}
    for state in states:
        lists_of_state = lists_in_text(named_in_second_draw, named_by_state[state])
        successes_of_state = successes(scores_by_state[state], named_by_state[state])
        measures_of_state = successes_of_state.join(lists_of_state)
        case_ids = measures_of_state.index
        index_levels = [case_ids, case_ids.map(relation_of_case).rename("relation")]
        label = state if state == UNEDITED else method_label(state)
        measures_by_state[label] = measures_of_state.set_index(index_levels)
    return measures_by_state


def scorer_table(tables_by_state: Metrics) -> ShownTable:
    """Mean success in percent with its 95 % interval as text, states as rows, scorers as columns."""
    rows_of_states = {
        state: {
            scorer: in_points(interval(table[scorer], kind_of_scorer(scorer)))
            for scorer in SCORERS
            if scorer in table
        }
        for state, table in tables_by_state.items()
    }
    means_in_words = pd.DataFrame.from_dict(rows_of_states, orient="index").rename_axis("method")
    return with_relations(
        means_in_words,
        [t[scorer] for t in tables_by_state.values() for scorer in SCORERS if scorer in t],
    )


def kind_of_scorer(scorer: str) -> Kind:
    """How a scorer's values are distributed, which decides their interval and tests."""
    return "fraction" if scorer in _FRACTIONS else "share"


def app_cost_by_scorer(tables_by_state: Metrics) -> dict[str, Contrast]:
    """What APP changes under each scorer, in fractions: of each record the mean over editors that have it.

    A difference is success with APP minus success without, on the records that have both under all editors.
    """
    means_by_scorer = _means_over_editors(tables_by_state)
    return {
        scorer: paired(without, with_app, "fraction")
        for scorer, (without, with_app) in means_by_scorer.items()
    }


def _means_over_editors(tables_by_state: Metrics) -> dict[str, tuple[pd.Series, pd.Series]]:
    """By scorer each record's mean success over the editors that have APP, without it and with it."""
    editors = [state for state in tables_by_state if f"{state}+APP" in tables_by_state]
    means_by_scorer = {}
    for scorer in SCORERS if editors else ():
        if not all(scorer in tables_by_state[editor] for editor in editors):
            continue
        plain = [tables_by_state[editor][scorer] for editor in editors]
        with_app = [tables_by_state[f"{editor}+APP"][scorer] for editor in editors]
        of_records = pd.concat([*plain, *with_app], axis=1, join="inner").dropna()
        means_without = of_records.iloc[:, : len(editors)].mean(axis=1)
        means_with = of_records.iloc[:, len(editors) :].mean(axis=1)
        means_by_scorer[scorer] = (means_without, means_with)
    return means_by_scorer


def app_cost_table(tables_by_state: Metrics) -> ShownTable:
    """``app_cost_by_scorer`` in points, a row a scorer; *Holm* corrects for all scorers."""
    contrasts = app_cost_by_scorer(tables_by_state)
    survives = holm([contrast.p_value for contrast in contrasts.values()]) < LEVEL
    rows_of_scorers = [
        {
            "scorer": SCORERS[scorer].replace("\n", " "),
            "with APP - without": in_points(contrast.difference, signed=True),
            "n": contrast.difference.n,
        }
        for scorer, contrast in contrasts.items()
    ]
    table = pd.DataFrame(rows_of_scorers).assign(
        Holm=np.where(survives, "significant", "inconclusive")
    )
    changes = [
        with_app - without for without, with_app in _means_over_editors(tables_by_state).values()
    ]
    least_detectable = [100 * detectable(change) for change in changes]
    return with_relations(with_power(table, least_detectable, table["n"], unit=" points"), changes)


def text_against_probability(tables_by_state: Metrics) -> Contrast:
    """Whether APP costs more of greedy free text than of ES: the difference of the two costs, in fractions.

    Of each record the mean over the editors that have APP; of records with both. Positive where free text
    loses more. Added after the first results.
    """
    means_by_scorer = _means_over_editors(tables_by_state)
    costs = []
    for scorer in ("ES", "free, greedy"):
        without, with_app = means_by_scorer[scorer]
        costs.append(without - with_app)
    cost_by_probability, cost_in_text = costs[0].align(costs[1], join="inner")
    return paired(cost_by_probability, cost_in_text, "number")


def text_against_probability_table(
    tables_by_state: Metrics,
) -> ShownTable:
    """``text_against_probability`` in points, one row."""
    contrast = text_against_probability(tables_by_state)
    row = {
        "comparison": "cost in free text - cost in ES",
        "difference": in_points(contrast.difference, signed=True),
        "n": contrast.difference.n,
        "p": _p_text(contrast.p_value),
    }
    return ShownTable(pd.DataFrame([row]))


def app_price_table(
    tables_by_state: Metrics, scorers: Sequence[str] = ("ES", "free, greedy")
) -> ShownTable:
    """Success of edits without and with APP under some scorers, on the same records: what APP costs.

    Shares in percent, and their paired difference with its interval; *Holm* shows which differences
    survive the correction for all of the table.
    """
    rows_of_tests: list[dict[str, object]] = []
    contrasts = []
    samples = []
    for state in (name for name in tables_by_state if f"{name}+APP" in tables_by_state):
        for scorer in scorers:
            without = tables_by_state[state][scorer]
            with_app = tables_by_state[f"{state}+APP"][scorer]
            values_without, values_with = without.align(with_app, join="inner")
            measured_twice = values_without.notna() & values_with.notna()
            values_without = values_without[measured_twice]
            values_with = values_with[measured_twice]
            contrast = paired(values_without, values_with, kind_of_scorer(scorer))
            contrasts.append(contrast)
            samples.append(values_with - values_without)
            rows_of_tests.append(
                {
                    "method": state,
                    "scorer": SCORERS[scorer].replace("\n", " "),
                    "without": f"{100 * values_without.mean():.1f}",
                    "with APP": f"{100 * values_with.mean():.1f}",
                    "difference": in_points(contrast.difference, signed=True),
                    "n": contrast.difference.n,
                }
            )
    survives = holm([contrast.p_value for contrast in contrasts]) < LEVEL
    tests_table = pd.DataFrame(rows_of_tests).assign(
        Holm=np.where(survives, "significant", "inconclusive")
    )
    return with_relations(tests_table.set_index(["method", "scorer"]), samples)


def agreement(tables_by_state: Metrics) -> ShownTable:
    """How far two scorers order the methods alike: a row a pair of scorers, as text.

    ``rank correlation``: Spearman's, over ``distinct`` methods, with the bootstrap interval over units
    (relations, or records). A pair of methods has an order under a scorer where the paired test of its
    difference has p < 0.05 (not corrected for their number): ``same`` counts the pairs with one order,
    ``opposite`` names those that change places, and the rest is ``inconclusive``.
    """
    methods = distinct(state for state in tables_by_state if state != UNEDITED)
    values = values_by_scorer(tables_by_state, methods)
    samples = [column for table in values.values() for _, column in table.dropna().items()]
    orders = orders_of_methods(values)
    rows_of_pairs = []
    for first, second in combinations(orders, 2):
        correlation = order_correlation(orders[first], orders[second])
        pairs = pairs_by_agreement(orders[first], orders[second])
        opposite = [
            f"{methods[first_index]} / {methods[second_index]}"
            for first_index, second_index in pairs["opposite"]
        ]
        rows_of_pairs.append(
            {
                "scorer": first,
                "other": second,
                "rank correlation": with_interval(correlation),
                "same": len(pairs["same"]),
                "opposite": ", ".join(opposite) or "none",
                "inconclusive": len(pairs["inconclusive"]),
                "n": correlation.n,
            }
        )
    return with_relations(pd.DataFrame(rows_of_pairs, columns=_AGREEMENT_COLUMNS), samples)


@dataclass(frozen=True, eq=False)
class MethodOrder:
    """How a scorer orders methods, which are named by their indices."""

    ranks: Numbers  # [1 + draws, methods], centred: in the sample, then in draws of its units
    signs: dict[tuple[int, int], int]  # of pairs of methods: see ``signs_of_pairs``
    n: int  # records with a value for each method


def values_by_scorer(tables_by_state: Metrics, methods: Sequence[str]) -> dict[str, pd.DataFrame]:
    """For each scorer that all methods have its values, [records, methods]."""
    scorers = [
        scorer for scorer in SCORERS if all(scorer in tables_by_state[method] for method in methods)
    ]
    return {
        scorer: pd.concat([tables_by_state[method][scorer] for method in methods], axis=1)
        for scorer in scorers
    }


def orders_of_methods(values: Mapping[str, pd.DataFrame]) -> dict[str, MethodOrder]:
    """Each scorer's order of the methods, in the same draws of units for all scorers."""
    records = reduce(pd.Index.union, (table.index for table in values.values()))
    weights = unit_draws(pd.Series(1.0, records))
    orders = {}
    for scorer, table in values.items():
        aligned = table.reindex(records).to_numpy(float)  # [records, methods]
        is_complete = ~np.isnan(aligned).any(axis=1)
        complete_weights = weights[:, is_complete]
        sums = complete_weights @ aligned[is_complete]  # [1 + draws, methods]
        means = (sums / complete_weights.sum(axis=1, keepdims=True)).round(9)
        ranks = stats.rankdata(means, axis=1) - (means.shape[1] + 1) / 2
        signs = signs_of_pairs(table.dropna(), kind_of_scorer(scorer))
        orders[scorer] = MethodOrder(ranks, signs, int(is_complete.sum()))
    return orders


def order_correlation(first: MethodOrder, second: MethodOrder) -> Estimate:
    """Spearman's correlation of two orders of the methods, with its bootstrap interval."""
    rho = _spearman(first.ranks, second.ranks)  # [1 + draws]
    low, high = float("nan"), float("nan")
    if np.isnan(rho).mean() < LEVEL:  # not where a scorer orders nothing, or seldom
        low, high = np.nanpercentile(rho[1:], _ENDS)
    return Estimate(rho[0], low, high, min(first.n, second.n))


def pairs_by_agreement(first: MethodOrder, second: MethodOrder) -> dict[str, list[tuple[int, int]]]:
    """Pairs of methods by whether two scorers order them the same, in opposite ways, or neither."""
    pairs: dict[str, list[tuple[int, int]]] = {"same": [], "opposite": [], "inconclusive": []}
    agreement_of_sign = {1: "same", -1: "opposite", 0: "inconclusive"}
    for pair, sign in first.signs.items():
        pairs[agreement_of_sign[sign * second.signs[pair]]].append(pair)
    return pairs


def list_table(text_measures: Metrics) -> ShownTable:
    """What responses name of a second unedited draw's list, and this minus what the unedited model names.

    recall, and o* named, in percent; new hard false answers as a number per record; n, recall: records of
    which the second draw names a correct answer. The p-values of a column are corrected for their number
    (Holm).
    """
    unedited_redraw = text_measures[UNEDITED]
    recall_tests: dict[str, Contrast] = {}  # of each edited state
    new_hard_tests: dict[str, Contrast] = {}
    recall_changes: dict[str, pd.Series] = {}
    for state, table in text_measures.items():
        if state != UNEDITED:
            unedited_rows, edited_rows = unedited_redraw.align(table, join="inner", axis=0)
            recall_tests[state] = paired(unedited_rows["recall"], edited_rows["recall"], "share")
            new_hard_tests[state] = paired(
                unedited_rows["new_hard"], edited_rows["new_hard"], "number"
            )
            recall_changes[state] = edited_rows["recall"] - unedited_rows["recall"]
    recall_p = dict(
        zip(recall_tests, holm([t.p_value for t in recall_tests.values()]), strict=True)
    )
    new_hard_p = dict(
        zip(new_hard_tests, holm([t.p_value for t in new_hard_tests.values()]), strict=True)
    )

    rows_of_states = {}
    for state, table in text_measures.items():
        row_of_state = dict.fromkeys(LIST_TITLES, "")
        row_of_state["recall"] = in_points(share_interval(table["recall"]))
        row_of_state["new_hard"] = with_interval(mean_interval(table["new_hard"]))
        row_of_state["target"] = in_points(share_interval(table["target"]))
        if state != UNEDITED:
            row_of_state["recall_change"] = in_points(recall_tests[state].difference, signed=True)
            row_of_state["recall_holm"] = _p_text(recall_p[state])
            row_of_state["new_hard_change"] = with_interval(
                new_hard_tests[state].difference, signed=True
            )
            row_of_state["new_hard_holm"] = _p_text(new_hard_p[state])
        rows_of_states[state] = row_of_state
    cells = pd.DataFrame.from_dict(rows_of_states, orient="index").rename_axis("method")
    cells["n, recall"] = [_n_of_recall(unedited_redraw, table) for table in text_measures.values()]
    cells["n, others"] = [int(table["new_hard"].notna().sum()) for table in text_measures.values()]
    least_detectable = [100 * detectable(change) for change in recall_changes.values()]
    tested_n = cells.loc[[*recall_changes], "n, recall"]
    titled_cells = cells.rename(columns=LIST_TITLES)
    with_power_note = with_power(
        titled_cells, least_detectable, tested_n, unit=" points of list recall"
    )
    return with_relations(with_power_note, recall_changes.values())


def _n_of_recall(unedited: pd.DataFrame, table: pd.DataFrame) -> int:
    """Records with a recall both before and after."""
    before, after = unedited["recall"].align(table["recall"], join="inner")
    return int((before.notna() & after.notna()).sum())


def prediction_table(tables_by_state: Metrics) -> ShownTable:
    """Do AFF and ANF predict list recall lost and hard false answers won? A row a method and measure.

    Spearman's ρ over records of a method, both measures minus those of ``unedited``; the p-values of a pair
    of measures are corrected for their number (Holm). ``detectable``: see ``detectable_correlation``.
    """
    correlations: dict[tuple[str, str], Contrast] = {}
    samples = []
    for factor, predicted in _PREDICTED.items():
        for method in distinct(state for state in tables_by_state if state != UNEDITED):
            edited, unedited = tables_by_state[method].align(
                tables_by_state[UNEDITED], join="inner", axis=0
            )
            if factor == "AFF_hard":
                in_text = unedited["recall"] - edited["recall"]
            else:
                in_text = edited["new_hard"] - unedited["new_hard"]
            measures = f"{METRICS[factor].symbol} and {predicted}"
            correlations[measures, method] = rank_correlation(edited[factor], in_text)
            samples.append((edited[factor] + in_text).dropna())
    index = pd.MultiIndex.from_tuples(correlations, names=["measures", "method"])
    p_values = pd.Series([contrast.p_value for contrast in correlations.values()], index)
    corrected = p_values.groupby(level="measures", sort=False).transform(holm)
    rows_of_tests = [
        (
            *measures_and_method,
            with_interval(contrast.difference),
            contrast.difference.n,
            _number_text(detectable_correlation(contrast)),
        )
        for measures_and_method, contrast in correlations.items()
    ]
    column_names = ["measures", "method", "rank correlation", "n", "detectable"]
    p_values_in_words = [_p_text(p_value) for p_value in corrected]
    return with_relations(
        pd.DataFrame(rows_of_tests, columns=column_names).assign(Holm=p_values_in_words), samples
    )


def rank_correlation(first: pd.Series, second: pd.Series) -> Contrast:
    """Spearman's ρ over records, with an interval on Fisher's scale, and whether it is zero.

    By record tanh(artanh ρ ± z sqrt((1 + ρ²/2) / (n - 3))) (Bonett and Wright 2000). By relation the error
    is that of the mean of what each record contributes to ρ, robust to what a relation's records share, and
    at least the one by record. NaN where one side is constant, or below ten records.
    """
    complete_pairs = pd.concat([first, second], axis=1).dropna()
    record_count = len(complete_pairs)
    relation_count = relation_count_of(complete_pairs.iloc[:, 0])
    if record_count < 10 or (complete_pairs.nunique() == 1).any():
        return Contrast(
            Estimate(np.nan, np.nan, np.nan, record_count), np.nan, relation_count=relation_count
        )
    ranks = complete_pairs.rank()
    standardised_ranks = (ranks - ranks.mean()) / ranks.std(ddof=0)
    first_ranks = standardised_ranks.iloc[:, 0]
    second_ranks = standardised_ranks.iloc[:, 1]
    rho = float((first_ranks * second_ranks).mean())
    fisher_rho = float(np.arctanh(np.clip(rho, -1 + 1e-9, 1 - 1e-9)))
    products = first_ranks * second_ranks
    contributions = units_of(products - rho * (first_ranks**2 + second_ranks**2) / 2)
    error_of_fisher_rho = ((1 + rho**2 / 2) / (record_count - 3)) ** 0.5
    degrees_of_freedom = np.inf
    if contributions.by_relation:
        robust_error, degrees_of_freedom = standard_error(contributions)
        error_of_fisher_rho = max(error_of_fisher_rho, robust_error / max(1e-9, 1 - rho**2))
    half_width = stats.t.isf(LEVEL / 2, degrees_of_freedom) * error_of_fisher_rho
    low = float(np.tanh(fisher_rho - half_width))
    high = float(np.tanh(fisher_rho + half_width))
    p_value = 2 * float(stats.t.sf(abs(fisher_rho) / error_of_fisher_rho, degrees_of_freedom))
    if too_few(relation_count):
        p_value = float("nan")
    return Contrast(Estimate(rho, low, high, record_count), p_value, relation_count=relation_count)


def detectable_correlation(contrast: Contrast) -> float:
    """Smallest |ρ| that a test with this interval finds with a power of 80 %; NaN where there is no test."""
    if not contrast.p_value >= 0:
        return float("nan")
    fisher_ends = np.arctanh([contrast.difference.low, contrast.difference.high])
    error = float(np.ptp(fisher_ends)) / 2 / stats.norm.isf(LEVEL / 2)
    return float(np.tanh(POWER * error))


def _p_text(p_value: float) -> str:
    """Three decimals; a dash where there is no test."""
    return _number_text(p_value, digits=3)


def _number_text(value: float, *, digits: int = 2) -> str:
    """A number as text; a dash where there is none."""
    return "–" if np.isnan(value) else f"{value:.{digits}f}"


def _spearman(first_ranks: Numbers, second_ranks: Numbers) -> Numbers:
    """Spearman's correlation of centred ranks, row by row; NaN where one side is constant."""
    products = (first_ranks * second_ranks).sum(axis=1)
    squares_of_first = (first_ranks * first_ranks).sum(axis=1)
    squares_of_second = (second_ranks * second_ranks).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return products / np.sqrt(squares_of_first * squares_of_second)


def signs_of_pairs(values: pd.DataFrame, kind: Kind) -> dict[tuple[int, int], int]:
    """1 where the first of two methods (columns) is higher, -1 where lower, 0 where that is inconclusive."""
    signs = {}
    for first_index, second_index in combinations(range(values.shape[1]), 2):
        test = paired(values.iloc[:, second_index], values.iloc[:, first_index], kind)
        is_decided = test.p_value < LEVEL
        signs[first_index, second_index] = int(np.sign(test.difference.mean)) if is_decided else 0
    return signs
