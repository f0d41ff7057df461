"""Overview of many methods: markers where the means are, groups by list length."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from helpers.peak.overview import additivity_pairs, by_list_length


def metrics(value: float) -> pd.DataFrame:
    columns = ["AFF_hard", "ANF_hard", "AFF_random", "ANF_random"]
    return pd.DataFrame({column: [value, value + 0.1] for column in columns}, index=[1, 2])


def test_editors_are_rows_and_app_is_joined_to_its_plain_method():
    figure = additivity_pairs(
        {"ROME": metrics(0.8), "ROME+APP": metrics(0.3), "KN": metrics(0.5)}, caption="m"
    )
    first = figure.axes[0]
    assert [label.get_text() for label in first.get_yticklabels()] == ["ROME", "KN"]
    joined = [
        line for line in first.lines if len(line.get_xdata()) == 2 and line.get_color() == "0.5"
    ]
    assert list(joined[0].get_xdata()) == pytest.approx([85, 35])
    plt.close(figure)


def test_records_are_grouped_by_their_correct_answers():
    rows = [(case, "edit", "correct") for case, n in ((1, 4), (2, 9)) for _ in range(n)]
    scores = pd.DataFrame(rows, columns=["case_id", "role", "list"])
    table = by_list_length({"ROME": metrics(0.8)}, {"ROME": scores}, metric="AFF_hard", groups=2)
    assert table.index.tolist() == ["4", "9"]
    assert table["records"].tolist() == [1, 1]
    assert table["ROME"].tolist() == pytest.approx([80, 90])
