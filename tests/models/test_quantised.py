"""A checkpoint of codes is refused with what its numbers take, and read as numbers where asked for."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from typer.testing import CliRunner

from helpers import models
from helpers.cli import app
from helpers.doctor import needs_of_file
from helpers.facts import Fact, edit_facts
from helpers.models.architectures import ModelError
from helpers.params import read_params
from helpers.paths import NOTEBOOKS
from helpers.values import PARAMS_CLASSES

SQUARE = 8  # rows and columns of a matrix that share a scale
LARGEST_CODE = 448.0  # of eight bits, four of them the exponent


def coded(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix's codes of eight bits [rows, columns], and their scales [rows / 8, columns / 8]."""
    squares = matrix.unflatten(0, (-1, SQUARE)).unflatten(2, (-1, SQUARE))
    scales = squares.abs().amax((1, 3)) / LARGEST_CODE
    codes = (squares / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    return codes.flatten(2, 3).flatten(0, 1), scales


def numbers_of(codes: Tensor, scales: Tensor) -> Tensor:
    return codes.float() * scales.repeat_interleave(SQUARE, 0).repeat_interleave(SQUARE, 1)


@pytest.fixture
def folders(tiny, tmp_path) -> tuple[Path, Path]:
    """A checkpoint whose blocks' matrices are codes, and the same in numbers."""
    lm = tiny("llama")
    for folder in (tmp_path / "codes", tmp_path / "numbers"):
        lm.network.save_pretrained(folder)
        lm.tokenizer.save_pretrained(folder)
    in_codes: dict[str, Tensor] = {}
    in_numbers: dict[str, Tensor] = {}
    for name, weight in load_file(tmp_path / "codes" / "model.safetensors").items():
        if "_proj." in name:
            codes, scales = coded(weight)
            in_codes |= {name: codes, name.replace("weight", "weight_scale_inv"): scales}
            in_numbers[name] = numbers_of(codes, scales)
        else:
            in_codes[name] = in_numbers[name] = weight
    save_file(in_codes, tmp_path / "codes" / "model.safetensors", {"format": "pt"})
    save_file(in_numbers, tmp_path / "numbers" / "model.safetensors", {"format": "pt"})
    say_codes(tmp_path / "codes", quant_method="fp8", weight_block_size=[SQUARE, SQUARE])
    return tmp_path / "codes", tmp_path / "numbers"


def say_codes(folder: Path, **settings: Any) -> None:
    """What config.json says of the codes."""
    file = folder / "config.json"
    config = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({**config, "quantization_config": settings}), "utf-8")


@pytest.mark.parametrize(("dtype", "size"), [("float32", "0.2"), ("bfloat16", "0.1")])
def test_codes_are_refused_with_the_option_and_the_memory(folders, monkeypatch, dtype, size):
    """The vocabulary is made one of 800,000 words, so that the size of a tiny model says something."""
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)
    codes, _ = folders
    file = codes / "config.json"
    config = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({**config, "vocab_size": 800_000}), "utf-8")
    with pytest.raises(ModelError, match="codes of fp8, to which no edit can be added") as refused:
        models.load(codes, dtype=dtype)
    assert f"load it with dequantise, as numbers that take {size} GB of memory in {dtype}" in str(
        refused.value
    )


def test_numbers_of_codes_are_an_ordinary_model(folders, tmp_path):
    codes, numbers = folders
    lm = models.load(codes, dequantise=True)
    ordinary = models.load(numbers)
    for name, weight in ordinary.network.state_dict().items():
        assert torch.equal(lm.network.state_dict()[name], weight), name
    assert {weight.dtype for weight in lm.network.parameters()} == {torch.float32}
    assert lm.fingerprint == ordinary.fingerprint  # what results are stored under
    lm.network.save_pretrained(tmp_path / "saved")
    lm.tokenizer.save_pretrained(tmp_path / "saved")
    assert models.load(tmp_path / "saved").fingerprint == lm.fingerprint
    in_bf16 = models.load(codes, dtype="bfloat16", dequantise=True)
    assert in_bf16.dtype_name == "bfloat16"
    assert in_bf16.fingerprint == models.load(numbers, dtype="bfloat16").fingerprint


def test_the_option_changes_nothing_where_there_are_no_codes(folders):
    _, numbers = folders
    assert models.load(numbers, dequantise=True).fingerprint == models.load(numbers).fingerprint


def test_a_fact_of_a_dequantised_model_is_edited_and_leaves_with_its_edit(folders, tmp_path):
    codes, _ = folders
    lm = models.load(codes, dequantise=True)
    preset = {"layers": [1], "num_steps": 4, "lr": 0.05, "norm_constraint": 0.5}
    fact = Fact("Sudan", "{} borders", "Mali")
    result = edit_facts(lm, [fact], editor="ft-m", preset=preset)
    assert result.table["P after"][0] > result.table["P before"][0]
    saved = models.load(result.save_model(tmp_path / "edited"))
    result.write()
    assert saved.fingerprint == lm.fingerprint


