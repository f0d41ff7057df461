"""TF32 is a choice that results name, and that statistics do not see; no GPU is needed to show it."""

from __future__ import annotations

import pytest
import torch

from helpers import models
from helpers.models import weights
from helpers.models.architectures import ModelError
from helpers.models.language_model import LanguageModel
from helpers.models.weights import torch_dtype

GPU, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.fixture(autouse=True)
def _restored():
    with weights.exact_products():
        yield


def test_what_is_multiplied_in_tf32_says_so_and_nothing_else_does():
    assert weights.dtype_name(torch.float32, GPU) == "float32"
    weights.choose_products("tf32", GPU)
    assert weights.dtype_name(torch.float32, GPU) == "tf32"
    assert weights.dtype_name(torch.float32, CPU) == "float32"
    assert weights.dtype_name(torch.bfloat16, GPU) == "bfloat16"
    weights.choose_products("float32", GPU)  # the model that was loaded last decides
    assert weights.dtype_name(torch.float32, GPU) == "float32"


def test_a_key_of_results_differs_by_it(tiny, monkeypatch):
    model = tiny("gpt2")
    exact = model.identity
    monkeypatch.setattr(LanguageModel, "device", GPU)
    weights.choose_products("tf32", GPU)
    assert (exact["dtype"], model.identity["dtype"]) == ("float32", "tf32")


def test_a_model_on_a_cpu_leaves_the_choice_alone():
    weights.choose_products("tf32", GPU)
    weights.choose_products("float32", CPU)
    assert torch.get_float32_matmul_precision() == "high"


def test_statistics_are_summed_exactly():
    weights.choose_products("tf32", GPU)
    with weights.exact_products():
        assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == "high"


def test_weights_of_tf32_are_float32_and_a_cpu_refuses_it():
    assert torch_dtype("tf32") == torch.float32
    with pytest.raises(ModelError, match="for GPUs, use 'float32'"):
        models.load("smollm2-135m", dtype="tf32")
