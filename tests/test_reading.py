"""The matcher against texts that were read: its errors are counted by kind, and the packaged ones hold."""

from __future__ import annotations

import pandas as pd
import pytest

from helpers.behaviour.scorers import named_answers
from helpers.paths import PACKAGED
from helpers.peak.records import load_peak
from tools.reading import errors_table

READ = pd.DataFrame(
    {
        "named": ["Chad; Niger", "", "Mali"],
        "read": ["Chad", "Togo", "Mali"],
        "kinds": ["Niger = part of a longer name", "Togo = other spelling", ""],
    }
)


def test_errors_are_counted_in_texts_and_in_answers():
    one = (1, 3, 33.3, 6.1, 79.2)  # Wilson's interval
    assert list(errors_table(READ).itertuples(index=False, name=None)) == [
        ("texts with an error", 2, 3, 66.7, 20.8, 93.9),
        ("texts with an answer missed: other spelling", *one),
        ("texts with an answer wrong: part of a longer name", *one),
        ("answers wrong", *one),
        ("answers missed", *one),
    ]


def test_a_difference_without_a_kind_is_refused():
    with pytest.raises(ValueError, match=r"text 0: give a kind to each of \['Niger'\]"):
        errors_table(READ.assign(kinds=""))


@pytest.mark.usefixtures("data_folder")
def test_the_matcher_names_what_the_labels_say_it_does():
    labels = pd.read_csv(PACKAGED / "reading" / "labels.csv", keep_default_na=False)
    records = {record.case_id: record for record in load_peak("peak-cf", limit=24).records}
    assert len(labels) == 201
    for row in labels.itertuples():
        record = records[row.case_id]
        found = [record.lists[name][index] for name, index in named_answers(row.text, record)]
        assert "; ".join(found) == row.named


def test_the_packaged_labels_give_the_packaged_errors():
    folder = PACKAGED / "reading"
    labels = pd.read_csv(folder / "labels.csv", keep_default_na=False)
    pd.testing.assert_frame_equal(errors_table(labels), pd.read_csv(folder / "errors.csv"))
