"""An edit of weights as a LoRA adapter: a folder that transformers and peft read without this package.

PEFT adds ``lora_B @ lora_A`` times alpha / r to a matrix. Alpha is the rank here, so the product is the
delta. Writing an adapter needs no ``peft``.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from helpers.editing.edit import Edit, EditError
from helpers.editing.interventions import Delta, LowRank
from helpers.editing.weight_edit import only_weights
from helpers.models import LanguageModel
from helpers.models.state import in_own_state
from helpers.paths import write_whole, written_whole


class AdapterFactors(NamedTuple):
    """A delta as a product, up to a relative error in the Frobenius norm."""

    lora_a: Tensor  # [rank, in]
    lora_b: Tensor  # [out, rank]
    error: float


@in_own_state
def save_adapter(
    lm: LanguageModel, edit: Edit, folder: Path | str, *, tolerance: float = 1e-6
) -> dict[str, float]:
    """Write an edit of weights in PEFT's format for LoRA, for ``PeftModel.from_pretrained(model, folder)``.

    Args:
        lm: the model that the edit was made for; ``peft`` puts the adapter on the same one.
        folder: gets adapter_config.json and adapter_model.safetensors.
        tolerance: of each delta the fewest singular values are kept whose product misses at most this
            share of its Frobenius norm. 1e-3 makes the adapters of large joint updates smaller.

    Returns:
        By module name the share that is missed.

    Raises:
        EditError: an edit that changes no weight, or one that no LoRA adapter can hold: it changes a bias,
            or a matrix by more ranks than a smaller product has.
    """
    weight_edit = only_weights(edit, "an adapter")
    weight_edit.check(lm)
    if not weight_edit:
        raise EditError(
            "the edit changes no weight, so there is no adapter of it: save another edit"
        )
    factors = {}
    for module_name, delta in weight_edit.items():
        if delta.bias is not None:
            raise EditError(
                f"{module_name}: the edit changes a bias, which a LoRA adapter does not hold: write it"
                " into the model and save that"
            )
        factors[module_name] = _adapter_factors(module_name, delta, tolerance)

    tensors = {}
    for module_name, (lora_a, lora_b, _) in factors.items():
        tensors[f"base_model.model.{module_name}.lora_A.weight"] = lora_a
        tensors[f"base_model.model.{module_name}.lora_B.weight"] = lora_b
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with written_whole(folder / "adapter_model.safetensors") as scratch:
        save_file(tensors, scratch, {"format": "pt"})
    config = _adapter_config(lm, {name: len(lora_a) for name, (lora_a, *_) in factors.items()})
    write_whole(folder / "adapter_config.json", json.dumps(config, indent=2))
    return {module_name: error for module_name, (*_, error) in factors.items()}


def _adapter_factors(module_name: str, delta: Delta, tolerance: float) -> AdapterFactors:
    """The delta's truncated singular value decomposition, from fp64."""
    out_features, in_features = delta.shape
    if isinstance(delta, LowRank) and delta.left.shape[1] < min(delta.shape):
        left_basis, left_factor = torch.linalg.qr(delta.left.cpu().double())  # [out, n], [n, n]
        right_basis, right_factor = torch.linalg.qr(delta.right.cpu().double())  # [in, n], [n, n]
        u, singular_values, v = torch.linalg.svd(left_factor @ right_factor.T)
        left_vectors = left_basis @ u  # [out, n]
        right_vectors = v @ right_basis.T  # [n, in]
    else:
        matrix = delta.dense().cpu().double()
        left_vectors, singular_values, right_vectors = torch.linalg.svd(matrix, full_matrices=False)
    norm = float(singular_values.norm())
    # What is missed when only the first r singular values are kept, for r = 0, 1, …
    missed = singular_values.square().flip(0).cumsum(0).flip(0).sqrt()
    missed = torch.cat([missed, missed.new_zeros(1)])
    rank = max(1, int((missed > tolerance * norm).sum()))
    if rank * (out_features + in_features) >= out_features * in_features:
        raise EditError(
            f"{module_name}: the edit has no low-rank form, {rank} ranks of {min(delta.shape)} are"
            f" needed for an error of {tolerance:g}: allow a larger one (tolerance), or write it into"
            " the model and save that"
        )
    return AdapterFactors(
        lora_a=right_vectors[:rank].float().contiguous(),
        lora_b=(left_vectors[:, :rank] * singular_values[:rank]).float().contiguous(),
        error=float(missed[rank]) / norm if norm else 0.0,
    )


def _adapter_config(lm: LanguageModel, ranks: dict[str, int]) -> dict[str, object]:
    """The settings of PEFT's ``LoraConfig`` for the use of the factors."""
    ((usual_rank, _),) = Counter(ranks.values()).most_common(1)
    other_ranks = {name: rank for name, rank in ranks.items() if rank != usual_rank}
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": lm.network.name_or_path or None,
        "inference_mode": True,
        "r": usual_rank,
        "lora_alpha": usual_rank,
        "rank_pattern": other_ranks,
        "alpha_pattern": other_ranks,
        "target_modules": sorted(ranks),
        "fan_in_fan_out": any(type(lm.module(name)).__name__ == "Conv1D" for name in ranks),
        "lora_dropout": 0.0,
        "bias": "none",
    }
