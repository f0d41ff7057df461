"""The negated fact, from scores made by hand."""

import numpy as np
import pandas as pd
import pytest

from helpers.results.archive import ArchiveError
from helpers.thinkedit.negation_tables import ASKED, negation_table, shares


def rows(method: str, mode: str, case_id: int, *leads: float) -> pd.DataFrame:
    """One edit's probes; each lead is of *yes* over *no*, or of the new over the original object."""
    table = pd.DataFrame(list(ASKED), columns=["form", "item"])
    cloze = table["form"].isin(["edit", "negated"])
    signed = np.where(cloze, 1, -1) * np.asarray(leads)
    scored = {"case_id": case_id, "original_named": -5.0, "other_named": -5.0 + signed}
    return table.assign(**scored, model="m", method=method, mode=mode)


@pytest.fixture
def scores() -> pd.DataFrame:
    even = [0.0] * 4
    before = [rows("none", "before", case_id, -2, -2, *even) for case_id in range(1, 9)]
    taken = [rows("rome", "independent", case_id, 3, 3, *even) for case_id in range(1, 9)]
    sure = np.log(9)
    taken[0] = rows("rome", "independent", 1, 3, -3, -sure, sure, sure, -sure)
    return pd.concat([*before, *taken], ignore_index=True)


def test_each_probe_becomes_a_share(scores):
    own = shares(scores).query("mode == 'independent' and case_id == 1")
    assert own["share"].tolist() == pytest.approx([1, 0, 0.1, 0.9, 0.9, 0.1])


def test_what_an_edit_does_to_the_negated_fact_is_tested(scores):
    table = negation_table(scores, mode="independent").set_index("asked")
    assert list(table.index) == list(ASKED.values())
    assert (table["n"] == 8).all()
    plain, negated, true, *_ = table.to_dict("records")
    assert (plain["change"][:5], plain["Holm"]) == ("+1.00", "more")
    assert negated["after"].startswith("0.88 [")
    assert (true["before"], true["after"][:4]) == ("0.50 [0.50, 0.50]", "0.45")
    assert true["Holm"] == "inconclusive"
    with pytest.raises(ArchiveError, match="no results of mode 'deep'"):
        negation_table(scores, mode="deep")
