"""Masked language models (BERT): KLoB's sentences end in their answer so that these can be located.

Locating needs no more of a masked model than of a causal one: module names, and a head. The
constant-prefix shortcut does not hold for them (every token sees the mask), so whole sentences run.
"""

from __future__ import annotations

from functools import cached_property

from torch import Tensor
from transformers import AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel

from helpers.models.architectures import Architecture, Layout, UnknownArchitectureError
from helpers.models.language_model import LanguageModel
from helpers.models.load import avoid_cudnn_attention, reading_checkpoint, torch_dtype

MASKED_ARCHITECTURES: dict[str, Architecture] = {
    "bert": Architecture(
        block="bert.encoder.layer.{}",
        mlp="bert.encoder.layer.{}.output.dense",
        mlp_in=("bert.encoder.layer.{}.intermediate.dense",),
        mlp_out="bert.encoder.layer.{}.output.dense",
        gate="bert.encoder.layer.{}.intermediate.dense",
        final_norm="bert.encoder.layer.{}.output.LayerNorm",
        embedding="bert.embeddings.word_embeddings",
        head="cls",
    ),
}


class MaskedLanguageModel(LanguageModel):
    """A masked language model in evaluation mode, its weights frozen."""

    @cached_property
    def layout(self) -> Layout:
        """Module names and sizes of this model.

        Raises:
            UnknownArchitectureError: the model type is not in ``MASKED_ARCHITECTURES``.
        """
        config = self.model.config
        if config.model_type not in MASKED_ARCHITECTURES:
            known = ", ".join(sorted(MASKED_ARCHITECTURES))
            raise UnknownArchitectureError(
                f"masked architecture {config.model_type!r} is not known (known: {known}); add its module"
                " names to MASKED_ARCHITECTURES in helpers/locating/masked.py"
            )
        architecture = MASKED_ARCHITECTURES[config.model_type]
        weight = self.model.get_submodule(architecture.mlp_out.format(0)).weight
        assert isinstance(weight, Tensor)
        hidden, intermediate = weight.shape
        return Layout(architecture, int(config.num_hidden_layers), hidden, intermediate)


def load_masked(name: str, *, dtype: str = "float32", device: str = "cpu") -> MaskedLanguageModel:
    """Load a masked language model by hub name or local folder.

    Raises:
        ModelError: a checkpoint that cannot be had or read.
        UnknownArchitectureError: a model whose architecture is not in the table.
    """
    with reading_checkpoint(name, name):
        model = AutoModelForMaskedLM.from_pretrained(
            name, dtype=torch_dtype(dtype), use_safetensors=True, trust_remote_code=False
        )
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    return ready_masked(name, model.to(device), tokenizer)


def ready_masked(name: str, model: PreTrainedModel, tokenizer: object) -> MaskedLanguageModel:
    """Freeze a masked model, switch it to evaluation, and check its architecture."""
    avoid_cudnn_attention(model.device)
    model.requires_grad_(False)
    model.eval()
    language_model = MaskedLanguageModel(name, model, tokenizer)
    _ = language_model.layout  # raises where the architecture is unknown
    return language_model
