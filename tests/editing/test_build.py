"""Params files of all models, and editors assembled from them by name."""

from __future__ import annotations

import pytest
import yaml

from helpers.editing import build
from helpers.editing.app import App
from helpers.editing.build import build_editor
from helpers.editing.contexts import ContextTemplates
from helpers.editing.editors import EDITORS, EditorError
from helpers.editing.mend import Hypernetwork
from helpers.editing.presets import (
    model_file,
    read_hyperparameters,
)
from helpers.paths import PARAMS

FILES = sorted((PARAMS / "models").glob("*.yaml"))
BLOCKS = {
    "gpt2-xl": 48,
    "gpt-j-6b": 28,
    "llama2-7b": 32,
    "llama2-13b": 40,
    "llama3-8b-instruct": 32,
    "qwen2.5-7b-instruct": 28,
    "smollm2-135m": 30,
    "gemma3-270m": 18,
}
TABLE_8 = {  # PEAK: alpha, beta, gamma
    **{(model, "ft"): (0.2, 0.5, 0.2) for model in ("gpt2-xl", "gpt-j-6b", "llama2-7b")},
    ("gpt2-xl", "mend"): (0.5, 0, 0),
    ("gpt-j-6b", "mend"): (0.5, 0, 0),
    ("llama2-7b", "mend"): (0.3, 0, 0),
    ("gpt2-xl", "memit"): (0.05, 0.05, 0.05),
    ("gpt2-xl", "rome"): (0.2, 0.2, 0.1),
    ("gpt-j-6b", "memit"): (0.1, 0.3, 0.2),
    ("gpt-j-6b", "rome"): (0.2, 0.2, 0.1),
    ("llama2-7b", "memit"): (0.6, 1.0, 0.3),
    ("llama2-7b", "rome"): (0.5, 0.8, 0.1),
}


def sections(path):
    return yaml.safe_load(path.read_text())["editors"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_preset_is_valid_and_says_where_it_comes_from(path) -> None:
    known = sections(path)
    places = {e: e if e in known else entry.section for e, entry in EDITORS.items()}
    assert set(known) == set(places.values())
    for editor, entry in EDITORS.items():
        for preset, values in known[places[editor]].items():
            hyperparameters = read_hyperparameters(editor, path.stem, preset)
            assert type(hyperparameters) is entry.hyperparameters
            assert values["source"]
            layers = getattr(hyperparameters, "layers", ())
            assert all(layer < BLOCKS[path.stem] for layer in layers)
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


@pytest.mark.parametrize(("model", "editor"), TABLE_8)
def test_published_coefficients(model, editor) -> None:
    values = sections(PARAMS / "models" / f"{model}.yaml")[editor]["paper"]
    coefficients = values["app"]
    expected = TABLE_8[model, editor]
    assert tuple(coefficients[key] for key in ("alpha", "beta", "gamma")) == expected
    if editor in ("rome", "memit"):
        assert values["stop_on"] == "nll"


@pytest.fixture
def named(tiny, moments_of, monkeypatch):
    """A tiny model under an embedded model's name, its statistics and contexts made here."""
    model = tiny("llama")
    monkeypatch.setattr(build, "second_moment", lambda lm, *_, **__: moments_of(lm))
    monkeypatch.setattr(
        build, "context_templates", lambda *_, **__: ContextTemplates((("{}", "So. {}"),))
    )
    return type(model)("smollm2-135m", model.model, model.tokenizer)


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
    assert with_app.edit(requests[:1])[0].norm() > 0
    if name != "ft-m":
        stops = [getattr(e, "base", e).hyperparameters.stop_on for e in (plain, with_app)]
        assert stops == ["total", "nll"]


def test_knowledge_neurons_by_name_take_no_objective(named, requests) -> None:
    editor = build_editor("kn", named, preset="tuned", overrides={"steps": 2})
    assert editor.edit(requests[:1])[0].norm() > 0
    with pytest.raises(EditorError, match="no loss that APP"):
        build_editor("kn", named, preset="tuned", app=True)
    with pytest.raises(EditorError, match="no loss that APP or further answers"):
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
    Hypernetwork.for_layers(named, (2, 3), 4).save(path, named)
    overrides = {"layers": (2, 3), "rank": 4, "network": str(path)}
    editor = build_editor("mend", named, preset="tuned", app=True, overrides=overrides)
    assert editor.app.beta == editor.app.gamma == 0
    assert editor.edit(requests[:1])[0].norm() > 0


def test_what_does_not_exist_is_named(named, tiny) -> None:
    with pytest.raises(EditorError, match="no method 'roma'") as caught:
        build_editor("roma", named, preset="tuned")
    assert all(name in str(caught.value) for name in EDITORS)
    with pytest.raises(EditorError, match=r"rome has no preset 'papre'; .*'generic'\]"):
        build_editor("rome", named, preset="papre")
    with pytest.raises(EditorError, match="v_lrr"):
        build_editor("rome", named, preset="tuned", overrides={"v_lrr": 1})
    with pytest.raises(EditorError, match="no hyperparameters for model 'tiny-llama'"):
        build_editor("rome", tiny("llama"), preset="tuned")
