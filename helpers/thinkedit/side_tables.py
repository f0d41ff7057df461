"""ThinkEdit's tables beside IFR and CKP: base rates, generated text, how edits of a sequence fare."""

from __future__ import annotations

import pandas as pd

from helpers.thinkedit import tables
from helpers.thinkedit.known import DEFAULT, Known, mean_log_probability
from helpers.thinkedit.report_tables import METHODS

_FORMS = ("fact", "reverse", "yes_no")


def base_rates(scores: pd.DataFrame, *, rule: Known = DEFAULT) -> pd.DataFrame:
    """What the unedited model answers, by form of the prompt (the paper's Figures 11–14, counted).

    Args:
        scores: stored exact scores.
        rule: which probability is taken, and from when on a fact is known.

    Returns:
        One row per (model, form): ``prompts``, ``answered`` (share) and ``probability`` (mean of the
        answers'). A fact is answered when known, a reverse question when its answer has at least the
        rule's threshold, a yes/no question when yes beats no.
    """
    rows = []
    for (model, form), part in _before(scores).groupby(["model", "form"], sort=True):
        probability = rule.probability(part)
        if form == "fact":
            answered = rule.of(part)
        elif form == "reverse":
            answered = probability >= rule.threshold
        else:
            answered = part["original_sum"] > part["other_sum"]  # "yes" and "no"
        if form in _FORMS:
            rows.append((model, form, len(part), answered.mean(), probability.mean()))
    return pd.DataFrame(rows, columns=["model", "form", "prompts", "answered", "probability"])


def other_forms_table(scores: pd.DataFrame, *, mode: str) -> pd.DataFrame:
    """How each method's edits move reverse and yes/no questions about the edited subjects.

    Args:
        scores: stored exact scores.
        mode: which edits.

    Returns:
        One row per (model, method, form): means over facts ``before`` and ``after`` (see
        ``tables.other_forms``) and their number ``n``.
    """
    rows = []
    for (model, method), after in scores[scores["mode"] == mode].groupby(["model", "method"]):
        before = scores[(scores["mode"] == "before") & (scores["model"] == model)]
        before = before[before["case_id"].isin(after["case_id"])]
        for form, part in tables.other_forms(before, after).groupby("form"):
            means = part[["before", "after"]].mean()
            rows.append((model, method, form, means["before"], means["after"], len(part)))
    return pd.DataFrame(rows, columns=["model", "method", "form", "before", "after", "n"])


def response_rates(scores: pd.DataFrame) -> pd.DataFrame:
    """Share of questions whose object the unedited model names, from stored sampled scores.

    Returns:
        One row per model: ``questions``, ``named`` (at least once), ``share`` (of all responses).
    """
    before = _before(scores)
    before = before.assign(named=before["hits"] > 0, share=before["hits"] / before["n"])
    return (
        before.groupby("model", sort=True)
        .agg(questions=("named", "size"), named=("named", "mean"), share=("share", "mean"))
        .reset_index()
    )


def text_table(texts: pd.DataFrame, *, mode: str) -> pd.DataFrame:
    """Fluency and consistency of texts about the edited subjects, the unedited model's first.

    Args:
        texts: stored scores of texts (see ``helpers.thinkedit.scores.text_scores``).
        mode: which edits.

    Returns:
        One row per (model, method): means over edits of ``fluency`` (bits, averaged as in
        CounterFact's code), ``weighted sum`` (ThinkEdit's equation 4) and ``consistency``; ``n``.
    """
    chosen = texts[texts["mode"].isin(["before", mode])]
    rank = {name: place for place, name in enumerate(("none", *METHODS))}
    order = chosen["method"].map(lambda name: rank.get(name, len(rank)))
    table = chosen.assign(order=order).groupby(["model", "order", "method"], sort=True)
    means = table.agg(
        fluency=("fluency_averaged", "mean"),
        weighted=("fluency_weighted_sum", "mean"),
        consistency=("consistency", "mean"),
        n=("consistency", "size"),
    )
    return means.rename(columns={"weighted": "weighted sum"}).reset_index().drop(columns="order")


def sequence_leads(along: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """By how much the new object leads at each edit's own prompt, right after it and at the end.

    Args:
        along: stored scores of each edit right after it was made.
        scores: stored exact scores; their sequential ones are those at the end.

    Returns:
        One row per (model, method, place): place in the sequence from 1, ``right after`` and
        ``at the end``, the lead of the new over the original object in nats per token.
    """
    keys = ["model", "method", "case_id"]
    end = scores[scores["mode"] == "sequential"]
    leads = {
        moment: table[table["form"] == "edit"].assign(lead=_lead).set_index(keys)["lead"]
        for moment, table in (("right after", along), ("at the end", end))
    }
    joined = pd.DataFrame(leads).dropna().reset_index()
    place = joined.groupby(["model", "method"]).cumcount() + 1
    return joined.assign(place=place).drop(columns="case_id")


def _lead(scores: pd.DataFrame) -> pd.Series:
    """By how much the new object's mean log-probability exceeds the original one's."""
    new, original = (mean_log_probability(scores, a) for a in ("other", "original"))
    return new - original


def _before(scores: pd.DataFrame) -> pd.DataFrame:
    return scores[scores["mode"] == "before"].drop(columns=["method", "mode"])
