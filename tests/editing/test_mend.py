"""MEND: the network, its gradients, and the training loop."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from helpers import UserError, models
from helpers.editing import build
from helpers.editing import mend as mend_module
from helpers.editing.app import App
from helpers.editing.batch import EditBatch
from helpers.editing.mend import (
    Hypernetwork,
    Mend,
    MendHyperparameters,
    NetworkError,
    load_network,
    network_file,
    token_gradients,
)
from helpers.editing.presets import read_hyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rows import edit_row
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import answer_ids, prompt_ids
from helpers.params import defaults_of
from helpers.paths import NOTEBOOKS, PACKAGED
from helpers.peak.records import load_peak
from helpers.values import params_of
from tests.editing.conftest import assert_same, untrained_network
from tools.train_mend.__main__ import train
from tools.train_mend.trainer import (
    Trainer,
    TrainingRecord,
    TrainingSettings,
    draw_tasks,
    normalise,
    save_network,
    untrained,
)

LAYERS = (2, 3)
RECORDS = [
    TrainingRecord(subject, (f"{subject} lies in", f"The place of {subject} is"), new, old, "in")
    for subject, new, old in (
        ("Ur", "Peru", "Asia"),
        ("Rome", "Chad", "Italy"),
        ("Bonn", "Oman", "Europe"),
        ("Lima", "Fiji", "Peru"),
        ("Oslo", "Mali", "Norway"),
    )
]


def mend(lm, app=None, targets="new", **more: Any) -> Mend:
    network = untrained_network(lm, **more)
    hyperparameters = MendHyperparameters(layers=LAYERS, rank=network.rank)
    return Mend(lm, hyperparameters, app, targets, network=network)


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_token_gradients_make_up_the_weights_gradient(tiny, requests, architecture) -> None:
    """Sum over tokens of delta x^T is autograd's gradient of the loss in the weight."""
    lm = tiny(architecture)
    names = list(untrained(lm, LAYERS, 2).shapes)
    batch = EditBatch(lm, [edit_row(lm, r) for r in requests], 2)
    gradients, terms = token_gradients(batch, names)
    request = requests[1]
    prompt = prompt_ids(lm, request.text)
    target = answer_ids(lm, request.target)
    for name in names:
        stored = lm.module(name).weight
        stored.requires_grad_()
        try:
            logits = lm.network(input_ids=torch.tensor([[*prompt, *target]])).logits[0]
            picked = logits.log_softmax(-1)[len(prompt) - 1 : -1]
            loss = -picked.gather(1, torch.tensor(target)[:, None]).mean()
            (expected,) = torch.autograd.grad(loss, [stored])
        finally:
            stored.requires_grad_(False)
        assert float(terms["nll"][1]) == pytest.approx(float(loss.detach()), abs=1e-4)
        x, delta = gradients[name]
        found = delta[1].T @ x[1]
        expected = expected if expected.shape == found.shape else expected.T
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_the_network_by_hand() -> None:
    """One matrix [1, 1], rank 1: two layers of z + relu(s (U V z + b) + o)."""
    network = Hypernetwork({"w": (1, 1)}, rank=1)
    normalise(network, {"w": torch.tensor([[1.0, 0.0], [3.0, 2.0]])})  # mean 2, 1; deviation √2
    shape = network.networks["1x1"]
    with torch.no_grad():
        network.rates.fill_(0.5)
        shape.layers[0].right.copy_(torch.tensor([[1.0, 1.0]]))
        shape.layers[0].left.copy_(torch.tensor([[2.0], [-1.0]]))
        shape.layers[0].bias.copy_(torch.tensor([1.0, 0.0]))
        shape.layers[0].scale.copy_(torch.tensor([[1.0, 3.0]]))
        shape.layers[0].shift.copy_(torch.tensor([[0.0, 20.0]]))
    right, left = network("w", torch.tensor([[4.0], [0.0]]), torch.tensor([[3.0], [5.0]]))
    # z = (√2, √2), so U V z + b = (4√2 + 1, -2√2), scaled and shifted (4√2 + 1, 20 - 6√2).
    root = 2**0.5
    torch.testing.assert_close(right[0], torch.tensor([5 * root + 1]))
    torch.testing.assert_close(left[0], torch.tensor([0.5 * (20 - 5 * root)]))
    assert right[1] == 0  # no input, no contribution
    assert left[1] == 0


