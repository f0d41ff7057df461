"""Publishing notebook 04's studies with a tiny model: piece by piece, resumably, scores only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from helpers.data.peak import load_peak
from helpers.editing.app import App
from helpers.editing.context import ContextTemplates
from helpers.editing.rome import Rome
from helpers.publishing import ablations
from helpers.publishing.adoption import adopt
from helpers.publishing.peak import caption, publish, publish_runs
from helpers.reporting.ablations_stored import load_ablations, stored_ablations
from helpers.reporting.stored import load_run, stored_runs
from helpers.runs import methods, peak_scores
from helpers.runs.params import ParamsError
from helpers.runs.peak_scores import PeakRun
from helpers.runs.store import ResultsStore

PARAMS = {
    "records": 2,
    "editors": ["rome"],
    "fairer": ["rome"],
    "neighbours": [1],
    "factors": [2.0],
    "margins": [1.0],
    "others": [],
    "said": ["rome"],
    "samples": 2,
    "sequences": ["rome+app"],
    "checkpoints": [3, 1],
    "preset": "tuned",
    "corpus": "self",
    "seed": 0,
}


@pytest.fixture
def run(tiny, tmp_path):
    return PeakRun(tiny("llama"), load_peak("peak-mini-cf", limit=3), ResultsStore(tmp_path / "r"))


@pytest.fixture
def rome(run, rome_settings, monkeypatch):
    plain = Rome(run.language_model, rome_settings, ContextTemplates((("{}",),)))
    built = {
        "rome": plain,
        "rome+app": replace(plain, app=App()),
        "rome+all": replace(plain, targets="all"),
    }
    monkeypatch.setattr(methods, "build_method", lambda method, *_, **options: built[method])
    return plain


@pytest.fixture
def published(run, rome, tmp_path):
    def again():
        about = caption(run, PARAMS)
        return ablations.publish_ablations(run, PARAMS, about, tmp_path / "p")

    return again


def test_every_study_is_stored(published):
    path = published()
    stored = load_ablations(path.name, path.parent)
    assert set(stored.scores) == {
        *("rome", "rome+app", "rome+all", "rome+app@neighbours=1", "rome+app@margin=1"),
        *(f"rome+app@{field}={x}x" for field in ("alpha", "beta", "gamma") for x in (0, 2)),
    }
    assert {table["case_id"].nunique() for table in stored.scores.values()} == {2}
    assert {place: t["case_id"].nunique() for place, t in stored.sequences.items()} == {
        ("rome+app", 1): 1,
        ("rome+app", 3): 3,
    }
    assert set(stored.said) == {"before", "again", "rome"}
    assert stored.settings["rome+app@margin=1"]["app"]["margin"] == 1
    files = {file.suffix for file in path.rglob("*") if file.is_file()}
    assert files == {".json", ".parquet"}


@pytest.mark.parametrize("name", ["organisation/tiny", "/home/somebody/tiny"])
def test_names_with_slashes_are_one_folder(run, rome, tmp_path, name):
    run = replace(run, language_model=replace(run.language_model, name=name))
    about, root = caption(run, PARAMS), tmp_path / "p"
    studies = ablations.publish_ablations(run, PARAMS, about, root / "ablations")
    assert stored_ablations(root / "ablations") == [studies.name]
    runs = publish_runs(run, {**PARAMS, "methods": ["rome"]}, root / "runs")
    assert stored_runs(root / "runs") == [runs.name] == [studies.name]
    elsewhere = replace(run, store=ResultsStore(tmp_path / "elsewhere"))
    adopted = publish_runs(elsewhere, {**PARAMS, "methods": ["rome"]}, root / "runs")
    assert adopted == runs
    assert elsewhere.edits(rome).empty  # adopted, not made


def test_a_second_run_computes_nothing_and_writes_the_same(published, monkeypatch):
    path = published()
    before = {file: file.read_bytes() for file in path.rglob("*.*")}
    monkeypatch.setattr(Rome, "edit", None)  # any edit would fail
    monkeypatch.setattr(peak_scores, "score_answers", None)
    published()
    assert {file: file.read_bytes() for file in path.rglob("*.*")} == before


def test_published_sequences_are_not_made_again_elsewhere(published, run, tmp_path, monkeypatch):
    path = published()
    before = load_ablations(path.name, path.parent).sequences
    elsewhere = replace(run, store=ResultsStore(tmp_path / "elsewhere"))
    monkeypatch.setattr(Rome, "edit", None)  # any edit would fail
    params = {**PARAMS, "said": []}
    ablations.publish_ablations(elsewhere, params, caption(run, params), path.parent)
    after = load_ablations(path.name, path.parent).sequences
    assert after.keys() == before.keys()
    for place, table in before.items():
        pd.testing.assert_frame_equal(after[place], table)


def test_published_scores_are_not_computed_again_elsewhere(run, rome, tmp_path, monkeypatch):
    params = {**PARAMS, "methods": ["rome", "rome+app"]}
    path = publish_runs(run, params, tmp_path / "p")
    first = load_run(path.name, path.parent)
    elsewhere = replace(run, store=ResultsStore(tmp_path / "elsewhere"))
    monkeypatch.setattr(Rome, "edit", None)  # any edit would fail
    monkeypatch.setattr(peak_scores, "score_answers", None)
    publish_runs(elsewhere, params, path.parent)
    again = load_run(path.name, path.parent)
    assert again.settings == first.settings
    for label, table in first.scores.items():
        pd.testing.assert_frame_equal(again.scores[label], table)
    edits = elsewhere.edits(rome)  # of adopted scores it is not known how the edits went
    assert edits.empty
    assert list(edits.columns) == peak_scores.EDIT_COLUMNS
    assert edits["exploding"].sum() == 0
    assert np.isnan(edits["steps"].median())


def test_published_scores_of_other_settings_are_not_taken(run, rome, tmp_path, monkeypatch):
    params = {**PARAMS, "methods": ["rome"]}
    path = publish_runs(run, params, tmp_path / "p")
    stored = load_run(path.name, path.parent)
    other = {"ROME": replace(rome, app=App())}
    elsewhere = replace(run, store=ResultsStore(tmp_path / "elsewhere"))
    adopt(elsewhere, other, stored)
    adopt(elsewhere, {"ROME": rome}, replace(stored, source={**stored.source, "model": "other"}))
    assert not elsewhere.results().done()
    adopt(elsewhere, {"ROME": rome}, stored)
    assert elsewhere.results(rome).done() == elsewhere.results().done() == set(run.results().done())


def test_a_published_run_is_not_replaced_by_a_part_of_it(run, rome, tmp_path):
    both = {**PARAMS, "methods": ["rome", "rome+app"]}
    path = publish_runs(run, both, tmp_path / "p")
    before = {file: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(ParamsError, match=r"holds ROME\+APP, which this run lacks"):
        publish_runs(run, {**PARAMS, "methods": ["rome"]}, path.parent)
    first = replace(run, data=replace(run.data, records=run.data.records[:1]))
    with pytest.raises(ParamsError, match="holds 3 records, which this run lacks"):
        publish_runs(first, both, path.parent)
    assert {file: file.read_bytes() for file in path.iterdir()} == before


def test_nothing_finished_is_nothing_stored(run, rome, tmp_path):
    with pytest.raises(ParamsError, match="none of ROME is finished"):
        publish_runs(run, {**PARAMS, "methods": ["rome"]}, tmp_path / "p", finished=True)
    assert not (tmp_path / "p").exists()


def test_only_some_notebooks_are_published():
    from helpers.paths import PARAMS as FOLDER

    with pytest.raises(ParamsError, match="03_editing_runs and 04_app_ablations"):
        publish(FOLDER / "quick" / "01_preliminaries.yaml")
