"""Do scorers agree? Edits' success under every scorer, and correct answers that generated text still names.

A state is a method or ``unedited``. *figures/data/scorers* holds, for each method, scores before and after
by name (``rome+app``) and, for each state, the known answers that its responses name (``named by
rome+app``). All states share their random numbers; ``unedited, again``, the draw with which their lists
are compared, has others, so that an edit that changes nothing loses nothing beyond ``unedited``.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from helpers.behaviour.scorers import AGAIN, UNEDITED
from helpers.editing.editors import method_label
from helpers.peak.findings import FACTORS
from helpers.peak.metrics import metrics_table
from helpers.peak.tables import Metrics
from helpers.results.archive import Run
from helpers.results.statistics import (
    LEVEL,
    Contrast,
    Estimate,
    Numbers,
    holm,
    is_binary,
    mean_interval,
    paired_means,
    paired_proportions,
    paired_shares,
    share_interval,
)
from helpers.results.text import in_points, with_interval
from helpers.samples.design import POWER, clustered_cell, detectable, with_power

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
_ENDS = [100 * LEVEL / 2, 100 - 100 * LEVEL / 2]  # percentiles of a 95 % interval
_PLACE = ["list", "answer_index"]
_RIGHT = {"choice": "target", "yes": "yes", "negated": "no"}
_TOKENS = {"edit": "tokens", "paraphrase": "tokens, paraphrases"}
_PREDICTED = {
    "AFF_hard": "fewer answers recalled",
    "ANF_hard": "new hard false answers",
}


def successes(scores: pd.DataFrame, named: pd.DataFrame) -> pd.DataFrame:
    """Success of the appended answer o* under each scorer, a row a record, as fractions.

    ES, GS, and AFF and ANF against hard false answers: ``metrics_table``. tokens: share of o*'s tokens
    that are the most probable ones, given those before (EasyEdit's efficacy). choice: share of the orders
    in which o*'s letter is the most probable. Responses: share that names o*. yes, negated: whether the
    edit's truth is more probable than its denial.
    """
    found = metrics_table(scores)[["ES", "GS", *FACTORS]]
    own = scores[(scores["list"] == "target") & scores["role"].isin([*_TOKENS])]
    own = own.assign(share=own["top_after"] / own["tokens"])
    share = own.groupby(["case_id", "role"])["share"].mean()
    asked = scores[scores["role"].isin([*_RIGHT])]
    asked = asked.sort_values("sum_after", kind="stable")
    chosen = asked.groupby(["case_id", "role", "prompt_index"])["list"].last()
    right = chosen == chosen.index.get_level_values("role").map(_RIGHT)
    responses = named.assign(hit=named["list"] == "target")
    hits = responses.groupby(["case_id", "form", "sample"])["hit"].any().reset_index()
    how = hits["form"] + np.where(hits["sample"] > 0, ", sampled", ", greedy")
    parts: list[pd.DataFrame | pd.Series] = [
        share.unstack().rename(columns=_TOKENS),
        right.groupby(["case_id", "role"]).mean().unstack(),
        hits.groupby(["case_id", how])["hit"].mean().unstack(),
    ]
    return found.join(parts)


def lists_in_text(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """What all sampled responses to a record name, after and before: a row a record of both tables.

    recall: share of the correct answers named before that are named after, NaN where none was;
    new_hard: number of hard false answers newly named; target: whether o* is named.
    """
    first, second = (
        {case: {*map(tuple, own[_PLACE].to_numpy())} for case, own in drawn.groupby("case_id")}
        for drawn in (before[before["sample"] > 0], after[after["sample"] > 0])
    )
    rows = {}
    for case in (case for case in first if case in second):
        was, now = first[case], second[case]
        right = {place for place in was if place[0] == "correct"}
        new = {place for place in now - was if place[0] == "hard"}
        recall = len(right & now) / len(right) if right else np.nan
        target = float(("target", 0) in now)
        rows[case] = recall, len(new), target
    columns = ["recall", "new_hard", "target"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def by_state(run: Run) -> dict[str, pd.DataFrame]:
    """``successes`` and ``lists_in_text`` of a published run's states, by label; the unedited first."""
    tables = {n: t.astype({"list": str}) for n, t in run.tables.items()}
    methods = [name for name in tables if f"named by {name}" in tables]
    states = [UNEDITED, *methods]
    named = {s: tables[f"named by {s}"].astype({"form": str}) for s in (*states, AGAIN)}
    relations = {int(case): name for case, name in run.about.caption["relations"].items()}
    scores = {method: tables[method].astype({"role": str}) for method in methods}
    first = max(scores.values(), key=len)
    scores[UNEDITED] = first.assign(sum_after=first["sum_before"], top_after=first["top_before"])
    found = {}
    for state in states:
        lists = lists_in_text(named[AGAIN], named[state])
        table = successes(scores[state], named[state]).join(lists)
        places = [table.index, table.index.map(relations).rename("relation")]
        found[state if state == UNEDITED else method_label(state)] = table.set_index(places)
    return found


def scorer_table(states: Metrics) -> pd.DataFrame:
    """Mean success in percent with its 95 % interval as text, states as rows, scorers as columns."""
    rows = {
        state: {s: in_points(share_interval(table[s])) for s in SCORERS if s in table}
        for state, table in states.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


def agreement(states: Metrics) -> pd.DataFrame:
    """How far two scorers order the methods alike: a row a pair of scorers, as text.

    ``rank correlation``: Spearman's, over methods, with the bootstrap interval over records. A pair of
    methods has an order under a scorer where the 95 % interval of its difference excludes zero
    (Newcombe's for 0 and 1, else the bootstrap; not corrected for their number): ``same`` counts the
    pairs with one order, ``opposite`` names those that change places, and the rest is ``inconclusive``.
    """
    methods = [state for state in states if state != UNEDITED]
    cases = sorted(set().union(*(states[method].index for method in methods)))
    rng = np.random.default_rng(0)
    n = len(cases)
    drawn = rng.multinomial(n, np.full(n, 1 / n), size=2000)
    weights = np.vstack([np.ones(n), drawn])  # the sample itself first
    ranks, orders, counts = {}, {}, {}
    for scorer in (s for s in SCORERS if all(s in states[method] for method in methods)):
        found = [states[method][scorer].reindex(cases) for method in methods]
        values = pd.concat(found, axis=1).to_numpy(float)
        known = ~np.isnan(values).any(axis=1)
        used = weights[:, known]
        means = (used @ values[known] / used.sum(axis=1, keepdims=True)).round(9)
        ranks[scorer] = stats.rankdata(means, axis=1) - (len(methods) + 1) / 2
        orders[scorer] = _orders(values[known], means)
        counts[scorer] = int(known.sum())
    rows = []
    for one, two in combinations(ranks, 2):
        rho = _spearman(ranks[one], ranks[two])
        defined = np.isnan(rho).mean() < LEVEL  # not where a scorer orders nothing, or seldom
        low, high = np.nanpercentile(rho[1:], _ENDS) if defined else (np.nan, np.nan)
        interval = Estimate(rho[0], low, high, min(counts[one], counts[two]))
        both = {pair: orders[one][pair] * orders[two][pair] for pair in orders[one]}
        names = {(i, j): f"{methods[i]} / {methods[j]}" for i, j in both}
        opposite = [names[pair] for pair, sign in both.items() if sign < 0]
        signs = [*both.values()]
        counted = signs.count(1), ", ".join(opposite) or "none", signs.count(0)
        rows.append((one, two, with_interval(interval), *counted, interval.n))
    columns = ["scorer", "other", "rank correlation", "same", "opposite", "inconclusive", "n"]
    return pd.DataFrame(rows, columns=columns)


def list_table(states: Metrics) -> pd.DataFrame:
    """What responses name of a second unedited draw's list, and this minus what the unedited model names.

    recall, and o* named, in percent; new hard false answers as a number per record; n: records of which
    the second draw names a correct answer. The p-values are corrected for all tests of the table (Holm).
    """
    rows, p_values, least = {}, [], []
    for state, table in states.items():
        first, second = states[UNEDITED].align(table, join="inner", axis=0)
        recall = paired_shares(first["recall"], second["recall"])
        new = paired_means(first["new_hard"], second["new_hard"])
        change = second["recall"] - first["recall"]
        rows[state] = {
            "list recall": in_points(share_interval(table["recall"])),
            "- unedited": in_points(recall.difference, signed=True),
            "by relation": clustered_cell([change], decided=False),
            "new hard false": with_interval(mean_interval(table["new_hard"])),
            "- unedited ": with_interval(new.difference, signed=True),
            "o* named": in_points(share_interval(table["target"])),
            "n": recall.difference.n,
        }
        p_values += [recall.p_value, new.p_value] * (state != UNEDITED)
        least.append(100 * detectable(change))
    found = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
    found.loc[UNEDITED, ["- unedited", "by relation", "- unedited "]] = ""
    corrected = ["", "", *(f"{p:.3f}" for p in holm(p_values))]
    found.insert(3, "Holm", corrected[::2])
    found.insert(6, "Holm ", corrected[1::2])
    return with_power(found, least, found["n"], "{:.1f}–{:.1f} points of list recall")


def prediction_table(states: Metrics) -> pd.DataFrame:
    """Do AFF and ANF predict list recall lost and hard false answers won? A row a method and measure.

    Spearman's ρ over records of a method, both measures minus those of ``unedited``; the p-value is
    corrected for all tests of the table (Holm). ``detectable``: |ρ| that one test finds with power 80 %.
    """
    rows, p_values = [], []
    for method in (state for state in states if state != UNEDITED):
        table, drawn = states[method].align(states[UNEDITED], join="inner", axis=0)
        lost = drawn["recall"] - table["recall"]
        more = table["new_hard"] - drawn["new_hard"]
        for factor, measure in zip(_PREDICTED, (lost, more), strict=True):
            found = rank_correlation(table[factor], measure)
            n = found.difference.n
            rho = with_interval(found.difference)
            p_values.append(found.p_value)
            tested = f"{factor[:3]} and {_PREDICTED[factor]}"
            rows.append((tested, method, rho, n, f"{detectable_correlation(n):.2f}"))
    columns = ["measures", "method", "rank correlation", "n", "detectable"]
    corrected = [f"{p:.3f}" for p in holm(p_values)]
    table = pd.DataFrame(rows, columns=columns).assign(Holm=corrected)
    return table.sort_values("measures", kind="stable", ignore_index=True)


def rank_correlation(first: pd.Series, second: pd.Series) -> Contrast:
    """Spearman's ρ over records with the interval of Bonett and Wright (2000), and whether it is zero.

    tanh(artanh ρ ± z sqrt((1 + ρ²/2) / (n - 3))); NaN where one side is constant, or below ten records.
    """
    pairs = pd.concat([first, second], axis=1).dropna().to_numpy(float)
    n = len(pairs)
    if n < 10 or not np.ptp(pairs, axis=0).all():
        return Contrast(Estimate(np.nan, np.nan, np.nan, n), np.nan)
    rho = float(stats.spearmanr(pairs).statistic)
    centre = float(np.arctanh(np.clip(rho, -1 + 1e-9, 1 - 1e-9)))
    error = ((1 + rho**2 / 2) / (n - 3)) ** 0.5
    half = stats.norm.isf(LEVEL / 2) * error
    low, high = (float(np.tanh(end)) for end in (centre - half, centre + half))
    p_value = 2 * float(stats.norm.sf(abs(centre) / error))
    return Contrast(Estimate(rho, low, high, n), p_value)


def detectable_correlation(n: int) -> float:
    """Smallest |ρ| that n records show with a power of 80 % at p < 0.05; NaN below ten records."""
    needed = POWER / (n - 3) ** 0.5 if n >= 10 else np.nan
    first = np.tanh(needed)
    return float(np.tanh(needed * (1 + first**2 / 2) ** 0.5))  # its error grows with it


def _spearman(one: Numbers, two: Numbers) -> Numbers:
    """Of centred ranks, row by row; NaN where one side is constant."""
    together, *alone = ((x * y).sum(axis=1) for x, y in ((one, two), (one, one), (two, two)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return together / np.sqrt(alone[0] * alone[1])


def _orders(values: Numbers, means: Numbers) -> dict[tuple[int, int], int]:
    """1 where the first of two methods is higher, -1 where it is lower, 0 where that is inconclusive."""
    found = {}
    for i, j in combinations(range(values.shape[1]), 2):
        if is_binary(values):
            interval = paired_proportions(values[:, j], values[:, i])
            low, high = interval.low, interval.high
        else:
            differences = means[1:, i] - means[1:, j]
            low, high = np.percentile(differences, _ENDS)
        found[i, j] = int(low > 0) - int(high < 0)
    return found
