"""What the first records are of a file: counted on packaged records and read from what is stored."""

from __future__ import annotations

from helpers.peak.records import load_peak
from helpers.peak.sample import kept_counts, sample_counts, sample_table
from helpers.peak.stored_scores import scores_of
from helpers.results.archive import archive


def test_a_part_is_counted_against_the_whole():
    part, whole = load_peak("peak-mini-cf", limit=3), load_peak("peak-mini-cf")
    row = sample_counts(part, whole).iloc[0]
    assert (row["records"], row["records_whole"]) == (3, len(whole.records))
    assert row["relations"] == len({record.relation for record in part.records})
    assert row["relations"] <= row["relations_whole"]


def test_the_filter_keeps_four_answers_in_ten():
    kept = kept_counts(scores_of(archive("peak").get("smollm2-135m_peak-cf"))["ROME"])
    assert (round(100 * kept["share"]), kept["median"]) == (41, 5)


def test_the_stored_counts_are_those_of_the_first_records():
    row = sample_table(["smollm2-135m_peak-cf"]).iloc[0]
    assert row["records"] == "120 of 1962"
    assert row["relations"] == "29 of 32"
    assert row["prompt begins with subject"] == 101
