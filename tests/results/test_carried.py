"""Results made before settings named every version go on counting as finished."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from helpers.paths import FIGURES
from helpers.results.carried import with_versions
from helpers.results.store import ResultsStore, settings_key

PUBLISHED = sorted(
    path
    for path in (FIGURES / "data").glob("peak*/**/about.json")
    if path.parent.parent.name != "peak_edits"  # how edits went, not what made them
)
OLD = {
    "benchmark": "peak",
    "scoring_version": 1,
    "mode": "independent",
    "editor": "ft",
    "version": 1,
    "hyperparameters": {"lr": 0.1},
    "app": None,
    "targets": "new",
}
NEW = {name: value for name, value in OLD.items() if name != "version"} | {
    "versions": {"ft": 1, "loss": 1},
    "scored_by": {"answers": 1},
}
TABLE = pd.DataFrame({"case_id": [3, 5], "sum": [0.5, -1.0]})


def test_an_earlier_runs_settings_get_todays_form():
    assert with_versions(OLD) == NEW
    assert with_versions(NEW) == NEW


def test_the_unedited_model_has_no_versions_but_the_scorers():
    said = {"benchmark": "peak", "scoring_version": 1, "mode": "said", "editor": "none"}
    assert with_versions(said) == said | {"scored_by": {"responses": 1}}


def test_edits_at_every_layer_keep_the_version_of_their_own():
    earlier = {"facts": "ab12", "version": 2, "hyperparameters": {"v_lr": 0.5}}
    current = with_versions(earlier)
    assert current["version"] == 2
    assert current["versions"]["rome"] == 1


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: str(path.parent.relative_to(FIGURES)))
def test_published_settings_name_every_part(path):
    """Real ones: MEMIT and AlphaEdit on Gemma and R-ROME keep the parts their version 2 stood for."""
    stored = json.loads(path.read_text("utf-8"))
    for label, settings in stored["settings"].items():
        current = with_versions(settings)
        assert "version" not in current
        assert current["editor"] in current["versions"]
        assert ("app" in current["versions"]) == ("+app" in label.lower())
        if settings["editor"] in ("memit", "alphaedit"):
            assert {"vector", "contexts", "second_moments", "spreading"} <= set(current["versions"])
            assert ("normed" in current["versions"]) == ("gemma" in path.parent.name)
        averaged = settings["hyperparameters"].get("rome_key") == "averaged"
        assert ("r-rome" in current["versions"]) == averaged


def test_a_store_carries_earlier_results_over_once(tmp_path):
    earlier = tmp_path / settings_key(OLD)
    ResultsStore(tmp_path).open(OLD).append(TABLE)
    (earlier / "update.safetensors").write_bytes(b"kept beside the scores")
    results = ResultsStore(tmp_path).open(NEW)
    assert results.folder.name == settings_key(NEW)
    assert results.settings == NEW
    assert results.done() == {3, 5}
    assert (results.folder / "update.safetensors").read_bytes() == b"kept beside the scores"
    ResultsStore(tmp_path).open(OLD).append(TABLE.assign(case_id=[7, 8]))  # still going
    assert ResultsStore(tmp_path).open(NEW).done() == {3, 5}


def test_a_raised_version_takes_nothing_over(tmp_path):
    ResultsStore(tmp_path).open(OLD).append(TABLE)
    raised = NEW | {"versions": {"ft": 1, "loss": 2}}
    assert ResultsStore(tmp_path).open(raised).done() == set()


def test_other_folders_of_the_store_do_no_harm(tmp_path):
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "settings.json").write_text("{")
    assert ResultsStore(tmp_path).open(NEW).done() == set()
