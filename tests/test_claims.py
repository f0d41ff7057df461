"""Sentences that compare are held to the tests behind them, after Holm's correction.

A claim is a sentence as it is in its notebook, with what the published tables must show for it. Numbers
in sentences: ``tests/test_prose_numbers.py``; the boxes: ``tests/test_headlines.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import nbformat
import pytest

from helpers.editing.editors import Variant
from helpers.klob.metrics import edit_gains, layer_mass, locality_table
from helpers.klob.tables import criteria_table
from helpers.paths import NOTEBOOKS
from helpers.peak import findings as peak_findings
from helpers.peak.ablations import (
    fairer_editors,
    sequence_metrics,
    studies_of,
    variant_metrics,
)
from helpers.peak.findings import findings
from helpers.peak.metrics import method_metrics
from helpers.peak.tables import scores_of
from helpers.results.archive import archive
from helpers.results.text import Evidence, corrected_verdicts

EDITORS = ("ft-m", "rome")  # of notebook 04


def text_of(number: str) -> str:
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    cells = nbformat.read(path, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def measures(evidence: Sequence[Evidence], finding: str, verdict: str) -> set[str]:
    """The measures of a finding's tests that come out so."""
    verdicts = zip(evidence, corrected_verdicts(evidence), strict=True)
    return {item.measure for item, each in verdicts if (item.finding, each) == (finding, verdict)}


@pytest.fixture(scope="module")
def runs() -> list[list[Evidence]]:
    """The tests of notebook 03's first four tables: PEAK-CF and PEAK-T, on the two smaller models."""
    small, small_t, large, large_t, largest, _ = (
        method_metrics(scores_of(archive("peak").get(f"{model}_{dataset}")))
        for model in ("smollm2-135m", "gemma3-270m", "qwen2.5-coder-1.5b")
        for dataset in ("peak-cf", "peak-t")
    )
    return [
        findings(small, small_t, large),
        findings(small_t),
        findings(large, large_t, largest),
        findings(large_t),
    ]


AFF, ANF = "AFF hard {0} - {0}+APP", "ANF hard {0} - {0}+APP"
LS, GS = "LS {0}+APP - {0}", "GS {0} - {0}+APP"
WITH_APP = ("FT-L", "FT-M", "MEND", "ROME", "MEMIT")


def named(*patterns: str, methods: Sequence[str] = WITH_APP) -> set[str]:
    return {pattern.format(method) for pattern in patterns for method in methods}


FINDINGS = {
    "**Edits succeed, their lists do not survive**: `AFF > 50` holds for ROME and MEMIT on PEAK-CF,"
    " on both models, and is inconclusive on PEAK-T. `ES > 90` is inconclusive in all runs.": (
        "edits succeed, their lists do not survive",
        [{"AFF hard - 50, ROME", "AFF hard - 50, MEMIT"}, set()] * 2,
    ),
    "on PEAK-CF all tests hold on SmolLM2, and all but MEND's AFF on Gemma. On PEAK-T all tests of ANF"
    " hold on both models; of AFF those of FT-M, ROME and MEMIT hold on SmolLM2, and that of ROME on"
    " Gemma.": (
        "APP reduces perturbation",
        [
            named(AFF, ANF),
            named(ANF) | named(AFF, methods=("FT-M", "ROME", "MEMIT")),
            named(AFF, ANF) - named(AFF, methods=["MEND"]),
            named(ANF) | named(AFF, methods=["ROME"]),
        ],
    ),
    "on SmolLM2 and PEAK-CF the loss of GS holds for FT-L, FT-M, ROME and MEMIT, and the loss of ES for"
    " FT-L. All other tests are inconclusive.": (
        "APP costs edits",
        [
            {"ES FT-L - FT-L+APP"} | named(GS, methods=("FT-L", "FT-M", "ROME", "MEMIT")),
            set(),
            set(),
            set(),
        ],
    ),
    "holds for FT-L, FT-M and MEND on SmolLM2 and for FT-L on Gemma, on PEAK-CF only.": (
        "APP also improves locality",
        [named(LS, methods=("FT-L", "FT-M", "MEND")), set(), named(LS, methods=["FT-L"]), set()],
    ),
}


@pytest.mark.parametrize("sentence", FINDINGS)
def test_a_finding_holds_where_notebook_03_reports_it(runs, sentence):
    finding, expected = FINDINGS[sentence]
    assert sentence in text_of("03")
    assert [measures(run, finding, "holds") for run in runs] == expected


def test_what_holds_in_all_four_runs_of_notebook_03(runs):
    for finding, words, tests in (
        ("hard answers suffer more than random ones", "**Hard answers suffer more than", 2),
        ("MEND perturbs little, at the price of locality", "**MEND perturbs less than ROME but", 2),
        ("KN edits weakly", "**KN edits weakly**: its ES is below ROME's in all four runs.", 1),
    ):
        assert words in text_of("03")
        assert [len(measures(run, finding, "holds")) for run in runs] == [tests] * 4


