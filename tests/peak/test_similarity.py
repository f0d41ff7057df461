"""Does damage follow similarity: cosines, losses and slopes by hand and from numbers made for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from helpers.models.tokens import answer_ids
from helpers.peak import similarity
from helpers.peak.cosines import answer_cosines
from helpers.peak.metrics import AnswerFilter
from helpers.peak.records import load_peak
from helpers.peak.similarity import (
    answer_losses,
    binned_losses,
    slope_table,
    slopes,
)
from helpers.results.archive import About, Run

ALL_KNOWN = AnswerFilter(rule="threshold", threshold=0)


def test_a_cosine_is_that_of_centred_mean_rows(tiny):
    lm = tiny("llama")
    (record,) = load_peak("peak-mini-cf", limit=1).records
    record = replace(record, correct=(record.target_new, *record.correct[:2]))
    found = answer_cosines(lm, [record])
    rows = lm.network.get_output_embeddings().weight.float()
    vectors = {
        answer: rows[list(answer_ids(lm, answer))].mean(0) - rows.mean(0)
        for answer in record.correct
    }
    target = vectors[record.target_new]
    by_hand = [float(torch.cosine_similarity(target, v, dim=0)) for v in vectors.values()]
    assert found["cosine"].tolist() == pytest.approx(by_hand, abs=1e-5)
    assert by_hand[0] == pytest.approx(1)
    assert found["answer_index"].tolist() == [0, 1, 2]
    assert found["first_cosine"][0] == pytest.approx(1, abs=1e-5)


def scores_of_one_record() -> pd.DataFrame:
    rows = [("target", 0, 1, -9.0, -1.0)]
    rows += [("correct", 0, 1, -1.0, -4.0), ("correct", 1, 2, -4.0, -6.0)]
    rows += [
        ("correct", 2, 1, -5.0, -5.0),
        ("hard", 0, 1, -3.0, -3.0),
        ("random", 0, 1, -9.0, -9.0),
    ]
    table = pd.DataFrame(
        rows, columns=["list", "answer_index", "tokens", "sum_before", "sum_after"]
    )
    return table.assign(case_id=7, role="edit", prompt_index=0, relation="P47")


def test_methods_are_those_of_editors_with_a_loss():
    names = ["FT-M", "FT-M+APP", "KN", "ROME", "LoRA", "UltraEdit", "In context", "GRACE", "IKE"]
    run = Run("r", About({}), dict.fromkeys(names))
    assert similarity._edited_weights(run) == ["FT-M", "FT-M+APP", "ROME", "LoRA", "UltraEdit"]


def test_losses_are_a_token_and_ranks_by_prior():
    cosines = pd.DataFrame({"case_id": 7, "answer_index": [0, 1, 2], "cosine": [0.1, 0.2, 0.3]})
    scores = scores_of_one_record()
    found = answer_losses(scores, cosines, ALL_KNOWN)
    assert found["loss"].tolist() == [3.0, 1.0, 0.0]
    assert found["prior"].tolist() == [-1.0, -2.0, -5.0]
    assert found["rank"].tolist() == [1.0, 2.0, 3.0]
    assert found["token_share"].tolist() == [1.0, 0.5, 1.0]
    assert found.index.tolist() == [(7, "P47")] * 3
    by_rank = answer_losses(scores, cosines)  # the last answer is below the one hard false answer
    assert by_rank["rank"].tolist() == [1.0, 2.0]
    alone = scores[~((scores["list"] == "correct") & (scores["answer_index"] > 0))]
    assert answer_losses(alone, cosines, ALL_KNOWN).empty


def test_without_scores_there_are_no_losses():
    cosines = pd.DataFrame({"case_id": 7, "answer_index": [0], "cosine": [0.1]})
    assert answer_losses(scores_of_one_record().iloc[:0], cosines).empty


def answers_with(
    cosine_slope: float, *, length_slope: float = 0.0, records: int = 60, noise: float = 0.1
) -> pd.DataFrame:
    """Twelve relations; a record's level is large and goes with its cosines, so that it would mislead."""
    rng = np.random.default_rng(0)
    rows = []
    for record in range(records):
        level = rng.normal()
        cosines = 0.3 + 0.1 * level + rng.uniform(-0.1, 0.1, size=8)
        priors = rng.normal(-4, 1, size=8)
        ranks = pd.Series(-priors).rank().to_numpy()
        token_shares = 1 / rng.integers(1, 6, size=8)
        losses = 5 * level + cosine_slope * cosines + 0.5 * priors + noise * rng.normal(size=8)
        losses += length_slope * token_shares
        cosines -= length_slope * token_shares / 50  # short answers are farther
        columns_of_record = (losses, cosines, priors, ranks, token_shares)
        for values in zip(*columns_of_record, strict=True):
            rows.append((record, f"R{record % 12}", *values))
    columns = ["case_id", "relation", "loss", *similarity.ADJUSTED]
    return pd.DataFrame(rows, columns=columns).set_index(["case_id", "relation"])


