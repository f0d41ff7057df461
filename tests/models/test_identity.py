"""A fingerprint changes with all that determines a model's numbers, and with nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.nn.utils import prune

from helpers import models
from helpers.editing.contexts import context_templates
from helpers.editing.corpus import SelfCorpus
from helpers.editing.interventions import Dense, LowRank
from helpers.editing.weight_edit import WeightEdit, apply, write
from helpers.models import identity
from helpers.paths import REPOSITORY
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun, score_records
from helpers.results.store import ResultsStore


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tiny, tmp_path) -> Path:
    """A tiny checkpoint."""
    for part in (tiny("llama").network, tiny("llama").tokenizer):
        part.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def own_model(folder):
    """A tiny model that no other test shares."""
    return models.load(str(folder))


def edit_json(name: str, change: Callable[[Any], object]) -> Callable[[Path], None]:
    """A change of one of a checkpoint's JSON files, which is made where it is not there."""

    def edited(folder: Path) -> None:
        path = folder / name
        content = json.loads(path.read_text("utf-8")) if path.exists() else {}
        change(content)
        path.write_text(json.dumps(content), "utf-8")

    return edited


def scale_neurons(folder: Path) -> None:
    """Another model under the same names: three neurons of one block write differently."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.1.mlp.down_proj.weight"][:, [3, 17, 40]] *= -8
    save_file(tensors, path, {"format": "pt"})


def begin_with_the_end_token(tokenizer: dict[str, Any]) -> None:
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|end|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [256], "tokens": ["<|end|>"]}},
    }


CHANGES = {
    "weights of a few neurons": scale_neurons,
    "rotary base": edit_json(
        "config.json", lambda c: c["rope_parameters"].update(rope_theta=500.0)
    ),
    "epsilon of the norms": edit_json("config.json", lambda c: c.update(rms_norm_eps=0.1)),
    "token before every text": edit_json("tokenizer.json", begin_with_the_end_token),
    "normaliser": edit_json("tokenizer.json", lambda t: t.update(normalizer={"type": "Lowercase"})),
    "chat template": edit_json(
        "tokenizer_config.json", lambda c: c.update(chat_template="{{ messages[0].content }}:")
    ),
    "tokens that end a text": edit_json(
        "generation_config.json", lambda c: c.update(eos_token_id=[256, 10])
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_checkpoint_that_gives_other_numbers_has_another_fingerprint(folder, change):
    before = models.load(str(folder)).fingerprint
    change(folder)
    assert models.load(str(folder)).fingerprint != before


def test_where_a_checkpoint_is_and_who_wrote_it_is_not_part_of_it(folder, tmp_path):
    before = models.load(str(folder)).fingerprint
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    edit_json("config.json", lambda c: c.update(transformers_version="5.0.0"))(copy)
    assert models.load(str(copy)).fingerprint == before


def test_stored_scores_are_those_of_the_weights_and_tokenizer_that_are_loaded(folder):
    store, data = ResultsStore(folder.parent / "store"), load_peak("peak-mini-cf", limit=1)
    for change in (
        lambda _: None,
        CHANGES["weights of a few neurons"],
        CHANGES["token before every text"],
    ):
        change(folder)
        lm = models.load(str(folder))
        stored = PeakRun(lm, data, store).scored()
        torch.testing.assert_close(
            torch.tensor(stored["sum"]), torch.tensor(score_records(lm, data.records)["sum"])
        )


@given(st.data())
def test_no_value_of_any_weight_escapes(tiny, data):
    network = tiny("gpt2").network
    weights = identity.WeightDigests(network)
    before = weights.current()
    name, parameter = data.draw(st.sampled_from(list(network.named_parameters())))
    place = data.draw(st.integers(0, parameter.numel() - 1))
    flat = parameter.detach().reshape(-1)
    value = flat[place].clone()
    flat[place] += 1.0
    after = weights.current()
    flat[place] = value
    assert {other for other in before if after[other] != before[other]} == {name}
    assert weights.current() == before


def test_a_change_in_memory_is_seen_however_it_is_made(own_model):
    lm = own_model
    name = lm.layout.mlp_out(1)
    before = lm.fingerprint
    seen = {before}
    with torch.no_grad():
        lm.weight(name)[:, 3] *= -8
    seen.add(lm.fingerprint)
    lm.module(name).weight.data += 0.001
    seen.add(lm.fingerprint)
    lm.module(name).weight.data = lm.module(name).weight.data.flip(0)
    seen.add(lm.fingerprint)
    write(lm, WeightEdit({name: Dense(torch.ones(lm.weight(name).shape))}))
    seen.add(lm.fingerprint)
    values = lm.module(name).weight.data
    values[5, 7] *= 1.01  # one value of all
    seen.add(lm.fingerprint)
    values[[0, 1]] = values[[1, 0]].clone()  # which their sum does not show
    seen.add(lm.fingerprint)
    values[3, [4, 5]] = values[3, [5, 4]].clone()
    seen.add(lm.fingerprint)
    begin_token = lm.tokenizer.backend_tokenizer
    begin_token.post_processor = (
        type(begin_token)
        .from_str(json.dumps(changed(json.loads(begin_token.to_str()), begin_with_the_end_token)))
        .post_processor
    )
    seen.add(lm.fingerprint)
    lm.tokenizer.chat_template = "{{ messages }}"
    seen.add(lm.fingerprint)
    lm.tokenizer.add_tokens(["a"])  # a word it has: not one more
    seen.add(lm.fingerprint)
    lm.tokenizer.split_special_tokens = True
    seen.add(lm.fingerprint)
    assert len(seen) == 12


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_pruned_network_is_known_by_its_mask(folder, dtype):
    lm = models.load(str(folder), dtype=dtype)
    module = lm.module(lm.layout.mlp_out(1))
    seen = {lm.fingerprint}
    prune.l1_unstructured(module, "weight", 0.5)
    seen.add(lm.fingerprint)
    module.weight_mask.copy_(1 - module.weight_mask)
    seen.add(lm.fingerprint)
    assert len(seen) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_exchange_in_a_large_matrix_escapes(dtype):
    network = torch.nn.Linear(
        640, 2042, dtype=dtype
    )  # rows of whole words, some of the sums' width
    weights = identity.WeightDigests(network)
    values, known = network.weight.data, {weights.current()["weight"]}
    for one, other in ((0, 1), (0, 2), (17, 2000)):
        values[[one, other]] = values[[other, one]].clone()
        known.add(weights.current()["weight"])
        values[:, [one % 640, other % 640]] = values[:, [other % 640, one % 640]].clone()
        known.add(weights.current()["weight"])
    values[2041, 639] += 1  # in the last, broken row
    known.add(weights.current()["weight"])
    assert len(known) == 8


def changed(content: Any, change: Callable[[Any], object]) -> Any:
    change(content)
    return content


def test_applying_an_update_is_another_model_until_it_ends(own_model):
    name = own_model.layout.mlp_out(1)
    out, inner = own_model.weight(name).shape
    update = WeightEdit({name: LowRank(torch.ones(out, 1), torch.ones(inner, 1))})
    before = own_model.fingerprint
    with apply(own_model, update):
        assert own_model.fingerprint != before
    assert own_model.fingerprint == before


def test_weights_are_digested_once_for_a_file(folder, monkeypatch):
    digested: list[torch.Tensor] = []
    digest = identity._tensor_digest

    def counted(tensor: torch.Tensor) -> str:
        digested.append(tensor)
        return digest(tensor)

    monkeypatch.setattr(identity, "_tensor_digest", counted)
    first = models.load(str(folder)).fingerprint
    assert len(digested) == len(list(models.load(str(folder)).network.named_parameters()))
    assert models.load(str(folder)).fingerprint == first
    half = models.load(str(folder), dtype="bfloat16")
    assert half.fingerprint != first
    count = len(digested)
    # A file of the same size with the old file's time is another file all the same.
    times = (folder / "model.safetensors").stat()
    scale_neurons(folder)
    os.utime(folder / "model.safetensors", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert models.load(str(folder)).fingerprint != first
    assert len(digested) > count


def test_kept_digests_are_those_of_the_weights_that_config_json_asks_for(folder):
    stored = load_file(folder / "model.safetensors")
    stored["lm_head.weight"] = stored["model.embed_tokens.weight"].clone()
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    seen = []
    for tied in (True, False):  # one matrix, then two that are equal
        edit_json("config.json", lambda c, tied=tied: c.update(tie_word_embeddings=tied))(folder)
        seen.append(models.load(str(folder)).weights.current())
    assert len(seen[1]) == len(seen[0]) + 1


def test_a_model_is_loaded_where_nothing_can_be_kept(folder, monkeypatch):
    first = models.load(folder).fingerprint
    monkeypatch.setenv("HELPERS_CACHE", str(folder / "config.json" / "cache"))
    assert models.load(folder).fingerprint == first


def test_damaged_digests_are_made_again(folder):
    first = models.load(str(folder)).fingerprint
    for damage in ("", "{}"):
        (path,) = (folder.parent / "cache" / "digests").iterdir()
        path.write_text(damage)
        with pytest.warns(UserWarning, match="made again"):
            assert models.load(str(folder)).fingerprint == first


@pytest.mark.slow
def test_another_process_finds_the_same_fingerprint(folder):
    code = f"from helpers import models; print(models.load({str(folder)!r}).fingerprint)"
    for seed in ("1", "2"):  # of hashes: nothing may depend on the order of a set
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split()[-1] == models.load(str(folder)).fingerprint


INHERITED = {
    "min_p": 0.5,
    "num_beams": 3,
    "suppress_tokens": list(range(97, 123)),
    "begin_suppress_tokens": [32],
    "forced_eos_token_id": 256,
    "repetition_penalty": 5.0,
    "no_repeat_ngram_size": 1,
    "max_time": 1e-6,
    "stop_strings": ["e"],
    "max_length": 3,
    "temperature": 0.01,
    "guidance_scale": 2.0,
    "renormalize_logits": True,
    "bad_words_ids": [[101]],
    "num_return_sequences": 2,
    "typical_p": 0.2,
    "epsilon_cutoff": 0.01,
    "return_dict_in_generate": True,
}


@pytest.mark.parametrize("name", [*INHERITED, "all"])
def test_no_generation_setting_of_a_checkpoint_is_inherited(own_model, name):
    def written() -> tuple[list[list[int]], Any]:
        for kept in ("corpora", "context_templates_3"):
            shutil.rmtree(Path(os.environ["HELPERS_CACHE"], kept), ignore_errors=True)
        templates = context_templates(own_model, [(6, 5)], grouped=False)
        return list(SelfCorpus(4, 8).documents(own_model)), templates

    expected = written()
    settings = INHERITED if name == "all" else {name: INHERITED[name]}
    for setting, value in settings.items():
        setattr(own_model.network.generation_config, setting, value)
    configured = own_model.network.generation_config
    assert written() == expected
    assert own_model.network.generation_config is configured
