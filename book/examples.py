"""Worked examples for the page of metrics: made-up numbers, every result computed by the package.

The page marks a place by ``%EXAMPLE name%``; ``with_examples`` puts a box there.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from scipy.special import expit

from helpers.behaviour.agreement import lists_in_text
from helpers.behaviour.scorers import NAMED
from helpers.klob.metrics import permutation_null, relative_similarity, similarity_matrix
from helpers.peak import figures as peak
from helpers.peak.metrics import ranking_forgetting_factor, ranking_noise_factor

_MARK = re.compile(r"%EXAMPLE (\w+)%")


def with_examples(page: str) -> str:
    """The page with every example in its place; a ``KeyError`` for a mark without one."""
    made = {f.__name__: f for f in (_additivity, _recall, _similarity, _chance)}
    words = ":::{{admonition}} Example\n{}\n:::".format
    return _MARK.sub(lambda found: words(made[f"_{found[1]}"]()), page)


def _additivity() -> str:
    found = peak.worked()
    table = pd.DataFrame(
        {
            "answer": [*peak.CORRECT, *peak.FALSE],
            "list": ["correct"] * len(peak.CORRECT) + ["false"] * len(peak.FALSE),
            "P": [before for before, _ in (*peak.CORRECT.values(), *peak.FALSE.values())],
            "P*": [after for _, after in (*peak.CORRECT.values(), *peak.FALSE.values())],
        }
    )
    table["σ(P*)"] = expit(table["P*"]).round(3)
    rows = ["| " + " | ".join(map(str, row)) + " |" for row in table.to_numpy()]
    head = ["| " + " | ".join(table.columns) + " |", "|---|---|--:|--:|--:|"]
    correct, false = (
        np.log([after for _, after in answers.values()]) for answers in (peak.CORRECT, peak.FALSE)
    )
    rff, rnf = ranking_forgetting_factor(correct, false), ranking_noise_factor(correct, false)
    words = (
        f"Two correct answers are below the strongest false one: $\\mathrm{{RFF}} = {rff:.3f}$. "
        f"The correct answers keep $\\mathrm{{CPC}} = {found['CPC']:.3f}$ of their probability. So "
        f"$\\mathrm{{AFF}} = 1 - (1 - {rff:.3f}) \\cdot {found['CPC']:.3f} = {found['AFF']:.3f}$.\n\n"
        f"One false answer is above the weakest correct one: $\\mathrm{{RNF}} = {rnf:.3f}$. "
        f"The false answers grow by $\\mathrm{{FPC}} = {found['FPC']:.3f}$. So "
        f"$\\mathrm{{ANF}} = 1 - (1 - {rnf:.3f}) / {found['FPC']:.3f} = {found['ANF']:.3f}$.\n\n"
        "![The same numbers as a picture](figures/03_reading.png)"
    )
    return "\n".join([*head, *rows, "", words])


def _recall() -> str:
    def named(*answers: tuple[str, int]) -> pd.DataFrame:
        rows = [(0, "free", sample, *answer) for sample, answer in enumerate(answers, 1)]
        return pd.DataFrame(rows, columns=NAMED)

    before = named(("correct", 0), ("correct", 1), ("correct", 0), ("none", -1))
    after = named(("target", 0), ("target", 0), ("correct", 0), ("hard", 0))
    found = lists_in_text(before, after).loc[0]
    return (
        "Of four responses before the edit two name Egypt and one names Chad; after it two name "
        "the new answer, one Egypt and one Laos, which is hard false. List recall is "
        f"{found['recall']:.2f} (Chad is gone), and {found['new_hard']:.0f} hard false answer is new."
    )


def _similarity() -> str:
    sets = np.array([[0, 1, 2, 3], [0, 1, 2, 4], [0, 6, 7, 8]])
    inside, everywhere = similarity_matrix(sets)[0, 1:]
    return (
        "Four units are located in each sentence. Two wordings of a fact share three of them, "
        f"$\\mathrm{{Sim}}_{{cand}} = {inside:.2f}$; either shares one with another fact, "
        f"$\\mathrm{{Sim}}_{{all}} = {everywhere:.2f}$. So $\\mathrm{{RSim}} = "
        f"({inside:.2f} - {everywhere:.2f}) / (1 - {everywhere:.2f}) = "
        f"{relative_similarity(inside, everywhere):.2f}$. If scores spread by 2.0 on facts and by "
        f"1.5 on random words, $\\mathrm{{RSD}} = {1 - 1.5 / 2.0:.2f}$.\n\n"
        "![RSim as the ratio of two distances](figures/05_reading.png)"
    )


def _chance() -> str:
    similarities = np.kron(np.eye(6), np.full((2, 2), 0.6)) + 0.2
    np.fill_diagonal(similarities, 1.0)
    null = permutation_null(
        similarities, np.arange(12).reshape(6, 2), "consistency", permutations=999
    )
    return (
        "Six facts with two wordings each: wordings of one fact have a similarity of 0.8, others 0.2. "
        f"Then the mean is $r = {null['observed']:.2f}$. Of 999 deals, "
        f"chance reaches {null['mean']:.2f} on average, and $p = {null['p_value']:.3f}$."
    )