def test_larger_models_perturb_more_once(runs):
    assert "and two are reversed (FT-M's AFF and ANF)" in text_of("03")
    finding, words = "larger models perturb more", "{} hard larger - smaller model, {}"
    held = [set(), set(), {words.format("AFF", "FT-M")}, set()]
    assert [measures(run, finding, "holds") for run in runs] == held
    for run, editor in ((runs[0], "FT-M"), (runs[2], "KN")):
        both = {words.format(metric, editor) for metric in ("AFF", "ANF")}
        assert measures(run, finding, "reversed") == both


@pytest.fixture(scope="module")
def studies():
    return studies_of(archive("ablations").get("smollm2-135m_peak-cf"))


def test_the_objectives_and_neighbours_of_notebook_04(studies):
    metrics = variant_metrics(studies.scores)
    text = text_of("04")
    parts = peak_findings.objective_findings(metrics, EDITORS)
    assert 'Two of the twelve tests of "every objective helps" hold' in text
    assert measures(parts, "every objective helps", "holds") == {
        "AFF hard, ROME: without L1 - APP",
        "ANF hard, FT-M: without L3 - APP",
    }
    assert 'All eight tests of "L1 matters most" are inconclusive' in text
    assert len(measures(parts, "L1 matters most", "inconclusive")) == 8
    more = peak_findings.neighbour_findings(metrics, EDITORS)
    assert "One neighbour lowers ANF (two tests hold); for AFF it is inconclusive" in text
    assert len(measures(more, "more neighbours help more", "holds")) == 4
    assert {m[:3] for m in measures(more, "one neighbour helps", "holds")} == {"ANF"}
    assert {m[:3] for m in measures(more, "one neighbour helps", "inconclusive")} == {"AFF"}


def test_targets_instead_of_objectives_and_the_costs_of_app_in_notebook_04(studies):
    metrics, run = variant_metrics(studies.scores), archive("ablations").get("smollm2-135m_peak-cf")
    text = text_of("04")
    fairer = peak_findings.fairer_findings(metrics, fairer_editors(run))
    finding = "all answers as targets protect less than APP"
    assert "For MEND the test is inconclusive, and so are all four tests of forgetting." in text
    holding = measures(fairer, finding, "holds")
    assert holding == {f"ANF hard, {e}: + (sum) - APP" for e in ("ROME", "FT-M", "MEMIT")}
    open_tests = measures(fairer, finding, "inconclusive")
    assert {m for m in open_tests if "AFF" in m and "sum" in m} == {
        f"AFF hard, {e}: + (sum) - APP" for e in ("ROME", "MEMIT", "FT-M", "MEND")
    }
    others = [v.editor for v in metrics if v.method.endswith("+app") and v.editor != "prune"]
    app = peak_findings.app_findings(metrics, dict.fromkeys(others))
    assert "the noise of all six editors, and the forgetting of all but MEND" in text
    assert len(measures(app, "APP reduces perturbation", "holds")) == 11
    assert measures(app, "APP reduces perturbation", "inconclusive") == {
        "AFF hard, MEND: plain - APP"
    }
    assert "None of its costs holds after the correction." in text
    assert measures(app, "APP costs edits", "holds") == set()


def test_sequences_of_notebook_04(studies):
    text = text_of("04")
    after = {Variant(m): t for (m, n), t in sequence_metrics(studies).items() if n == 100}
    tests = peak_findings.app_findings(after, EDITORS)
    assert "For FT-M APP still reduces the damage after a hundred edits" in text
    assert measures(tests, "APP reduces perturbation", "holds") == {
        "AFF hard, FT-M: plain - APP",
        "ANF hard, FT-M: plain - APP",
    }
    assert measures(tests, "APP costs edits", "holds") == set()


def test_locators_of_notebook_05():
    text, run = text_of("05"), archive("klob").get("smollm2-135m_klob-mini")
    assert (
        "Logit attribution has the highest value (0.42), knowledge neurons have the lowest" in text
    )
    kinds = run.joined("similarities"), run.joined("sentences")
    table = criteria_table(*kinds, granularity="neuron")
    real = table[~table["locator"].isin(["random", "constant"])]
    means = real[real["criterion"] == "consistency"].set_index("locator")["mean"]
    assert (means.idxmax(), means.idxmin()) == ("logit-neuron", "knowledge-neurons")
    assert "best layers better than another fact's** (12 facts)" in text
    gains = edit_gains(run.joined("edits"))
    tested = locality_table(gains, layer_mass(run.joined("layers"), gains.index))
    assert len(gains) == 12
    assert tested["p_value"].min() > 0.05
