"""Params files of all models, and editors assembled from them by name."""

from __future__ import annotations

import pytest
import yaml

from helpers.editing import build
from helpers.editing.app import App
from helpers.editing.build import build_editor
from helpers.editing.contexts import ContextTemplates
from helpers.editing.editors import EDITORS, EditorError
from helpers.editing.presets import model_file, read_hyperparameters
from helpers.paths import PARAMS
from helpers.results.text import published_table
from tools.train_mend.trainer import save_network, untrained

FILES = sorted((PARAMS / "models").glob("*.yaml"))
TABLE_8 = published_table("peak_table_8").groupby(["model", "method"])["value"].agg(tuple)


def sections(path):
    return yaml.safe_load(path.read_text())["editors"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_preset_is_valid_and_says_where_it_comes_from(path) -> None:
    known = sections(path)
    blocks = yaml.safe_load(path.read_text())["configuration"]["blocks"]
    places = {e: e if e in known else entry.section for e, entry in EDITORS.items()}
    of_any_model = {"incontext", "ike", "memory", "simie"}
    of_some_models = {"grace", "memoir", "encore", "emmet", "ultraedit", "lora", "ftbf"}
    assert set(places.values()) - set(known) <= {*of_some_models, *of_any_model}
    for editor, entry in EDITORS.items():
        if places[editor] not in known:
            continue
        for preset, values in known[places[editor]].items():
            hyperparameters = read_hyperparameters(editor, path.stem, preset)
            assert type(hyperparameters) is entry.hyperparameters
            assert values["source"]
            layers = getattr(hyperparameters, "layers", ())
            assert all(layer < blocks for layer in layers)
            if entry.section in ("rect", "prune"):
                assert preset in sections(path)[hyperparameters.base]
            elif entry.loss:
                assert set(values["app"]) - {"stop_on", "margin", "extrapolated"} == {
                    "alpha",
                    "beta",
                    "gamma",
                }
            if preset in ("original", "easyedit"):  # no code of theirs stops on the likelihood
                assert values.get("stop_on", "total") == "total"
                assert "stop_on" not in values.get("app", {})


@pytest.mark.parametrize("preset", ["tuned", "paper", "generic"])
def test_editors_without_weights_have_one_preset_for_all_models(preset) -> None:
    for editor in ("in-context", "ike", "memory-bm25", "memory-hidden"):
        for model in ("smollm2-135m", "llama2-7b"):
            hyperparameters = read_hyperparameters(editor, model, preset)
            assert type(hyperparameters) is EDITORS[editor].hyperparameters
    assert read_hyperparameters("ike", "smollm2-135m", "paper").k == 32


@pytest.mark.parametrize(("model", "method"), TABLE_8.index)
def test_published_coefficients(model, method) -> None:
    editor = method.removesuffix("+APP").lower()
    values = sections(PARAMS / "models" / f"{model}.yaml")[editor]["paper"]
    found = tuple(values["app"][key] for key in ("alpha", "beta", "gamma"))
    assert found == TABLE_8[model, method]
    if editor in ("rome", "memit"):
        assert values["stop_on"] == "nll"


@pytest.fixture
def named(tiny, moments_of, monkeypatch):
    """A tiny model under an embedded model's name, its statistics and contexts made here."""
    model = tiny("llama")
    monkeypatch.setattr(
        build, "second_moments", lambda lm, layers, _: {n: moments_of(lm)[n] for n in layers}
    )
    monkeypatch.setattr(
        build, "context_templates", lambda *_, **__: ContextTemplates((("{}", "So. {}"),))
    )
    return type(model)("smollm2-135m", model.network, model.tokenizer)


SMALL = {"layers": (1,), "v_num_grad_steps": 2}


@pytest.mark.parametrize("name", ["rome", "r-rome", "memit", "alphaedit", "rect", "prune", "ft-m"])
def test_editors_by_name(named, requests, name) -> None:
    overrides = {**SMALL, "nullspace_threshold": 5.0} if name == "alphaedit" else SMALL
    overrides = {"layers": (1,), "num_steps": 2} if name == "ft-m" else overrides
    plain, with_app, every = (
        build_editor(name + suffix, named, preset="tuned", overrides=overrides)
        for suffix in ("", "+app", "+all")
    )
    assert plain.method == name
    assert with_app.app == (App(0.2, 0.5, 0.2) if name == "ft-m" else App(0.2, 0.2, 0.1))
    assert getattr(every, "base", every).targets == "all"
    assert max(with_app.edit(requests[:1])[0].diagnostics["norm"].values()) > 0
    if name != "ft-m":
        stops = [getattr(e, "base", e).hyperparameters.stop_on for e in (plain, with_app)]
        assert stops == ["total", "nll"]


def test_knowledge_neurons_by_name_take_no_objective(named, requests) -> None:
    editor = build_editor("kn", named, preset="tuned", overrides={"steps": 2})
    assert max(editor.edit(requests[:1])[0].diagnostics["norm"].values()) > 0
    with pytest.raises(EditorError, match="no loss that APP"):
        build_editor("kn", named, preset="tuned", app=True)
    with pytest.raises(EditorError, match=r"KN has no loss; omit \+all"):
        build_editor("kn+all", named, preset="tuned")


@pytest.mark.parametrize(
    ("model", "file"),
    [
        ("shape:llama2-7b", "llama2-7b"),
        ("shape:llama3-8b", "llama3-8b-instruct"),
        ("meta-llama/Llama-2-7b-hf", "llama2-7b"),
        ("somebody/GPT2-XL", "gpt2-xl"),
        ("models/smollm2-135m", "smollm2-135m"),
    ],
)
def test_a_model_has_one_params_file_under_all_its_names(model, file) -> None:
    assert model_file(model) == PARAMS / "models" / f"{file}.yaml"
    assert model_file(model).exists()


def test_mend_by_name_reads_its_network(named, requests, tmp_path) -> None:
    path = tmp_path / "network.safetensors"
    save_network(untrained(named, (2, 3), 4), path, named)
    overrides = {"layers": (2, 3), "rank": 4, "network": str(path)}
    editor = build_editor("mend", named, preset="tuned", app=True, overrides=overrides)
    assert editor.app.beta == editor.app.gamma == 0
    assert max(editor.edit(requests[:1])[0].diagnostics["norm"].values()) > 0


def test_what_does_not_exist_is_named(named, tiny) -> None:
    with pytest.raises(EditorError, match="no method 'roma'") as caught:
        build_editor("roma", named, preset="tuned")
    assert all(name in str(caught.value) for name in EDITORS)
    with pytest.raises(EditorError, match=r"rome has no preset 'papre'; .*'generic'\]"):
        build_editor("rome", named, preset="papre")
    with pytest.raises(EditorError, match=r"ft-m has no preset 'papre'; .*'generic'\]"):
        build_editor("ft-m", named, preset="papre")
    with pytest.raises(EditorError, match="v_lrr"):
        build_editor("rome", named, preset="tuned", overrides={"v_lrr": 1})
    with pytest.raises(EditorError, match="no hyperparameters for model 'tiny-llama'"):
        build_editor("rome", tiny("llama"), preset="tuned")
