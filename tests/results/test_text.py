"""Verdicts, intervals in words, what captions report of a model, and the papers' own numbers."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest

from helpers.models.weights import PACKAGED_WEIGHTS
from helpers.paths import PACKAGED
from helpers.peak.metrics import METRICS
from helpers.peak.records import load_peak
from helpers.results.archive import PACKAGED_WORDS, About, Run, model_words
from helpers.results.notes import with_note, with_power
from helpers.results.show import table_output
from helpers.results.statistics import Contrast, Estimate, detectable, paired
from helpers.results.text import (
    Evidence,
    caption,
    corrected_verdicts,
    findings_table,
    footer,
    in_points,
    mark,
    published_table,
    with_interval,
)


def test_the_table_says_what_survives_holms_correction() -> None:
    strong = Contrast(Estimate(0.2, 0.1, 0.3, 9), 0.001)
    weak, against = (
        Contrast(Estimate(0.2, 0.01, 0.39, 9), 0.04),
        Contrast(Estimate(-0.2, -0.3, -0.1, 9), 0.002),
    )
    table = findings_table(
        [Evidence("f", item, metric="m") for item in (strong, weak, against)]
    ).table
    assert table["verdict"].tolist() == ["holds", "holds", "reversed"]
    assert table["Holm"].tolist() == ["holds", "holds", "reversed"]
    many = findings_table(
        [Evidence("f", item, metric="m") for item in (strong, weak, weak, against)]
    ).table
    assert many["Holm"].tolist() == ["holds", "inconclusive", "inconclusive", "reversed"]
    assert findings_table([]).table.empty


def test_a_bound_that_excludes_zero_is_not_rounded_to_it() -> None:
    """ "significant" next to [0.00, 0.06] would contradict itself."""
    assert with_interval(Estimate(0.03, 0.0014, 0.06, 9), signed=True) == "+0.03 [+0.001, +0.06]"
    assert in_points(Estimate(-0.068, -0.126, -0.0001, 9), signed=True) == "-6.8 [-12.6, -0.01]"
    # An interval that holds zero, or ends in it, and a mean that is no difference keep their digits.
    assert with_interval(Estimate(0.03, -0.0014, 0.06, 9), signed=True) == "+0.03 [+0.00, +0.06]"
    assert with_interval(Estimate(0.03, 0.0, 0.06, 9), signed=True) == "+0.03 [+0.00, +0.06]"
    assert with_interval(Estimate(0.03, 0.0014, 0.06, 9)) == "0.03 [0.00, 0.06]"


def test_a_family_is_one_finding() -> None:
    """A test of another finding, such as one on a larger model, takes nothing away."""
    weak = Contrast(Estimate(0.2, 0.01, 0.39, 9), 0.04)
    same = [Evidence("f", weak, metric="m"), Evidence("f", weak, metric="n")]
    assert corrected_verdicts(same) == ["inconclusive", "inconclusive"]
    apart = [Evidence("f", weak, metric="m"), Evidence("g", weak, metric="m")]
    assert corrected_verdicts(apart) == ["holds", "holds"]


def test_evidence_says_what_it_compares() -> None:
    def words(**fields: str) -> str:
        return Evidence("f", Contrast(Estimate(0.2, 0.1, 0.3, 9), 0.01), **fields).measure

    variants = words(metric="AFF_hard", editor="ROME", higher="APP", lower="plain")
    assert variants == "AFF hard, ROME: APP - plain"
    assert words(metric="ES", higher="ROME", lower="KN") == "ES ROME - KN"
    assert words(metric="ES", lower="90", methods="ROME") == "ES - 90, ROME"
    metrics = words(higher="AFF hard", lower="AFF random", methods="plain editors")
    assert metrics == "AFF hard - AFF random, plain editors"


def test_of_two_relations_the_verdict_says_so() -> None:
    index = pd.MultiIndex.from_arrays([range(20), [*"ab"] * 10], names=["case_id", "relation"])
    zeros = pd.Series(0.0, index)
    contrast = paired(zeros, zeros + 0.5, "fraction")
    shown = findings_table([Evidence("f", contrast, metric="m", samples=(zeros + 0.5,))])
    table = shown.table
    assert table["verdict"].tolist() == ["inconclusive by relation (2 relations)"]
    assert table["Holm"].tolist() == ["inconclusive"]
    assert shown.note == "too few relations for tests (2): intervals over records"


def test_the_smallest_detectable_difference_by_hand() -> None:
    """By relation of nine relations of one record; of two means; only of tests that there are."""
    values = np.array([0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.1, 0.3, 0.4])
    index = pd.MultiIndex.from_arrays([range(9), [*"abcdefghi"]], names=["case_id", "relation"])
    error = values.std(ddof=1) / 3
    found = detectable(pd.Series(values, index))
    assert found == pytest.approx((2.306004 + 0.888890) * error, rel=1e-5)  # t(8)
    assert detectable([1, 0, 0, -1]) == pytest.approx(
        (3.182 + 0.978) * (2 / 3 / 4) ** 0.5, rel=1e-3
    )  # t(3), as of any other values
    assert detectable([1, 0], [0, 1]) == pytest.approx(5.364 * 0.5**0.5, rel=1e-3)
    corrected = detectable([1, 0, 0, -1], tests=5)  # at 1 %: t = 5.841 and 0.978
    assert corrected == pytest.approx((5.841 + 0.978) * (2 / 3) ** 0.5 / 2, rel=1e-3)
    assert np.isnan(detectable([0.2, 0.2, 0.2]))
    assert np.isnan(detectable(pd.Series(values, index).iloc[:7]))  # seven relations: no test


def test_the_line_below_a_table_is_of_its_tests_alone() -> None:
    table = pd.DataFrame({"m": range(4)})
    shown = with_power(table, [12.04, float("nan"), 0.0, 0.01], [9, 2, 400, 30], unit=" points")
    below = "could detect 0.1–12.1 points (n = 9–30; two-sided 5 %, power 80 %)"
    assert table_output(shown)["text/plain"].endswith(f"\n{below}")
    nothing = with_power(pd.DataFrame({"m": [1]}), [float("nan")], [9])
    assert nothing.note == ""
    for selected in (shown.query("m < 2"), shown.T):
        assert selected.note == below
    assert shown.query("m < 2").table["m"].tolist() == [0, 1]
    assert shown.T.table.shape == (1, 4)
    assert with_note(shown, "", "more").note == f"{below}; more"
    assert shown.note == below  # a table with more sentences is another one


def test_points_are_symmetric_or_bracketed() -> None:
    assert in_points(Estimate(0.876, 0.837, 0.915, 112)) == "87.6 ± 3.9"
    assert in_points(Estimate(1.0, 0.9, 1.0, 36)) == "100.0 [90.0, 100.0]"
    assert in_points(Estimate(0.1, 0.003, 0.1, 36), signed=True) == "+10.0 [+0.3, +10.0]"
    nan = float("nan")
    assert in_points(Estimate(0.5, nan, nan, 1)) == "50.0"
    assert in_points(Estimate(nan, nan, nan, 0)) == "n/a"
    assert with_interval(Estimate(0.171, 0.05, 0.414, 9)) == "0.17 [0.05, 0.41]"
    assert with_interval(Estimate(-0.001, nan, nan, 1), signed=True) == "+0.00"


def test_a_caption_names_model_parts_and_machine() -> None:
    source = {"model": "gpt2-xl", "dtype": "bfloat16", "device": "cuda", "seed": 0}
    assert caption(source, "peak-cf", "") == "ours: gpt2-xl, peak-cf, bfloat16 on cuda"


def test_a_footer_has_models_data_and_machine_in_short() -> None:
    def run(model: str, **caption: str) -> Run:
        source = {"model": model, "dtype": "bfloat16", "device": "cuda"}
        return Run(model, About(source, caption=caption), {})

    carried = run("smollm2-135m", preset="tuned (APP's coefficients extrapolated: ft, mend)")
    assert footer([carried], "peak-cf, 3 records", "hollow: inconclusive") == (
        "smollm2-135m from 4 bits, peak-cf, 3 records, preset tuned (APP extrapolated), bfloat16 on cuda;"
        " hollow: inconclusive"
    )
    assert footer([run("gpt2-xl")], "n = 3") == "gpt2-xl, n = 3, bfloat16 on cuda"
    mixed = [carried, run("gpt2-xl", preset="generic")]
    assert footer(mixed, "n = 3").startswith(
        "models (smollm2-135m from 4 bits), n = 3, preset tuned or"
    )
    assert all("from 4 bits" in words for words in PACKAGED_WORDS.values())


def test_marks_tell_gain_from_loss() -> None:
    plain, low = [0.5, 0.6, 0.7, 0.6, 0.7, 0.5], [0.3, 0.3, 0.5, 0.3, 0.4, 0.3]
    fallen = paired(plain, low, "fraction")
    assert mark(fallen, higher_is_better=False) == "†"
    assert mark(fallen, higher_is_better=True) == "‡"
    assert mark(paired(plain, plain, "fraction"), higher_is_better=True) == ""
    assert mark(paired([1], [0], "fraction"), higher_is_better=True) == ""


def test_every_packaged_model_has_its_words():
    assert set(PACKAGED_WORDS) == set(PACKAGED_WEIGHTS)
    for name, words in PACKAGED_WORDS.items():
        type_of_weights = words.rsplit("(", 1)[1].rstrip(")")
        assert type_of_weights in PACKAGED_WEIGHTS[name].members[0] or type_of_weights == "q4_k_m"
    assert model_words("gpt2-xl") == "gpt2-xl"
    assert model_words("/not/here/other") == "other"


def values(name: str, model: str, method: str) -> list[float]:
    return published_table(name).query("model == @model and method == @method")["value"].tolist()


@pytest.mark.parametrize("name", sorted(p.stem for p in (PACKAGED / "published").iterdir()))
def test_every_table_is_labelled(name: str) -> None:
    table = published_table(name)
    assert {"model", "method", "metric", "value", "source", "note"} <= set(table.columns)
    assert table["value"].notna().all()
    assert (table["source"] != "").all()
    labels = [column for column in table.columns if column not in ("value", "source", "note")]
    assert not table.duplicated([label for label in labels if label != "significant"]).any()
    if name in ("peak_table_3", "peak_table_4", "peak_table_5", "peak_table_9"):  # complete
        sizes = [table[label].nunique() for label in ("model", "method", "metric")]
        assert len(table) == sizes[0] * sizes[1] * sizes[2]
        assert set(table["metric"]) <= set(METRICS)
        assert table["value"].between(0, 100).all()


def test_rows_read_against_the_paper() -> None:
    assert values("peak_table_3", "gpt2-xl", "ROME") == [
        *(99.27, 94.05, 90.57),
        *(87.44, 69.80, 75.16, 35.58),
    ]
    assert values("peak_table_4", "gpt-j-6b", "KN") == [
        *(45.49, 43.11, 67.05),
        *(93.84, 46.47, 93.29, 40.23),
    ]
    assert values("peak_table_5", "llama2-7b", "MEMIT+") == [98.29, 93.07, 94.20, 48.10, 66.72]
    assert values("peak_table_8", "llama2-7b", "MEMIT+APP") == [0.6, 1.0, 0.3]
    # Section 7.3 repeats LLaMA-2 edited by ROME on PEAK-CF.
    assert values("peak_table_3", "llama2-7b", "ROME")[3:5] == [93.05, 82.47]


@pytest.mark.skipif(
    not os.environ.get("HELPERS_DATA"), reason="HELPERS_DATA does not name a folder with PEAK"
)
@pytest.mark.parametrize("dataset", ["peak-cf", "peak-t"])
def test_table_2_against_the_files(dataset: str) -> None:
    published = published_table("peak_table_2").query("dataset == @dataset and note == ''")
    counts = load_peak(dataset, strict_lists=False).counts()
    for metric, value in zip(published["metric"], published["value"], strict=True):
        assert counts[metric] == value
