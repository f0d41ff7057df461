"""Where the parts of each architecture live: the one table a new architecture is added to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from transformers import PreTrainedConfig

from helpers import UserError

Matrix = Literal["q", "v", "gate", "up", "down"]  # Llama's names without _proj


class ModelError(UserError):
    """A model, dtype or device that cannot be had or used here."""


@dataclass(frozen=True)
class Architecture:
    """Module names of one architecture; ``{}`` is the block's index."""

    block: str  # whose output is the residual stream
    mlp: str
    mlp_in: tuple[str, ...]  # matrices that read the residual stream, the gate first
    mlp_out: str
    final_norm: str
    embedding: str
    head: str = "lm_head"
    query: str = ""  # matrices that attention reads the stream with; where they are one, that one
    value: str = ""
    mlp_norm: str | None = None  # passed by the MLP's output before the residual stream
    fused_gate: bool = False  # gate and up are one matrix
    eager_only: bool = (
        False  # the public implementation has no sdpa path, or one without its soft cap
    )
    tuple_output: bool = False  # blocks return a tuple
    masked: bool = False  # every token sees all others


_GPT2 = Architecture(
    block="transformer.h.{}",
    mlp="transformer.h.{}.mlp",
    mlp_in=("transformer.h.{}.mlp.c_fc",),
    mlp_out="transformer.h.{}.mlp.c_proj",
    final_norm="transformer.ln_f",
    embedding="transformer.wte",
    query="transformer.h.{}.attn.c_attn",
    value="transformer.h.{}.attn.c_attn",
)
_LLAMA = Architecture(
    block="model.layers.{}",
    mlp="model.layers.{}.mlp",
    mlp_in=("model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj"),
    mlp_out="model.layers.{}.mlp.down_proj",
    final_norm="model.norm",
    embedding="model.embed_tokens",
    query="model.layers.{}.self_attn.q_proj",
    value="model.layers.{}.self_attn.v_proj",
)
_POST_NORM = replace(_LLAMA, mlp_norm="model.layers.{}.post_feedforward_layernorm")
_FUSED = replace(
    _LLAMA,
    mlp_in=("model.layers.{}.mlp.gate_up_proj",),
    fused_gate=True,
)

# In the names of models and of fields of their configurations: what carries a state from token to token.
_RECURRENT = re.compile("mamba|rwkv|lstm|ssm|state_size|conv|lru_width")

ARCHITECTURES: dict[str, Architecture] = {
    "gpt2": _GPT2,
    "gptj": replace(
        _GPT2,
        mlp_in=("transformer.h.{}.mlp.fc_in",),
        mlp_out="transformer.h.{}.mlp.fc_out",
        query="transformer.h.{}.attn.q_proj",
        value="transformer.h.{}.attn.v_proj",
        eager_only=True,
        tuple_output=True,
    ),
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "mistral": _LLAMA,
    "ministral": _LLAMA,
    "ministral3": _LLAMA,
    "smollm3": _LLAMA,
    "granite": _LLAMA,
    "olmo2": _POST_NORM,
    "olmo3": _POST_NORM,
    "gemma2": replace(_POST_NORM, eager_only=True),
    "gemma3_text": _POST_NORM,
    "glm": _FUSED,
    "glm4": replace(_FUSED, mlp_norm="model.layers.{}.post_mlp_layernorm"),
    "phi3": replace(  # Phi-3 and Phi-4
        _FUSED,
        query="model.layers.{}.self_attn.qkv_proj",
        value="model.layers.{}.self_attn.qkv_proj",
    ),
    "gpt_neox": Architecture(  # Pythia among others
        block="gpt_neox.layers.{}",
        mlp="gpt_neox.layers.{}.mlp",
        mlp_in=("gpt_neox.layers.{}.mlp.dense_h_to_4h",),
        mlp_out="gpt_neox.layers.{}.mlp.dense_4h_to_h",
        final_norm="gpt_neox.final_layer_norm",
        embedding="gpt_neox.embed_in",
        query="gpt_neox.layers.{}.attention.query_key_value",
        value="gpt_neox.layers.{}.attention.query_key_value",
    ),
    "falcon": replace(
        _GPT2,
        mlp_in=("transformer.h.{}.mlp.dense_h_to_4h",),
        mlp_out="transformer.h.{}.mlp.dense_4h_to_h",
        embedding="transformer.word_embeddings",
        query="transformer.h.{}.self_attention.query_key_value",
        value="transformer.h.{}.self_attention.query_key_value",
        tuple_output=True,
    ),
    "bert": Architecture(
        block="bert.encoder.layer.{}",
        mlp="bert.encoder.layer.{}.output.dense",  # its layers have no module for the whole MLP
        mlp_in=("bert.encoder.layer.{}.intermediate.dense",),
        mlp_out="bert.encoder.layer.{}.output.dense",
        final_norm="bert.encoder.layer.{}.output.LayerNorm",
        embedding="bert.embeddings.word_embeddings",
        query="bert.encoder.layer.{}.attention.self.query",
        value="bert.encoder.layer.{}.attention.self.value",
        head="cls",
        masked=True,
    ),
}


