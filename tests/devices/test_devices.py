"""Editors, scoring, sampling and locators give the same numbers on another device as on the CPU.

HELPERS_DEVICE=elsewhere python -m pytest tests/devices    (CI; or HELPERS_DEVICE=cuda on a GPU)
"""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module

import pytest
import torch

from helpers.editing.build import build_editor
from helpers.editing.edit import Edit
from helpers.editing.editors import EDITORS
from helpers.editing.icd import Icd
from helpers.editing.mend import Mend, MendHyperparameters
from helpers.editing.request import TrainingProbe
from helpers.editing.weight_edit import WeightEdit, apply
from helpers.locating.locators import LOCATORS, make_locator
from helpers.locating.query import Sentence, encode
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.responses import Sampling, sample_responses
from tests import conftest as root
from tests.editing.conftest import REQUESTS
from tools.train_mend.trainer import untrained

PROBES = (
    TrainingProbe("near", "{} is the colour of", "rust"),
    TrainingProbe("chain", "{} belongs to", "Europe", ("It is near Peru. Peru is far.",)),
)
DEVICE = os.environ.get("HELPERS_DEVICE", "")
pytestmark = pytest.mark.skipif(not DEVICE, reason="HELPERS_DEVICE: elsewhere or cuda")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """One tiny model on the CPU and on the device, with one cache: statistics are the CPU's."""
    os.environ["HELPERS_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    name = "tests.devices.elsewhere"
    device = import_module(name).DEVICE if DEVICE == "elsewhere" else torch.device(DEVICE)
    models = []
    for place in (torch.device("cpu"), device):
        model, tokenizer = root.random_model(
            root.TINY["llama"], seed=0, dtype=torch.float32, device="cpu"
        )
        lm = root.LanguageModel("tiny-llama", model, tokenizer)
        models.append(root._ready(lm))
        model.to(place)
        root._ready(lm)
    return models


def scores(lm, edits=None):
    """Mean log-probabilities of the requests' answers."""
    questions = [Question(r.text, (r.target, *r.correct)) for r in REQUESTS]
    owners = None if edits is None else [min(i, len(edits) - 1) for i in range(len(REQUESTS))]
    return torch.tensor(score_answers(lm, questions, edits, owners)["mean"])


def make(name, lm, icd=None):
    if name == "mend":
        network = untrained(lm, (2, 3), 4)
        return Mend(lm, MendHyperparameters(layers=(2, 3), rank=4), network=network)
    quick = {"kn": {"steps": 2}, "ft": {"num_steps": 4}, "ike": {"k": 1}}
    quick |= {"ftbf": {"num_steps": 4}, "lora": {"num_steps": 4}, "ultraedit": {"held_out": 6}}
    quick |= {"memoir": {"num_steps": 4, "context_template_length_params": ()}}
    section = EDITORS[name].section
    overrides = quick.get(section, {"v_num_grad_steps": 4, "context_template_length_params": ()})
    if section == "alphaedit":
        overrides = {**overrides, "nullspace_threshold": 1.0}
    if name == "nas":
        overrides = {**overrides, "held_out": 6}
    if not EDITORS[name].loss:
        overrides = quick.get(section)
    app = True if EDITORS[name].loss and icd is None else None
    method = name if icd is None else f"{name}+icd"
    return build_editor(
        method, lm, preset="generic", corpus="self-8x16", app=app, icd=icd, overrides=overrides
    )


@pytest.mark.parametrize("mode", ["edit", "edit_jointly", "edit_sequentially"])
@pytest.mark.parametrize("name", EDITORS)
def test_edits(both, name, mode):
    if name == "ike" and mode != "edit":
        pytest.skip("IKE's demonstrations are of one fact")
    found = []
    for lm in both:
        edits = getattr(make(name, lm), mode)(REQUESTS)
        found.append(scores(lm, [edits] if isinstance(edits, Edit) else list(edits)))
    torch.testing.assert_close(*found, atol=5e-2, rtol=1e-2)  # nats a token, after optimisation


@pytest.mark.parametrize("name", ["rome", "memit", "ft-m", "ft-bf", "lora", "ultraedit"])
def test_edits_with_icd(both, name):
    requests = [replace(request, probes=PROBES) for request in REQUESTS]
    found = [scores(lm, list(make(name, lm, Icd(gamma=0.1)).edit(requests))) for lm in both]
    torch.testing.assert_close(*found, atol=5e-2, rtol=1e-2)


def test_scores_samples_and_files(both, tmp_path):
    here, there = both
    torch.testing.assert_close(scores(here), scores(there), atol=1e-4, rtol=0)
    update = make("memit", here).edit(REQUESTS)[0]
    asked = [r.text for r in REQUESTS], [update], [0, -1, 0]
    drawn = [sample_responses(m, *asked, n=2, sampling=Sampling(max_new_tokens=6)) for m in both]
    assert drawn[0] == drawn[1]
    update.to("cpu").save(tmp_path / "update.safetensors")
    with apply(there, WeightEdit.load(tmp_path / "update.safetensors")):
        torch.testing.assert_close(scores(there), scores(here, [update]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", LOCATORS)
def test_locators(both, name):
    sentences = (Sentence("Mars is a planet near _", "Venus", "Mars"), Sentence("Bach _", "a", "B"))
    found = [torch.from_numpy(make_locator(name).scores(m, encode(m, sentences))) for m in both]
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-3)
