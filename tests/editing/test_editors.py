"""The table of editors, the names of methods and variants, their labels and the studies made of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from helpers.comparison.measures import FURTHER_EDITORS
from helpers.editing import build
from helpers.editing.app import App
from helpers.editing.build import build_editors, check_method
from helpers.editing.editors import EDITORS, EditorError, Variant, method_label, objectives
from helpers.editing.presets import Hyperparameters, read_hyperparameters
from helpers.editing.rect_prune import Rect, RectHyperparameters
from helpers.params import read_params
from helpers.paths import NOTEBOOKS, PARAMS
from helpers.peak.ablations import studies
from helpers.peak.records import STRICT
from helpers.results.archive import HALF_SHOWN, archive

NOTEBOOK = next(NOTEBOOKS.glob("**/04_app_ablations.ipynb"))
RUNS = sorted((PARAMS / "paper" / "03_editing_runs").glob("*.yaml"))
STUDIES = sorted((PARAMS / "paper" / NOTEBOOK.stem).glob("*.yaml"))
GENERATED = sorted((PARAMS / "paper" / "08_generated_text").glob("*.yaml"))


@pytest.mark.parametrize("editor", EDITORS.values(), ids=EDITORS)
def test_the_table_says_what_the_class_says(editor):
    assert editor.section == editor.editor_class.name
    assert issubclass(editor.hyperparameters, Hyperparameters)
    assert editor.values.keys() <= editor.hyperparameters.model_fields.keys()


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("rome", "ROME"),
        ("rome+app", "ROME+APP"),
        ("rome+all", "ROME+ (mean)"),
        ("rome+all-sum", "ROME+ (sum)"),
        ("rome+app@alpha=0x", "ROME+APP, without L1"),
        ("ft-m+app@gamma=0.5x", "FT-M+APP, 0.5 γ"),
        ("memit+app@neighbours=3", "MEMIT+APP, k = 3"),
        ("rome+app@margin=4", "ROME+APP, M = 4"),
    ],
)
def test_names_and_labels(name, label):
    assert str(Variant.parse(name)) == name
    assert Variant.parse(name).label == label


@pytest.mark.parametrize("bad", ["", "rome@alpha=0x", "rome+app@delta=1", "rome@kl_factor=2x"])
def test_names_that_mean_nothing_are_refused(bad):
    with pytest.raises(EditorError):
        Variant.parse(bad).changed({"kl_factor": None})


def test_a_variant_changes_one_field_of_app(tiny, make_editor, monkeypatch):
    app = App(alpha=0.2, beta=0.4, gamma=0.1)
    rome = make_editor("rome", tiny("llama"), app=app)
    built = {"rome": replace(rome, app=None), "rome+app": rome}
    built["rect+app"] = Rect(rome, RectHyperparameters())
    monkeypatch.setattr(build, "build_editor", lambda method, *_, **__: built[method])
    names = ["rome+app@beta=0.5x", "rome+app@neighbours=3", "rome+app@margin=4"]
    sharper, bounded = build_editors(["rome@kl_factor=4x", "rect+app@kl_factor=0x"], None).values()
    assert sharper.hyperparameters.kl_factor == 4 * rome.hyperparameters.kl_factor
    assert (bounded.base.hyperparameters.kl_factor, bounded.base.app) == (0, app)
    with pytest.raises(ValueError, match="norm_constraint"):
        build_editors(["rome@norm_constraint=2x"], None)
    names += ["rect+app@beta=0.5x", *map(str, objectives("rome"))]
    assert [editor.app for editor in build_editors(names, None).values()] == [
        App(0.2, 0.2, 0.1),
        App(0.2, 0.4, 0.1, neighbours=3),
        App(0.2, 0.4, 0.1, margin=4),
        App(0.2, 0.2, 0.1),
        *(None, app),
        *(App(0, 0.4, 0.1), App(0.2, 0, 0.1), App(0.2, 0.4, 0)),
    ]
    assert rome.app == app


@pytest.mark.parametrize("file", [*RUNS, *STUDIES, *GENERATED], ids=lambda path: path.stem)
def test_published_methods_have_hyperparameters_for_their_model(file, monkeypatch):
    monkeypatch.setattr(build, "network_file", lambda *_: None)  # not all are here
    if file in STUDIES:
        params = read_params(file, NOTEBOOK)
        methods = {variant.method for variant in studies(params)}
        methods |= {*params["sequences"]}
    else:
        params = yaml.safe_load(file.read_text(encoding="utf-8"))
        lists = ("methods", "placebo", "scorers", "ability")
        methods = {method for name in lists for method in params.get(name, ())}
    for method in methods:
        check_method(method, params["model"], params.get("preset", "tuned"))


@pytest.mark.parametrize("name", archive("peak").names())
def test_published_rows_are_of_their_presets_and_lists(name):
    """FT-L and KN had stood there with other values than their presets."""
    run = archive("peak").get(name)
    model_and_data, _, label = name.partition("@")
    file_by_label = {
        "": f"03_editing_runs/{model_and_data}.yaml",
        FURTHER_EDITORS: f"09_editors/{model_and_data}.yaml",
        HALF_SHOWN: f"09_editors/{model_and_data}_{HALF_SHOWN}.yaml",
    }
    file = PARAMS / "paper" / file_by_label[label]
    params = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert run.about.source["strict_lists"] == STRICT
    assert set(run.tables) <= set(map(method_label, params["methods"]))
    for method in params["methods"]:
        if method_label(method) in run.tables:
            values = read_hyperparameters(method.partition("+")[0], params["model"], "tuned")
            stored = run.about.settings[method_label(method)]["hyperparameters"]
            wanted = {k: v for k, v in values.model_dump(mode="json").items() if k != "stop_on"}
            assert {k: v for k, v in stored.items() if k != "stop_on"} == wanted, method