@dataclass(frozen=True)
class Layout:
    """The architecture's places in one model: names with the block's index filled in."""

    architecture: Architecture
    blocks: int
    hidden_size: int
    intermediate_size: int

    def block(self, layer: int) -> str:
        """Name of the block at ``layer``."""
        return self._fill(self.architecture.block, layer)

    def mlp(self, layer: int) -> str:
        """Name of the MLP."""
        return self._fill(self.architecture.mlp, layer)

    def mlp_in(self, layer: int) -> tuple[str, ...]:
        """Names of the matrices that read the residual stream (gate and up, or one)."""
        return tuple(self._fill(name, layer) for name in self.architecture.mlp_in)

    def mlp_out(self, layer: int) -> str:
        """Name of the edited matrix of the ROME family: the MLP's second matrix, W in [d, f]."""
        return self._fill(self.architecture.mlp_out, layer)

    def mlp_norm(self, layer: int) -> str | None:
        """Name of the norm between the MLP's output and the residual stream, if there is one."""
        name = self.architecture.mlp_norm
        return None if name is None else self._fill(name, layer)

    def matrices(self, kinds: Iterable[Matrix], layer: int) -> tuple[str, ...]:
        """Names of the matrices that Llama calls q, v, gate, up or down; each once, where one is several."""
        architecture = self.architecture
        name_of_kind = {
            "q": architecture.query,
            "v": architecture.value,
            "gate": architecture.mlp_in[0],
            "up": architecture.mlp_in[-1],
            "down": architecture.mlp_out,
        }
        names = (self._fill(name_of_kind[kind], layer) for kind in kinds)
        return tuple(dict.fromkeys(names))

    def gate(self, layer: int) -> str:
        """Name of the module whose output enters the activation function."""
        if self.architecture.fused_gate:
            raise ModelError("gate and up are one matrix here: attribute neurons at 'activation'")
        return self.mlp_in(layer)[0]

    def layer_of(self, module: str) -> int:
        """Index of the block that ``module`` is or belongs to."""
        for layer in range(self.blocks):
            if f"{module}.".startswith(f"{self.block(layer)}."):
                return layer
        raise ValueError(f"{module} is in no block of this model")

    def _fill(self, name: str, layer: int) -> str:
        if not 0 <= layer < self.blocks:
            raise ModelError(f"layer {layer} is not in this model, which has {self.blocks} blocks")
        return name.format(layer)


def architecture_of(config: PreTrainedConfig) -> Architecture:
    """The row of the table for a model's configuration."""
    model_type = config.model_type
    if model_type not in ARCHITECTURES:
        reason = _why_not_supported(config)
        if reason:
            raise ModelError(f"architecture {model_type!r} {reason}: take a dense text model")
        known = f"{', '.join(ARCHITECTURES)} of ARCHITECTURES in helpers/models/architectures.py"
        raise ModelError(f"architecture {model_type!r} is none of {known}")
    return ARCHITECTURES[model_type]


def _why_not_supported(config: PreTrainedConfig) -> str:
    """What a configuration has that no row of the table could describe; empty where nothing tells."""
    text_config = config.get_text_config()
    fields = [name for name, value in vars(text_config).items() if value]
    if any("expert" in name for name in fields):
        return "has mixture-of-experts layers, where a token meets a few of many matrices"
    if any(_RECURRENT.search(name) for name in (text_config.model_type, *fields)):
        return "has recurrent (state-space) layers, where texts cannot be packed"
    if text_config is not config:
        return "reads more than text"
    return ""
