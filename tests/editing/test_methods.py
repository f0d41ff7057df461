"""Methods of the params files have hyperparameters for their model, checked without a model."""

from __future__ import annotations

import pytest
import yaml

from helpers.editing.editors import EditorError, method_label
from helpers.editing.methods import build_methods
from helpers.editing.presets import preset_values, read_hyperparameters
from helpers.paths import PARAMS
from helpers.peak.schema import STRICT
from helpers.results.archive import archive

FILES = sorted((PARAMS / "paper" / "03_editing_runs").glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_every_method_has_its_preset(file):
    params = yaml.safe_load(file.read_text(encoding="utf-8"))
    model, preset = params["model"], params.get("preset", "tuned")
    for method in params["methods"]:
        assert method_label(method)
        name, _, suffix = method.partition("+")
        values = preset_values(name, model, preset)
        if base := values.get("base"):
            values = preset_values(base, model, preset)
        if suffix == "app":
            assert {"alpha", "beta", "gamma"} <= set(values["app"])


@pytest.mark.parametrize("name", archive("peak").names())
def test_published_rows_are_of_their_presets_and_lists(name):
    """FT-L and KN had stood there with other values than their presets."""
    run = archive("peak").get(name)
    params = yaml.safe_load((FILES[0].parent / f"{name}.yaml").read_text(encoding="utf-8"))
    assert run.about.source["strict_lists"] == STRICT
    assert set(run.tables) <= set(map(method_label, params["methods"]))
    for method in params["methods"]:
        if method_label(method) in run.tables:
            values = read_hyperparameters(method.partition("+")[0], params["model"], "tuned")
            stored = run.about.settings[method_label(method)]["hyperparameters"]
            wanted = {k: v for k, v in values.model_dump(mode="json").items() if k != "stop_on"}
            assert {k: v for k, v in stored.items() if k != "stop_on"} == wanted, method


@pytest.mark.parametrize("method", ["rome+APP", "roma", "+app"])
def test_other_names_are_refused(method):
    with pytest.raises(EditorError, match="write an editor"):
        method_label(method)


def test_one_text_in_place_of_a_list_is_told_so():
    with pytest.raises(EditorError, match=r"'ft-m', where a list is needed: \['ft-m'\]"):
        build_methods("ft-m", None, preset="tuned")
