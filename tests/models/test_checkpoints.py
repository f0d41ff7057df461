"""Damaged, quantised and adapted checkpoints are refused in one line with their place and the cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import models
from helpers.editing.update import Dense, Update, UpdateError, write
from helpers.models.architectures import ModelError
from helpers.models.load import reading_checkpoint


@pytest.fixture
def folder(tiny, tmp_path) -> Path:
    tiny("llama").model.save_pretrained(tmp_path / "model")
    tiny("llama").tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def _configure(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


@pytest.mark.parametrize(
    ("file", "content", "cause"),
    [
        ("config.json", b"{", r"config\.json' is not a valid JSON file"),
        ("config.json", b'{"model_type": "nope"}', "model type `nope`"),
        ("tokenizer.json", b"", "JSONDecodeError"),
        ("tokenizer.json", b"[]", "TypeError"),
        ("tokenizer_config.json", b"\xff\xfe", "UnicodeDecodeError"),
        ("generation_config.json", b"[]", "TypeError"),
        ("model.safetensors", b"\xff" * 50, "SafetensorError"),
        ("model.safetensors.index.json", b"{}", "KeyError: 'weight_map'"),
    ],
)
def test_a_damaged_file_is_one_line_with_folder_and_cause(folder, file, content, cause):
    if "index" in file:
        (folder / "model.safetensors").unlink()
    (folder / file).write_bytes(content)
    with pytest.raises(
        ModelError, match=rf"^the checkpoint of {folder} cannot be read .*{cause}.*again"
    ):
        models.load(str(folder))


@pytest.mark.parametrize("settings", [{"num_hidden_layers": 0}, {"num_attention_heads": 3}])
def test_a_configuration_that_makes_no_model_is_refused(folder, settings):
    _configure(folder, **settings)
    with pytest.raises(ModelError, match=rf"^the checkpoint of {folder} cannot be read"):
        models.load(str(folder))


@pytest.mark.parametrize("method", ["bitsandbytes", "gptq"])
def test_a_quantised_format_is_refused_whatever_is_installed(folder, method):
    _configure(
        folder, quantization_config={"quant_method": method, "load_in_8bit": True, "bits": 8}
    )
    with pytest.raises(ModelError, match=rf"weights as codes \({method}\), to which no edit"):
        models.load(str(folder))


def test_write_refuses_codes(tiny):
    from copy import deepcopy
    from dataclasses import replace

    model = replace(tiny("llama"), model=deepcopy(tiny("llama").model))
    module = model.module("model.layers.1.mlp.down_proj")
    module.weight = torch.nn.Parameter(module.weight.to(torch.int8), requires_grad=False)
    with pytest.raises(UpdateError, match=r"holds codes \(torch\.int8\)"):
        write(model, Update({"model.layers.1.mlp.down_proj": Dense(torch.ones(32, 48))}))
    assert module.weight.abs().max() < 3


@pytest.mark.parametrize("place", [".", "lora"])
def test_an_adapter_beside_the_weights_is_named(folder, place):
    (folder / place).mkdir(exist_ok=True)
    (folder / place / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="holds an adapter, which is not applied here: merge it"):
        models.load(str(folder))


def test_a_model_on_the_hub_without_safetensors_is_not_missing():
    """In the words of transformers for EleutherAI/gpt-j-6b."""
    words = (
        "EleutherAI/gpt-j-6b does not appear to have a file named model.safetensors or"
        " model.safetensors.index.json and thus cannot be loaded with `safetensors`."
    )
    with (
        pytest.raises(ModelError, match=r"^EleutherAI/gpt-j-6b has no safetensors"),
        reading_checkpoint("gpt-j-6b", "EleutherAI/gpt-j-6b"),
    ):
        raise OSError(words)


def test_a_masked_model_is_read_by_the_same_rule(folder):
    (folder / "config.json").write_bytes(b"{")
    with pytest.raises(ModelError, match=rf"^the checkpoint of {folder} cannot be read"):
        models.load(str(folder), masked=True)


def test_a_causal_model_is_no_masked_one(folder):
    with pytest.raises(ModelError, match="is a causal language model: load it with masked=False"):
        models.load(str(folder), masked=True)


def test_a_masked_model_is_loaded_to_be_located_in(tiny_masked, tmp_path):
    tiny_masked.model.save_pretrained(tmp_path)
    tiny_masked.tokenizer.save_pretrained(tmp_path)
    again = models.load(str(tmp_path), masked=True)
    assert again.masked
    assert again.fingerprint == tiny_masked.fingerprint
    with pytest.raises(ModelError, match="is a masked language model: load it with masked=True"):
        models.load(str(tmp_path))