def test_app_adds_its_first_term_only(tiny, requests) -> None:
    lm = tiny("llama")
    plain, first, all_three = (
        mend(lm, app).edit(requests[:1])[0] for app in (None, App(0.5, 0, 0), App(0.5, 0.9, 0.9))
    )
    assert first.diagnostics["losses"][0]["app"] > 0
    for module in plain:
        assert not torch.allclose(plain[module].dense(), first[module].dense())
        torch.testing.assert_close(first[module].dense(), all_three[module].dense())


# Training.


def settings(**more: Any) -> TrainingSettings:
    small = {"rank": 4, "steps": 6, "batch": 3, "measured": 4, "rate_learning_rate": 1e-4}
    return TrainingSettings(layers=LAYERS, **{**small, **more})


def test_a_step_weighs_both_objectives_and_the_rate_falls_to_zero(tiny) -> None:
    trainer = Trainer(tiny("llama"), RECORDS, settings(steps=4, largest_gradient=1e9))
    trainer.measure()
    tasks = draw_tasks(RECORDS, 3, "0 0")
    factors = trainer.learner.factors([task.edit for task in tasks])
    nll = trainer.learner.nll(factors, [task.outer for task in tasks], torch.arange(3)).mean()
    kl = trainer.learner.change(factors, [task.locality for task in tasks])[0].mean()
    rates = trainer.network.rates
    (expected,) = torch.autograd.grad(0.1 * nll + 1.0 * kl, rates)
    assert trainer.train_step() == pytest.approx(
        (float(nll.detach()), float(kl.detach())), rel=1e-4
    )
    torch.testing.assert_close(rates.grad, expected, rtol=1e-3, atol=1e-6)
    for left in (1, 0.75, 0.5, 0.25):
        learning = [group["lr"] for group in trainer.optimiser.param_groups]
        assert learning == pytest.approx([left * 1e-3, left * 1e-4])
        trainer.train_step()


def read_curve(path: Path) -> list[dict[str, str]]:
    with path.open() as stream:
        return list(csv.DictReader(stream))


def test_an_interrupted_run_goes_on_as_if_it_had_not_been(tiny, tmp_path) -> None:
    lm = tiny("gpt2")
    whole = Trainer(lm, RECORDS, settings())
    train(whole, RECORDS[:2], tmp_path / "whole.safetensors", every=3)
    parts = tmp_path / "parts.safetensors"
    train(Trainer(lm, RECORDS, settings()), RECORDS[:2], parts, every=3, patience=0)
    own = MendHyperparameters(layers=LAYERS, rank=4, network=str(parts))
    first = load_network(lm, own)
    resumed = Trainer(lm, RECORDS, settings())
    train(resumed, RECORDS[:2], parts, every=3)
    assert resumed.step == 6
    for name, tensor in whole.network.state_dict().items():
        torch.testing.assert_close(resumed.network.state_dict()[name], tensor)
    assert not torch.equal(first.rates, resumed.network.rates)
    rows = read_curve(parts.with_suffix(".csv"))
    assert [row["step"] for row in rows] == ["0", "3", "6"]
    for row, expected in zip(rows, read_curve(tmp_path / "whole.csv"), strict=True):
        assert {k: float(v or 0) for k, v in row.items()} == pytest.approx(
            {k: float(v or 0) for k, v in expected.items()}, rel=1e-2
        )
    other = Trainer(lm, RECORDS, settings(seed=1))
    with pytest.raises(NetworkError, match="checkpoint of other settings"):
        train(other, RECORDS[:2], parts)
    with pytest.raises(NetworkError, match="checkpoint of other records"):
        train(Trainer(lm, RECORDS[1:], settings()), RECORDS[:2], parts)
    with pytest.raises(NetworkError, match="checkpoint of other model"):
        train(Trainer(tiny("gpt2", seed=1), RECORDS, settings()), RECORDS[:2], parts)


# Records.


# Networks on disk.


def test_networks_come_back_from_disk(tiny, requests, tmp_path) -> None:
    lm = tiny("llama")
    network = untrained_network(lm)
    path = tmp_path / "net.safetensors"
    save_network(network, path, lm)
    hyperparameters = MendHyperparameters(layers=LAYERS, rank=4, network=str(path))
    loaded = load_network(lm, hyperparameters)
    x, delta = torch.randn(5, 32), torch.randn(5, 48)
    gate = lm.layout.gate(2)
    for one, other in zip(loaded(gate, x, delta), network(gate, x, delta), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2)  # stored in half precision
    edited = Mend(lm, hyperparameters, network=loaded).settings()["network"]
    assert edited != Mend(lm, hyperparameters, network=network).settings()["network"]


