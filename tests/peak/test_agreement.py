"""The authors' released metric code, from the same log-likelihoods, to the last digits."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers.peak.metrics import (
    COLUMNS,
    Lists,
    RecordScores,
    keep_answers,
    metrics_table,
    record_metrics,
)

FACTORS = [f"{factor}_{kind}" for factor in ("AFF", "ANF") for kind in ("hard", "random")]
COMPARED = ["ES", "GS", "LS_authors", *FACTORS]
LISTS = {
    "target": "target_new",
    "correct": "positive_list",
    "hard": "negtive_list",
    "random": "negtive_random_list",
}


def reference_file() -> Path | None:
    """The reference values: in $HELPERS_REFERENCE, else next to $HELPERS_DATA."""
    folder = os.environ.get("HELPERS_REFERENCE")
    data = os.environ.get("HELPERS_DATA")
    root = Path(folder) if folder else Path(data).parent / "reference" if data else None
    path = root / "peak_authors_code_smollm2.json" if root else None
    return path if path and path.is_file() else None


pytestmark = pytest.mark.skipif(
    reference_file() is None,
    reason="no peak_authors_code_smollm2.json below HELPERS_REFERENCE or next to HELPERS_DATA",
)


def reference_records() -> Iterator[tuple[str, dict]]:
    path = reference_file()
    assert path is not None
    for method, run in json.loads(path.read_text())["methods"].items():
        for record in run["records"]:
            yield f"{method}, case {record['case_id']}", record


def scores(before: list[dict], after: list[dict], key: str) -> np.ndarray:
    """Log-likelihoods of locality prompts before and after, shape (2, L)."""
    return -np.array([[prompt[key] for prompt in prompts] for prompts in (before, after)])


def prompts_of(record: dict, key: str) -> list[Lists]:
    pairs = zip(record["nll_pre"][key], record["nll_post"][key], strict=True)
    return [
        {name: -np.array([one[k], other[k]]).reshape(2, -1) for name, k in LISTS.items()}
        for one, other in pairs
    ]


def record_scores(record: dict) -> RecordScores:
    """Scores of one record; the authors' locality values are those of the first answer."""
    nearby = [record[moment]["neighborhood_prompts_probs"] for moment in ("nll_pre", "nll_post")]
    own = record["loc_own_answer_pre"], record["loc_own_answer_post"]
    locality = {
        "locality": scores(*own, "target_true"),
        "target": scores(*nearby, "target_new"),
        "first": scores(*nearby, "target_true"),
    }
    (edit,) = prompts_of(record, "rewrite_prompts_probs")
    return RecordScores(edit, prompts_of(record, "paraphrase_prompts_probs"), locality)


def unedited(record: RecordScores) -> RecordScores:
    """The record as if nothing had been edited."""

    def before(lists: Lists) -> Lists:
        return {name: values[[0, 0]] for name, values in lists.items()}

    paraphrases = [before(prompt) for prompt in record.paraphrases]
    return RecordScores(before(record.edit), paraphrases, before(record.locality))


def last_prompt_is_skipped(record: RecordScores) -> bool:
    last = [record.edit, *record.paraphrases][-1]
    kept = keep_answers(last["correct"][0], last["hard"][0], last["random"][0])
    return not all(map(len, kept))


def expected(theirs: dict) -> dict[str, float]:
    """A metric the authors' code omits is NaN in ours."""
    return {name: theirs.get(name.removesuffix("_authors"), np.nan) for name in COMPARED}


def test_metrics_of_every_method_and_record() -> None:
    """The one difference on purpose: theirs drops a record's factors when its last prompt is skipped."""
    compared = 0
    for name, record in reference_records():
        edited = record_scores(record)
        for key, ours in (("metrics_fork", edited), ("metrics_fork_pre", unedited(edited))):
            found, theirs = record_metrics(ours), expected(record[key])
            for metric in FACTORS if last_prompt_is_skipped(edited) else ():
                assert np.isnan(theirs.pop(metric)), f"{name}, {key}"
            chosen = {metric: found[metric] for metric in theirs}
            assert chosen == pytest.approx(theirs, abs=1e-9, nan_ok=True), f"{name}, {key}"
        compared += 1
    assert compared >= 50


def test_success_over_edit_prompt_and_paraphrases() -> None:
    """Their RP is a generalisation score whose paraphrases include the edit prompt."""
    for name, record in reference_records():
        one = record_scores(record)
        joined = RecordScores(one.edit, (one.edit, *one.paraphrases), one.locality)
        wanted = record["metrics_fork"].get("RP_success", np.nan)
        assert record_metrics(joined)["GS"] == pytest.approx(wanted, abs=1e-9, nan_ok=True), name


def test_locality_with_each_prompts_own_answer() -> None:
    for name, record in reference_records():
        value = record["LS_own_answer"]
        ours = record_metrics(record_scores(record))["LS"]
        assert ours == pytest.approx(np.nan if value is None else value, nan_ok=True), name


def test_the_long_table_gives_the_same() -> None:
    records = [record for name, record in reference_records() if name.startswith("ROME, ")]
    table = pd.DataFrame([row for record in records for row in rows(record)], columns=COLUMNS)
    ours = metrics_table(table)
    for record in records:
        wanted = record_metrics(record_scores(record))
        assert ours.loc[record["case_id"]].to_dict() == pytest.approx(wanted, nan_ok=True)


def rows(record: dict) -> Iterator[tuple]:
    """The long table's rows of one record, each answer counted as one token."""
    one = record_scores(record)
    prompts = [("edit", 0, one.edit)]
    prompts += [("paraphrase", i, prompt) for i, prompt in enumerate(one.paraphrases)]
    for place in range(one.locality["target"].shape[1]):
        lists = {name: values[:, [place]] for name, values in one.locality.items()}
        prompts.append(("locality", place, lists))
    for role, index, lists in prompts:
        for name, values in lists.items():
            for number, pair in enumerate(values.T):
                yield (record["case_id"], role, index, name, number, 1, *pair)
