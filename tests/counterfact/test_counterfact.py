"""CounterFact on two records made by hand: what is read, asked, stored and computed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers import UserError
from helpers.counterfact import publish
from helpers.counterfact.metrics import counterfact_metrics, counterfact_table, paper_table, score
from helpers.counterfact.records import read_records
from helpers.editing.in_context import InContext, InContextHyperparameters
from helpers.results.archive import About, Archive
from helpers.results.benchmark import evaluation_part
from helpers.results.evaluation import Evaluation
from helpers.results.publish import Publication, publish_parts
from helpers.results.store import ResultsStore
from helpers.values import params_of

FLAT = {
    "case_id": 7,
    "prompt": "The river Ouse flows through",
    "subject": "Ouse",
    "target_new": "Perth",
    "ground_truth": "York",
    "rephrase_prompt": "On the banks of the Ouse lies",
    "locality_prompt": "The Minster stands in",
    "locality_ground_truth": "York",
}
FULL = {
    "case_id": 4,
    "requested_rewrite": {
        "prompt": "{} was painted by",
        "relation_id": "P170",
        "subject": "Guernica",
        "target_new": {"str": "Vermeer", "id": "Q1"},
        "target_true": {"str": "Picasso", "id": "Q2"},
    },
    "paraphrase_prompts": ["It rained. Guernica, a work of", "The painter of Guernica is"],
    "neighborhood_prompts": ["The Weeping Woman is by", "Who made the Dove? It was"],
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "facts.json"
    path.write_text(json.dumps([FULL, FLAT]), "utf-8")
    return path


@pytest.fixture
def benchmark(file, monkeypatch):
    monkeypatch.setattr(publish, "locate", lambda _: file)
    monkeypatch.setattr("helpers.values.require_local", lambda _: None)
    return publish.benchmark_of({"dataset": "counterfact-val", "records": None})


def test_both_schemata_become_the_same_record(file):
    full, flat = read_records(file)
    assert (full.request.text, full.request.target) == ("Guernica was painted by", "Vermeer")
    assert full.relation == "P170"
    assert flat.request.prompt == "The river {} flows through"
    assert (flat.target_true, flat.relation) == ("York", None)
    assert flat.paraphrases == (FLAT["rephrase_prompt"],)
    assert flat.neighbourhood == (FLAT["locality_prompt"],)
    assert read_records(file, 1) == [full]


def test_a_record_that_breaks_the_schema_is_named(file):
    file.write_text(json.dumps([FULL, {**FULL, "paraphrase_prompts": None}]), "utf-8")
    with pytest.raises(UserError, match=r"facts\.json, record 1: paraphrase_prompts: "):
        read_records(file)


def test_both_answers_are_asked_at_every_prompt(benchmark):
    questions, keys = benchmark.questions(benchmark.cases[0])
    prompts = [
        "Guernica was painted by",
        *FULL["paraphrase_prompts"],
        *FULL["neighborhood_prompts"],
    ]
    assert [question.prompt for question in questions] == prompts
    assert {question.answers for question in questions} == {("Vermeer", "Picasso")}
    assert keys["list"].tolist() == ["new", "true"] * 5
    roles = ["edit", "paraphrase", "paraphrase", "neighbourhood", "neighbourhood"]
    assert keys["role"].tolist()[::2] == roles


def long_table(case_id, relation, prompts):
    """Rows of prompts (role, index, P(new), P(true)); new has two tokens, true has one."""
    rows = []
    for role, index, new, true in prompts:
        for name, tokens, probability in (("new", 2, new), ("true", 1, true)):
            after = tokens * np.log(probability)
            row = (case_id, relation, role, index, name, tokens, -tokens * 1.0, after)
            rows.append(row)
    columns = ["case_id", "relation", "role", "prompt_index", "list"]
    return pd.DataFrame(rows, columns=[*columns, "tokens", "sum_before", "sum_after"])


FIRST = [
    ("edit", 0, 0.5, 0.2),
    ("paraphrase", 0, 0.4, 0.1),
    ("paraphrase", 1, 0.1, 0.3),  # not paraphrased
    ("neighbourhood", 0, 0.1, 0.6),
    ("neighbourhood", 1, 0.5, 0.3),  # bleeds
    ("neighbourhood", 2, 0.2, 0.2),  # a tie is no success
    ("neighbourhood", 3, 0.05, 0.25),
]
SECOND = [
    ("edit", 0, 0.1, 0.3),
    ("paraphrase", 0, 0.6, 0.2),
    ("neighbourhood", 0, 0.2, 0.5),
]


def test_metrics_by_hand():
    """An answer's probability is the geometric mean over its tokens: sums alone would turn P(new) round."""
    scores = pd.concat([long_table(4, "P1", FIRST), long_table(7, "P2", SECOND)])
    table = counterfact_metrics(scores)
    assert table.index.names == ["case_id", "relation"]
    #        ES   EM   PS   PM     NS   NM
    first = [1.0, 0.3, 0.5, 0.05, 0.5, 0.125]
    second = [0.0, -0.2, 1.0, 0.4, 1.0, 0.3]
    assert list(table) == ["ES", "EM", "PS", "PM", "NS", "NM"]
    np.testing.assert_allclose(table.to_numpy(), [first, second], atol=1e-12)
    # S of means ES 1/2, PS 3/4, NS 3/4: 3 / (2 + 4/3 + 4/3) = 9/14
    assert score(table) == pytest.approx(9 / 14)
    before = counterfact_metrics(scores, "before")  # equal probabilities: nothing succeeds
    assert (before == 0).all(axis=None)
    assert score(before) == 0