def test_networks_that_do_not_fit_are_refused(tiny, requests, tmp_path, monkeypatch) -> None:
    lm = tiny("llama")
    path = tmp_path / "net.safetensors"
    save_network(untrained_network(lm), path, lm)
    given = {"layers": LAYERS, "rank": 4, "network": str(path)}
    with pytest.raises(NetworkError, match="was trained for tiny-llama"):
        load_network(tiny("qwen2"), MendHyperparameters(**given))
    with pytest.raises(NetworkError, match=r"edits layers \[2, 3\] at rank 4"):
        load_network(lm, MendHyperparameters(**{**given, "rank": 8}))
    with pytest.raises(NetworkError, match=r"edits layers \[2, 3\] at rank 4"):
        load_network(lm, MendHyperparameters(**{**given, "layers": (1, 2)}))
    monkeypatch.setattr(mend_module, "cache_folder", lambda *_: tmp_path / "cache")
    with pytest.raises(NetworkError, match=r"train_mend --model tiny-llama"):
        load_network(lm, MendHyperparameters(layers=LAYERS))
    path = tmp_path / "another.safetensors"
    save_file({"x": torch.zeros(1)}, path)
    given["network"] = str(path)
    with pytest.raises(NetworkError, match="holds no MEND network"):
        load_network(lm, MendHyperparameters(**given))


def test_the_packaged_network_edits_the_embedded_model(target_scores) -> None:
    path = PACKAGED / "mend" / "smollm2-135m.safetensors"
    assert path.stat().st_size <= 8e6
    lm = models.load("smollm2-135m")
    hyperparameters = read_hyperparameters("mend", "smollm2-135m", "tuned")
    network = load_network(lm, hyperparameters)
    editor = Mend(lm, hyperparameters, network=network)
    edits = [
        EditRequest(r.subject, r.prompt, r.target_new)
        for r in load_peak("peak-mini-cf", limit=5).records
    ]
    before, after = (target_scores(lm, edits, u) for u in (None, editor.edit(edits)))
    assert (after - before > 0.5).all()


def test_the_other_editors_go_on_without_an_untrained_network(tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path))
    lm = replace(tiny("llama"), name="gpt2-xl")
    built = []
    monkeypatch.setattr(
        build,
        "build_editor",
        lambda name, model, **_: built.append(name) or network_file_of(name, model),
    )
    with pytest.warns(UserWarning, match="MEND is omitted: no MEND network gpt2-xl"):
        editors = build.build_editors(["mend", "rome"], lm, preset="paper")
    assert (list(editors), built) == (["rome"], ["mend", "rome"])
    with pytest.raises(NetworkError, match="train_mend --model gpt2-xl"):
        build.build_editors(["mend"], lm, preset="paper")
    notebook = NOTEBOOKS / "03_editing_runs.ipynb"
    values = {**defaults_of(notebook), "model": "gpt2-xl", "preset": "paper"}
    params_of(notebook, {**values, "methods": ["mend", "rome"]}).check(tmp_path)
    with pytest.raises(UserError, match="no MEND network"):
        params_of(notebook, {**values, "methods": ["mend"]}).check(tmp_path)


def network_file_of(name: str, lm: LanguageModel) -> str:
    """What building MEND looks for."""
    if name == "mend":
        network_file("gpt2-xl", read_hyperparameters("mend", "gpt2-xl", "paper"))
    return name


@pytest.mark.parametrize("name", ["mend", "kn"])
def test_a_session_without_gradients_and_with_another_type_changes_no_edit(
    tiny, make_editor, requests, name
):
    editor = make_editor(name, tiny("gpt2"))
    expected = editor.edit(requests)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode():
            found = editor.edit(requests)
    finally:
        torch.set_default_dtype(torch.float32)
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)


def test_updates_carry_no_graph(tiny, requests) -> None:
    """Of a network that is not frozen, too."""
    lm = tiny("llama")
    network = untrained_network(lm).requires_grad_(True)
    hyperparameters = mend_module.MendHyperparameters(layers=(2, 3), rank=4)
    editor = mend_module.Mend(lm=lm, hyperparameters=hyperparameters, network=network)
    (edit,) = editor.edit(requests[:1])
    assert not any(delta.dense().requires_grad for _, delta in edit.items())