def test_the_command_takes_the_option(folders, tmp_path):
    codes, _ = folders
    facts = tmp_path / "facts.csv"
    facts.write_text("subject,prompt,target\nSudan,{} borders,Mali\n")
    preset = tmp_path / "mine.yaml"
    preset.write_text("layers: [1]\nnum_steps: 2\nlr: 0.05\nnorm_constraint: 0.5\n")
    arguments = ["edit", str(facts), "--model", str(codes), "--editors", "ft-m"]
    arguments += ["--preset", str(preset), "--out", str(tmp_path / "table.csv")]
    arguments += ["--results", str(tmp_path / "results"), "--no-placebo"]
    refused = CliRunner().invoke(app, arguments)
    assert refused.output.startswith(f"error: {codes} stores weights as codes of fp8")
    assert CliRunner().invoke(app, [*arguments, "--dequantise"]).exit_code == 0


def test_the_doctor_tells_of_codes_before_a_run(folders, tmp_path):
    codes, numbers = folders

    def problems_with(folder: Path) -> str:
        file = tmp_path / "01_preliminaries.yaml"
        file.write_text(f"model: {folder}\npreset: generic\n")
        return "\n".join(str(finding) for finding in needs_of_file(file) if finding.is_problem)

    assert "stores weights as codes of fp8" in problems_with(codes)
    assert "codes" not in problems_with(numbers).replace(str(numbers), "")


@pytest.mark.parametrize("notebook", sorted(PARAMS_CLASSES))
def test_every_params_file_takes_the_option(notebook, tmp_path):
    file = tmp_path / f"{notebook}.yaml"
    file.write_text("dequantise: true\n")
    assert read_params(file)["dequantise"] is True
    if notebook == "09_editors":  # which loads no model of its own
        return
    cells = json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text("utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    loading = "models.load(model, dtype=dtype, device=device, dequantise=dequantise)"
    assert sum(loading in source for source in sources) == 1


@pytest.mark.parametrize("quant_method", ["gptq", "awq", "hqq", "torchao"])
def test_codes_that_transformers_cannot_turn_into_numbers_are_refused(folders, quant_method):
    codes, _ = folders
    say_codes(codes, quant_method=quant_method, bits=4)
    words = f"codes of {quant_method}, which transformers does not turn into numbers: take"
    for dequantise in (False, True):
        with pytest.raises(ModelError, match=words):
            models.load(codes, dequantise=dequantise)


@pytest.mark.parametrize(
    ("package", "settings"),
    [
        ("bitsandbytes", {"quant_method": "bitsandbytes", "load_in_8bit": True}),
        ("bitsandbytes", {"load_in_4bit": True}),
        ("compressed-tensors", {"quant_method": "compressed-tensors"}),
    ],
)
def test_a_package_that_codes_need_is_named(folders, monkeypatch, package, settings):
    monkeypatch.setattr("helpers.models.quantised.find_spec", lambda _: None)
    codes, _ = folders
    say_codes(codes, **settings)
    with pytest.raises(ModelError, match=f"codes of {package}, .*: pip install {package}$"):
        models.load(codes, dequantise=True)


@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
@pytest.mark.parametrize("bits", [4, 8])
def test_codes_of_bitsandbytes_become_numbers(folders, tmp_path, bits):
    _, numbers = folders
    settings = BitsAndBytesConfig(load_in_4bit=bits == 4, load_in_8bit=bits == 8)
    coded_network = AutoModelForCausalLM.from_pretrained(numbers, quantization_config=settings)
    coded_network.save_pretrained(tmp_path / "bitsandbytes")
    models.load(numbers).tokenizer.save_pretrained(tmp_path / "bitsandbytes")
    lm = models.load(tmp_path / "bitsandbytes", dequantise=True)
    expected = coded_network.dequantize(torch.float32).state_dict()
    for name, weight in lm.network.state_dict().items():
        torch.testing.assert_close(weight, expected[name], msg=name)
    assert lm.fingerprint != models.load(numbers).fingerprint


@pytest.mark.skipif(
    not find_spec("compressed_tensors"), reason="compressed-tensors is not installed"
)
def test_codes_of_compressed_tensors_become_numbers(folders):
    _, numbers = folders
    file = numbers / "model.safetensors"
    stored: dict[str, Tensor] = {}
    expected: dict[str, Tensor] = {}
    for name, weight in load_file(file).items():
        if "_proj." in name:
            scales = weight.abs().amax(1, keepdim=True) / 127  # [rows, 1]
            codes = (weight / scales).round().to(torch.int8)
            stored |= {name: codes, f"{name}_scale": scales}
            expected[name] = codes.float() * scales
        else:
            stored[name] = expected[name] = weight
    save_file(stored, file, {"format": "pt"})
    group = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
    say_codes(
        numbers,
        quant_method="compressed-tensors",
        format="int-quantized",
        quantization_status="compressed",
        config_groups={"group_0": {"targets": ["Linear"], "weights": group}},
        ignore=["lm_head"],
    )
    lm = models.load(numbers, dequantise=True)
    for name, weight in lm.network.state_dict().items():
        if name in expected:  # the head may be the embedding
            torch.testing.assert_close(weight, expected[name], msg=name)
