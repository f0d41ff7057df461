"""The language model as the rest of the package sees it: weights, tokenizer, places, identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from helpers.models.architectures import Layout, architecture_of
from helpers.models.identity import TokenizerDigest, WeightDigests, fingerprint_of


@dataclass(frozen=True)
class LanguageModel:
    """A loaded language model in evaluation mode, its weights frozen."""

    name: str  # what the user asked for
    network: PreTrainedModel = field(repr=False)
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    precision: str = ""  # of its products (``products``), where it is not that of the weights

    @cached_property
    def layout(self) -> Layout:
        """Module names and sizes of this model."""
        config = self.network.config
        architecture = architecture_of(config)
        hidden, intermediate = self.weight(architecture.mlp_out.format(0)).shape
        return Layout(architecture, int(config.num_hidden_layers), hidden, intermediate)

    @property
    def masked(self) -> bool:
        """Whether tokens are predicted at a mask."""
        return self.layout.architecture.masked

    @property
    def device(self) -> torch.device:
        """Device of the input embeddings, where batches are put."""
        return self.network.get_input_embeddings().weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the weights."""
        return self.network.dtype

    @property
    def dtype_name(self) -> str:
        """The dtype that it was loaded in, by the name that ``load`` takes."""
        return self.precision or str(self.dtype).removeprefix("torch.")

    @property
    def description(self) -> str:
        """Name, dtype and device for captions: ``smollm2-135m, float32 on cpu``."""
        folder = Path(self.name).expanduser()
        name = folder.resolve().name if folder.is_dir() else self.name
        return f"{name}, {self.dtype_name} on {self.device}"

    @property
    def context_length(self) -> int:
        """Largest number of tokens the model accepts; with longrope the limit of short texts."""
        config = self.network.config
        rotary = getattr(config, "rope_parameters", None) or {}
        short = rotary.get("rope_type") == "longrope" and rotary["original_max_position_embeddings"]
        return int(short or config.max_position_embeddings)

    @cached_property
    def modules(self) -> tuple[nn.Module, ...]:
        """The network and all modules in it."""
        return tuple(self.network.modules())

    def module(self, name: str) -> nn.Module:
        """The submodule called ``name``."""
        return self.network.get_submodule(name)

    def weight(self, name: str) -> Tensor:
        """Weight of the linear module ``name`` viewed as [out, in], whatever its storage."""
        stored = self.module(name).weight
        assert isinstance(stored, Tensor)
        return stored.T if type(self.module(name)).__name__ == "Conv1D" else stored  # GPT-2's

    @property
    def residual_multiplier(self) -> float:
        """What an MLP's output is multiplied by before it joins the residual stream: 1 but in Granite."""
        return float(getattr(self.network.config, "residual_multiplier", None) or 1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits over the vocabulary of final hidden states [..., hidden], as the network gives them.

        Granite divides what its head gives by a constant, Gemma 2 caps it by a tanh.
        """
        config = self.network.config
        logits: Tensor = self.module(self.layout.architecture.head)(hidden)
        scaling = getattr(config, "logits_scaling", None)
        if scaling:
            logits = logits / scaling
        cap = getattr(config, "final_logit_softcapping", None)
        if cap:
            logits = cap * torch.tanh(logits / cap)
        return logits

    def weight_norm(self, name: str) -> float:
        """Frobenius norm of ``weight(name)`` in fp32."""
        return float(self.weight(name).float().norm())

    @cached_property
    def weights(self) -> WeightDigests:
        """Digests of the weights."""
        return WeightDigests(self.network)

    @cached_property
    def _tokenizer_digest(self) -> TokenizerDigest:
        return TokenizerDigest(self.tokenizer)

    @property
    def end_tokens(self) -> frozenset[int]:
        """Ids of the tokens after which a generated text ends: the tokenizer's, and the model's own."""
        generation = getattr(self.network, "generation_config", None)  # a masked model has none
        configured = getattr(generation, "eos_token_id", None)
        ids = configured if isinstance(configured, list) else [configured]
        return frozenset(i for i in (self.tokenizer.eos_token_id, *ids) if i is not None)

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits of all that determines the model's numbers, as they are in memory now.

        That is the configuration, every weight, the tokenizer with its chat template, and the tokens that
        end a generated text. The same weights in another dtype have another fingerprint.
        """
        return self._fingerprint_with(self.weights.current())

    def has_fingerprint(self, fingerprint: str) -> bool:
        """Whether the ``fingerprint`` is this model's: for what is asked with every call.

        It takes milliseconds, where finding the fingerprint reads every weight. ``write`` and ``apply`` are
        noticed; a change through ``.data``, which torch does not count, is not.
        """
        return fingerprint == self._fingerprint_with(self.weights.as_counted())

    def _fingerprint_with(self, weight_digests: Mapping[str, str]) -> str:
        return fingerprint_of(
            self.network.config,
            weight_digests,
            self._tokenizer_digest.current(),
            self.end_tokens,
        )

    @property
    def identity(self) -> dict[str, str]:
        """What results store about the model: name, fingerprint, dtype and kind of device."""
        name = {"model": self.name, "fingerprint": self.fingerprint}
        return {**name, "dtype": self.dtype_name, "device": self.device.type}
