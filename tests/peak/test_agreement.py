"""The authors' released metric code, from the same log-likelihoods, to the last digits."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers.peak.metrics import LocalityScores, PromptScores, RecordScores, record_metrics
from helpers.peak.metrics_table import COLUMNS, metrics_table

COMPARED = ["ES", "EM", "GS", "GM", "LS", "LM"]
COMPARED += [f"{factor}_{setting}" for factor in ("AFF", "ANF") for setting in ("hard", "random")]
LISTS = {
    "correct": "positive_list",
    "hard": "negtive_list",
    "random": "negtive_random_list",
}


def reference_file() -> Path | None:
    """The reference values: in $HELPERS_REFERENCE, else beside $HELPERS_DATA."""
    folder = os.environ.get("HELPERS_REFERENCE")
    data = os.environ.get("HELPERS_DATA")
    root = Path(folder) if folder else Path(data).parent / "reference" if data else None
    path = root / "peak_authors_code_smollm2.json" if root else None
    return path if path and path.is_file() else None


def reference_records() -> Iterator[tuple[str, dict]]:
    path = reference_file()
    assert path is not None
    for method, run in json.loads(path.read_text())["methods"].items():
        for record in run["records"]:
            yield f"{method}, case {record['case_id']}", record


pytestmark = pytest.mark.skipif(
    reference_file() is None,
    reason="no peak_authors_code_smollm2.json below HELPERS_REFERENCE or beside HELPERS_DATA",
)


def prompt_scores(nll: dict) -> PromptScores:
    return PromptScores(
        target=-nll["target_new"],
        correct=-np.array(nll["positive_list"]),
        hard=-np.array(nll["negtive_list"]),
        random=-np.array(nll["negtive_random_list"]),
    )


def record_scores(nll: dict, own: list[dict]) -> RecordScores:
    """Scores of one record; the authors' locality values are those of the first answer."""
    nearby = nll["neighborhood_prompts_probs"]
    (edit,) = nll["rewrite_prompts_probs"]
    return RecordScores(
        edit=prompt_scores(edit),
        paraphrases=tuple(prompt_scores(scores) for scores in nll["paraphrase_prompts_probs"]),
        locality=LocalityScores(
            answer=-np.array([scores["target_true"] for scores in own]),
            target=-np.array([scores["target_new"] for scores in nearby]),
            first=-np.array([scores["target_true"] for scores in nearby]),
        ),
    )


def both(record: dict) -> tuple[RecordScores, RecordScores]:
    return (
        record_scores(record["nll_pre"], record["loc_own_answer_pre"]),
        record_scores(record["nll_post"], record["loc_own_answer_post"]),
    )


def expected(metrics: dict) -> dict[str, float]:
    """A metric the authors' code leaves out is NaN in ours."""
    return {name: metrics.get(name, np.nan) for name in COMPARED}


def test_metrics_of_every_method_and_record() -> None:
    compared = 0
    for name, record in reference_records():
        before, after = both(record)
        for key, edited in (("metrics_fork", after), ("metrics_fork_pre", before)):
            ours = record_metrics(before, edited, compat="authors")
            chosen = {metric: ours[metric] for metric in COMPARED}
            wanted = pytest.approx(expected(record[key]), abs=1e-9, nan_ok=True)
            assert chosen == wanted, f"{name}, {key}"
        compared += 1
    assert compared >= 50


def test_success_over_edit_prompt_and_paraphrases() -> None:
    """Their RP is a generalisation score whose paraphrases include the edit prompt."""
    for name, record in reference_records():
        joined = [
            RecordScores(one.edit, (one.edit, *one.paraphrases), one.locality)
            for one in both(record)
        ]
        ours = record_metrics(*joined, compat="authors")
        theirs = record["metrics_fork"]
        wanted = (theirs.get("RP_success", np.nan), theirs.get("RP_diff", np.nan))
        assert (ours["GS"], ours["GM"]) == pytest.approx(wanted, abs=1e-9, nan_ok=True), name


def test_locality_with_each_prompts_own_answer() -> None:
    for name, record in reference_records():
        value = record["LS_own_answer"]
        ours = record_metrics(*both(record))["LS"]
        assert ours == pytest.approx(np.nan if value is None else value, nan_ok=True), name


def test_the_long_table_gives_the_same() -> None:
    method = "ROME, "
    records = [record for name, record in reference_records() if name.startswith(method)]
    table = pd.DataFrame([row for record in records for row in rows(record)], columns=COLUMNS)
    ours = metrics_table(table, compat="authors")
    for record in records:
        wanted = expected(record["metrics_fork"])
        chosen = ours.loc[record["case_id"], list(wanted)].to_dict()
        assert chosen == pytest.approx(wanted, abs=1e-9, nan_ok=True)


def rows(record: dict) -> Iterator[tuple]:
    """The long table's rows of one record, each answer counted as one token."""
    before, after = record["nll_pre"], record["nll_post"]

    def row(role: str, index: int, name: str, number: int, one: float, other: float) -> tuple:
        return (record["case_id"], role, index, name, number, 1, -one, -other)

    for role, key in (
        ("edit", "rewrite_prompts_probs"),
        ("paraphrase", "paraphrase_prompts_probs"),
    ):
        for index, (one, other) in enumerate(zip(before[key], after[key], strict=True)):
            yield row(role, index, "target", 0, one["target_new"], other["target_new"])
            for name, theirs in LISTS.items():
                for number, pair in enumerate(zip(one[theirs], other[theirs], strict=True)):
                    yield row(role, index, name, number, *pair)
    nearby = "neighborhood_prompts_probs"
    own = zip(record["loc_own_answer_pre"], record["loc_own_answer_post"], strict=True)
    pairs = zip(before[nearby], after[nearby], own, strict=True)
    for index, (one, other, (own_before, own_after)) in enumerate(pairs):
        yield row("locality", index, "target", 0, one["target_new"], other["target_new"])
        yield row("locality", index, "first", 0, one["target_true"], other["target_true"])
        yield row(
            "locality", index, "locality", 0, own_before["target_true"], own_after["target_true"]
        )