def test_slopes_are_within_records():
    found = slopes(answers_with(-2.0))
    assert [*found] == [*similarity.ADJUSTED]
    assert found["cosine"].estimate.mean == pytest.approx(-0.2, abs=0.02)  # for 0.1
    assert found["prior"].estimate.mean == pytest.approx(0.5, abs=0.05)
    assert found["cosine"].words == "less lost"
    assert slopes(answers_with(+2.0))["cosine"].words == "more lost"
    assert slopes(answers_with(0.0, noise=1.0))["cosine"].words == "inconclusive"


def test_the_draws_are_those_of_least_squares_with_record_effects():
    """The sample's slopes against dummies for every record."""
    answers = answers_with(-2.0, records=12)
    dummies = pd.get_dummies(answers.index.get_level_values("case_id")).to_numpy(float)
    design = np.hstack([answers[list(similarity.ADJUSTED)].to_numpy(), dummies])
    by_hand = np.linalg.lstsq(design, answers["loss"].to_numpy(), rcond=None)[0][:4]
    assert similarity._slope_draws(answers, similarity.ADJUSTED)[0] == pytest.approx(by_hand)


def test_a_regressor_without_variation_has_no_slope():
    answers = answers_with(-2.0)
    answers["token_share"] = 1.0
    found = slopes(answers)
    assert found["token_share"].estimate.mean == pytest.approx(0.0, abs=1e-9)
    assert found["cosine"].words == "less lost"


def test_length_can_look_like_similarity():
    """Short answers lose more and are farther from o*: given their length the cosine has no slope."""
    answers = answers_with(0.0, length_slope=2.0)
    assert slopes(answers, similarity.PLANNED)["cosine"].words == "less lost"
    assert abs(slopes(answers)["cosine"].estimate.mean) < 0.02


def test_below_eight_relations_there_is_no_test():
    answers = answers_with(-2.0)
    few = answers[answers.index.get_level_values("relation").isin(["R1", "R2", "R3"])]
    slope = slopes(few)["cosine"]
    assert np.isnan(slope.p_value)
    assert slope.words == "inconclusive"
    assert slope.estimate.low < slope.estimate.mean < slope.estimate.high


def test_a_line_through_the_adjusted_answers_has_the_slope():
    answers = answers_with(-2.0, noise=0.0)
    bins = binned_losses(answers)
    assert len(bins) == similarity.BINS
    assert bins["n"].sum() == len(answers)
    line = np.polyfit(bins["cosine"], bins["mean"], 1)[0]
    assert line == pytest.approx(-2.0, abs=0.01)
    assert bins["mean"].mean() == pytest.approx(answers["loss"].mean(), abs=0.01)


def test_the_table_has_a_verdict_for_each_method():
    answers = {"ROME": answers_with(-2.0), "FT-M": answers_with(0.0, noise=1.0)}
    shown = slope_table(answers)
    for title in ("as planned", "given length"):
        verdicts = shown.table.set_index("method")[f"{title}, Holm"]
        assert verdicts.to_dict() == {"ROME": "less lost", "FT-M": "inconclusive"}
    assert "could detect" in shown.note
    assert "12 relations" in shown.note
