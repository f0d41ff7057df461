"""Does an edit reach the negated fact? Tables from stored scores of the estimator "negated"."""

from __future__ import annotations

import numpy as np
import pandas as pd

from helpers.results.statistics import holm, paired_shares, share_interval
from helpers.results.text import INCONCLUSIVE
from helpers.thinkedit.report_tables import of_mode, ordered
from helpers.thinkedit.technique_tables import with_interval

# What is asked, by (form, item) of ``helpers.thinkedit.probes.negations_of``.
ASKED = {
    ("edit", 0): "S is ...: new before original",
    ("negated", 0): "It is not true that S is ...: new before original",
    ("true", 0): "Is it true that S is original? yes",
    ("true", 1): "Is it true that S is new? yes",
    ("false", 0): "Is it false that S is original? yes",
    ("false", 1): "Is it false that S is new? yes",
}
_KEYS = ["case_id", "form", "item"]


def shares(scores: pd.DataFrame) -> pd.DataFrame:
    """What each probe says, as a number between 0 and 1.

    Returns:
        ``scores`` with the column ``share``: of clozes whether the new object is more probable than the
        original one (whole probability of naming it), of questions the probability of *yes* against
        *no*.
    """
    original, other = scores["original_named"], scores["other_named"]
    yes = 1 / (1 + np.exp(other - original))
    cloze = scores["form"].isin(["edit", "negated"])
    return scores.assign(share=np.where(cloze, (other > original).astype(float), yes))


def negation_table(scores: pd.DataFrame, *, mode: str) -> pd.DataFrame:
    """What edits do to the negated fact (beyond the paper).

    A model that took the edit in says *yes* more to the new fact and less to the original one when it is
    asked whether they are true, and the other way round when it is asked whether they are false.

    Args:
        scores: stored scores of the estimator "negated".
        mode: which edits.

    Returns:
        One row per (model, method, asked): mean share ``before`` and ``after`` with 95 % intervals (see
        ``shares``), ``change`` on the same edits, ``Holm`` (more, less or inconclusive, corrected for all
        tests of the table), and ``n`` edits.

    Raises:
        ArchiveError: there are no results of this mode.
    """
    found = shares(scores)
    unedited = found[found["mode"] == "before"].set_index(["model", *_KEYS])["share"]
    rows = []
    for (model, method), part in of_mode(found, mode).groupby(["model", "method"], sort=True):
        for (form, item), asked in ASKED.items():
            own = part[(part["form"] == form) & (part["item"] == item)]
            after = own["share"].to_numpy()
            places = pd.MultiIndex.from_frame(own[["model", *_KEYS]])
            before = unedited.reindex(places).to_numpy()
            rows.append((model, method, asked, before, after, paired_shares(before, after)))
    corrected = holm([change.p_value for *_, change in rows])
    table = [
        {
            "model": model,
            "method": method,
            "asked": asked,
            "before": with_interval(share_interval(before)),
            "after": with_interval(share_interval(after)),
            "change": with_interval(change.difference, signed=True),
            "Holm": ("more" if change.difference.mean > 0 else "less")
            if p < 0.05
            else INCONCLUSIVE,
            "n": len(after),
        }
        for (model, method, asked, before, after, change), p in zip(rows, corrected, strict=True)
    ]
    return ordered(pd.DataFrame(table))
