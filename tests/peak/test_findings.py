"""Findings as differences: hand-computed values and verdicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from helpers.peak.findings import findings
from helpers.peak.stored_scores import scores_of
from helpers.peak.tables import method_metrics
from helpers.results.archive import archive
from helpers.results.statistics import unpaired_means
from helpers.results.text import findings_table

COLUMNS = ["ES", "GS", "LS", "AFF_hard", "ANF_hard", "AFF_random", "ANF_random"]


def metrics(**changes: list[float]) -> pd.DataFrame:
    table = pd.DataFrame({column: [0.5, 0.6, 0.4] for column in COLUMNS}, index=[0, 1, 2])
    return table.assign(**changes).rename_axis("case_id")


def evidence_of(found, measure):
    return next(item for item in found if item.measure == measure)


def test_a_paired_difference_and_its_verdict():
    plain = metrics(AFF_hard=[0.9, 0.8, 1.0], LS=[0.5, 0.5, 0.5])
    careful = metrics(AFF_hard=[0.4, 0.4, 0.4], LS=[0.5, 0.4, 0.6])
    found = findings({"ROME": plain, "ROME+APP": careful})
    reduced = evidence_of(found, "AFF hard ROME - ROME+APP")
    assert reduced.difference.mean == pytest.approx((0.5 + 0.4 + 0.6) / 3)
    assert reduced.verdict == "holds"
    assert evidence_of(found, "LS ROME+APP - ROME").verdict == "inconclusive"
    hard = evidence_of(found, "AFF hard - AFF random, plain editors")
    assert hard.difference.mean == pytest.approx((0.4 + 0.2 + 0.6) / 3)


def test_the_other_direction_is_reversed():
    plain, careful = metrics(LS=[0.9, 0.9, 0.8]), metrics(LS=[0.1, 0.2, 0.1])
    found = findings({"MEMIT": plain, "MEMIT+APP": careful})
    assert evidence_of(found, "LS MEMIT+APP - MEMIT").verdict == "reversed"


def test_models_are_compared_on_the_records_both_hold():
    larger = metrics(AFF_hard=[0.7, 0.9, 0.5]).iloc[:2]
    found = findings({"ROME": metrics()}, larger={"ROME": larger})
    grown = evidence_of(found, "AFF hard larger - smaller model, plain editors")
    assert grown.difference.n == 2
    assert grown.difference.mean == pytest.approx((0.2 + 0.3) / 2)
    assert evidence_of(found, "AFF hard larger - smaller model, ROME") == replace(
        grown, measure="AFF hard larger - smaller model, ROME"
    )


def test_success_and_loss_are_judged_apart():
    spared = metrics(ES=[1.0, 0.99, 0.98], AFF_hard=[0.1, 0.2, 0.1])
    found = findings({"ROME": spared})
    assert evidence_of(found, "ES - 90, ROME").verdict == "holds"
    lost = evidence_of(found, "AFF hard - 50, ROME")
    assert lost.difference.mean == pytest.approx((0.1 + 0.2 + 0.1) / 3 - 0.5)
    assert lost.verdict == "reversed"


def test_data_sets_are_compared_without_pairing():
    temporal = metrics(AFF_hard=[0.1, 0.3, 0.2])
    only_here = metrics(AFF_hard=[0.0, 0.0, 0.0])  # a method that the other set lacks
    found = findings({"ROME": metrics(), "KN": only_here}, temporal={"ROME": temporal})
    lower = evidence_of(found, "AFF hard PEAK-CF - PEAK-T, plain editors")
    assert lower.difference == unpaired_means([0.1, 0.3, 0.2], [0.5, 0.6, 0.4]).difference
    assert lower.difference.mean == pytest.approx(0.3)


def test_welch_interval_by_hand():
    found = unpaired_means([1.0, 3.0], [6.0, 8.0, np.nan]).difference
    # both variances are 2, so df = 2 and the half width is t(0.975, 2) * sqrt(2/2 + 2/2)
    assert found.mean == 5
    assert found.high - found.mean == pytest.approx(4.302652729911275 * 2**0.5)
    # Variances 1 and 4 are not pooled: df = (5/3)^2 / ((1/3)^2 / 2 + (4/3)^2 / 2) = 50/17.
    found = unpaired_means([0.0, 1.0, 2.0], [5.0, 7.0, 9.0]).difference
    assert (found.mean, found.n) == (6, 3)
    assert found.high - found.mean == pytest.approx(stats.t.ppf(0.975, 50 / 17) * (5 / 3) ** 0.5)


def test_the_table_reads_as_text():
    table = findings_table(findings({"ROME": metrics()}))
    assert list(table.columns) == ["finding", "measure", "difference", "n", "verdict", "Holm"]
    assert set(table["verdict"]) <= {"holds", "reversed", "inconclusive"}


def test_without_plain_editors_there_is_nothing_to_find():
    only = {"ROME+APP": metrics()}
    assert findings(only, temporal=only, larger=only) == []


def test_fine_tuning_counts_once_among_the_plain_editors():
    low, high = metrics(AFF_hard=[0.1, 0.2, 0.1]), metrics(AFF_hard=[0.9, 0.8, 0.9])
    found = findings({"FT-L": low, "FT-M": low, "ROME": high})
    hard = evidence_of(found, "AFF hard - AFF random, plain editors")
    # FT-M stays out: (0.1 + 0.9) / 2 - 0.5, (0.2 + 0.8) / 2 - 0.6, (0.1 + 0.9) / 2 - 0.4
    assert hard.difference.mean == pytest.approx((0.0 - 0.1 + 0.1) / 3)
    alone = findings({"FT-M": low, "ROME": high})
    assert evidence_of(alone, hard.measure).difference == hard.difference


def test_what_app_costs_is_a_finding_like_what_it_gains():
    plain, careful = metrics(ES=[1.0, 1.0, 1.0]), metrics(ES=[1.0, 0.0, 1.0], GS=[0.2, 0.3, 0.1])
    found = findings({"ROME": plain, "ROME+APP": careful})
    assert evidence_of(found, "ES ROME - ROME+APP").difference.mean == pytest.approx(1 / 3)
    assert evidence_of(found, "ES ROME - ROME+APP").verdict == "inconclusive"  # one record of three
    assert evidence_of(found, "GS ROME - ROME+APP").verdict == "holds"


def test_the_published_verdicts_claim_no_more_than_their_records():
    """As an audit of the stored scores found them."""
    names = ("smollm2-135m_peak-cf", "gemma3-270m_peak-cf")
    smaller, larger = (method_metrics(scores_of(archive("peak").get(name))) for name in names)
    found = findings(smaller, larger=larger)
    assert evidence_of(found, "ES - 90, ROME").verdict == "holds"
    assert evidence_of(found, "ES - 90, MEMIT").verdict == "inconclusive"
    grown = evidence_of(found, "AFF hard larger - smaller model, plain editors")
    assert grown.verdict == "inconclusive"
    costs = [item.verdict for item in found if item.finding == "APP costs edits"]
    assert (costs.count("holds"), len(costs)) == (8, 10)
    assert evidence_of(findings(larger), "ES - 90, MEMIT").verdict == "inconclusive"