def test_the_paper_s_score_is_the_harmonic_mean_of_its_shares():
    table = paper_table()
    assert table.loc[("gpt2-xl (paper)", "ROME")].tolist() == [
        *("89.2", "100.0 ± 0.1", "97.9 ± 0.2", "96.4 ± 0.3", "62.7 ± 0.8"),
        *("75.4 ± 0.7", "4.2 ± 0.2", 7500),
    ]
    for _, row in table.iterrows():
        shares = {name: [float(row[name].partition(" ")[0])] for name in ("ES", "PS", "NS")}
        assert score(pd.DataFrame(shares)) == pytest.approx(float(row["S"]), abs=0.15)


def test_a_run_is_published_resumed_and_shown(benchmark, tiny, tmp_path, monkeypatch):
    lm = tiny("llama")
    editor = InContext(lm, InContextHyperparameters())
    evaluation = Evaluation(lm, benchmark, ResultsStore(tmp_path / "store"), editor)
    assert evaluation.missing() == [4, 7]
    assert evaluation.before_and_after(from_store_only=True).empty
    archive = Archive(tmp_path / "archive")
    relations = {case.case_id: benchmark.relation(case) for case in benchmark.cases}
    about = About(evaluation.source, caption={"relations": relations})
    parts = [evaluation_part("In context", evaluation)]
    path = publish_parts(Publication("mine", about, parts), archive)
    assert evaluation.missing() == []
    monkeypatch.setattr("helpers.results.evaluation.score_answers", None)  # would fail
    scores = evaluation.before_and_after()
    assert len(scores) == 2 * (5 + 3)
    table = counterfact_table(archive.get(path.name)).table
    assert table["n"].tolist()[:2] == [2, 2]
    model = evaluation.source["model"]
    unedited, in_context = (table.loc[(model, name)] for name in ("unedited", "In context"))
    assert unedited["EM"] != in_context["EM"]


def test_a_params_file_of_a_benchmark_is_published_and_never_run(benchmark):
    values = {"model": "smollm2-135m", "preset": "tuned", "dataset": "counterfact-val"}
    values |= {"records": 2, "keep": None, "placebo": [], "shown_half": False, "methods": ["ft-m"]}
    notebook, file = Path("03_editing_runs.ipynb"), Path("mine.yaml")
    params_of(notebook, values).check(file, published=False)
    with pytest.raises(UserError, match=r"python -m helpers publish mine\.yaml"):
        params_of(notebook, values).check(file)
    with pytest.raises(UserError, match="keep: omit it, dataset counterfact-val has none"):
        params_of(notebook, values | {"keep": 1}).check(file, published=False)
    with pytest.raises(UserError, match="records: must be at least 1"):
        params_of(notebook, values | {"records": 0}).check(file, published=False)
