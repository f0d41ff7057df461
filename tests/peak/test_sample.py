"""How representative records are, and edits by their size and prompt: tables made up by hand."""

from __future__ import annotations

import pandas as pd

from helpers.peak.sample import by_subject_position, by_update_size, sample_counts, update_sizes
from helpers.peak.tables import edits_table

METRICS = pd.DataFrame(
    {"ES": [1.0, 0.0, None]},
    index=pd.MultiIndex.from_tuples([(1, "a"), (2, "a"), (3, "b")], names=["case_id", "relation"]),
)
EDITS = pd.DataFrame(
    {
        "method": ["ROME", "ROME", "ROME", "FT-L"],
        "case_id": [1, 2, 3, 1],
        "exploding": [True, False, True, False],
        "relative_norm": [8.0, 0.5, 2.0, 0.1],
        "failure": ["", "", "loss is not finite", ""],
        "steps": [20, 10, 15, 25],
    }
)


def test_a_sample_is_counted_with_its_largest_relation():
    relations = pd.DataFrame({"relation": ["a", "b"], "records": [2, 5], "records_whole": [9, 8]})
    counts = pd.DataFrame({"records": [7], "records_whole": [17]})
    row = sample_counts({"run": {"relations": relations, "counts": counts}}).loc["run"]
    assert row.to_dict() == {
        "records": 7,
        "records_whole": 17,
        "largest relation": "b",
        "its records": 5,
        "its records_whole": 8,
    }


def test_edits_are_told_apart_by_their_size():
    assert update_sizes(EDITS).loc["ROME"].tolist() == [3, 2, 8.0]
    parts = by_update_size(METRICS, EDITS, method="ROME")
    assert {name: part.index.tolist() for name, part in parts.items()} == {
        "flagged": [(1, "a")],  # record 3 has no ES
        "not flagged": [(2, "a")],
    }


def test_edits_are_told_apart_by_where_the_prompt_has_its_subject():
    prompts = pd.DataFrame({"case_id": [1, 2, 3], "subject_first": [True, False, True]})
    parts = by_subject_position({"ROME": METRICS}, prompts, methods=("ROME", "R-ROME"))
    assert {name: len(part) for name, part in parts.items()} == {
        "ROME, subject first": 2,
        "ROME, elsewhere": 1,
    }


def test_a_table_of_edits_states_how_they_were_made():
    of_rome = edits_table({"ROME": EDITS[EDITS["method"] == "ROME"]}).loc["ROME"]
    assert of_rome.tolist() == [3, 1, 2, "15", 2.0]
