"""The paper's own case: its stored numbers, and what the paper's rows combine to."""

from __future__ import annotations

import pytest

from helpers.results.archive import archive
from helpers.thinkedit.metrics import BY_RANK, DEFAULT
from helpers.thinkedit.paper_case import left_of_case, printed_case, steps_of_case


def test_the_papers_rows_do_not_combine_to_what_it_prints():
    shown = printed_case()
    assert shown.table["chains"].sum() == 100
    assert shown.note == (
        "by Definition 3 the rows combine to 0.63, Table 1 prints 0.78; active: 80 of 100 chains"
    )


def test_what_is_left_of_the_case_is_that_of_its_chains_by_steps():
    run = archive("thinkedit").get("qwen2.5-coder-1.5b")
    left = left_of_case(run, ["memit", "rome"], [DEFAULT, BY_RANK])
    assert left["known"].tolist() == ["at least 0.05"] * 2 + ["by rank as well"] * 2
    of_rome = left[left["method"] == "rome"].set_index("known")
    assert of_rome["deducible before"].tolist() == [5, 20]
    assert of_rome["active after"].tolist() == [1, 9]
    assert of_rome["of these deducible"].tolist() == [0, 6]
    by_steps = steps_of_case(run, "rome", mode="independent").set_index("steps")
    assert by_steps.loc["1", "IFR"] == pytest.approx(
        of_rome["direct after"].iloc[0] / of_rome["direct before"].iloc[0]
    )
    assert by_steps.loc["overall", "deducible before"] == 6
