"""Where the parts of each architecture live: the one table a new architecture is added to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from helpers import UserError


class ModelError(UserError):
    """Raised for a model, dtype, device or shape that cannot be used here, with the reason."""


class UnknownArchitectureError(ModelError):
    """Raised for a model type that the table of architectures does not hold."""


@dataclass(frozen=True)
class Architecture:
    """Module names of one architecture; ``{}`` stands for the block index.

    ``transposed`` says that the MLP's matrices are stored [in, out] (GPT-2's Conv1D) instead of
    [out, in]. ``gate`` is the module whose output is gated before the activation function; for
    ungated MLPs it is the first matrix itself; None where gate and up are one matrix.
    ``eager_only`` marks architectures whose public implementation has no sdpa path,
    ``tuple_output`` those whose blocks return a tuple. ``mlp_norm`` is a norm that the MLP's output
    passes before it enters the residual stream, where there is one.
    """

    block: str
    mlp: str
    mlp_in: tuple[str, ...]
    mlp_out: str
    gate: str | None
    final_norm: str
    embedding: str
    head: str
    transposed: bool = False
    eager_only: bool = False
    tuple_output: bool = False
    mlp_norm: str | None = None


_LLAMA = Architecture(
    block="model.layers.{}",
    mlp="model.layers.{}.mlp",
    mlp_in=("model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj"),
    mlp_out="model.layers.{}.mlp.down_proj",
    gate="model.layers.{}.mlp.gate_proj",
    final_norm="model.norm",
    embedding="model.embed_tokens",
    head="lm_head",
)

ARCHITECTURES: dict[str, Architecture] = {
    "gpt2": Architecture(
        block="transformer.h.{}",
        mlp="transformer.h.{}.mlp",
        mlp_in=("transformer.h.{}.mlp.c_fc",),
        mlp_out="transformer.h.{}.mlp.c_proj",
        gate="transformer.h.{}.mlp.c_fc",
        final_norm="transformer.ln_f",
        embedding="transformer.wte",
        head="lm_head",
        transposed=True,
    ),
    "gptj": Architecture(
        block="transformer.h.{}",
        mlp="transformer.h.{}.mlp",
        mlp_in=("transformer.h.{}.mlp.fc_in",),
        mlp_out="transformer.h.{}.mlp.fc_out",
        gate="transformer.h.{}.mlp.fc_in",
        final_norm="transformer.ln_f",
        embedding="transformer.wte",
        head="lm_head",
        eager_only=True,
        tuple_output=True,
    ),
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "mistral": _LLAMA,
    "olmo2": replace(_LLAMA, mlp_norm="model.layers.{}.post_feedforward_layernorm"),
    "phi3": replace(  # Phi-3 and Phi-4: gate and up are one matrix
        _LLAMA,
        mlp_in=("model.layers.{}.mlp.gate_up_proj",),
        gate=None,
    ),
    "gpt_neox": Architecture(  # Pythia among others
        block="gpt_neox.layers.{}",
        mlp="gpt_neox.layers.{}.mlp",
        mlp_in=("gpt_neox.layers.{}.mlp.dense_h_to_4h",),
        mlp_out="gpt_neox.layers.{}.mlp.dense_4h_to_h",
        gate="gpt_neox.layers.{}.mlp.dense_h_to_4h",
        final_norm="gpt_neox.final_layer_norm",
        embedding="gpt_neox.embed_in",
        head="lm_head",
    ),
    "falcon": Architecture(
        block="transformer.h.{}",
        mlp="transformer.h.{}.mlp",
        mlp_in=("transformer.h.{}.mlp.dense_h_to_4h",),
        mlp_out="transformer.h.{}.mlp.dense_4h_to_h",
        gate="transformer.h.{}.mlp.dense_h_to_4h",
        final_norm="transformer.ln_f",
        embedding="transformer.word_embeddings",
        head="lm_head",
        tuple_output=True,
    ),
    "gemma3_text": replace(_LLAMA, mlp_norm="model.layers.{}.post_feedforward_layernorm"),
}


@dataclass(frozen=True)
class Layout:
    """The architecture's places in one model: names with the block index filled in."""

    architecture: Architecture
    blocks: int
    hidden_size: int
    intermediate_size: int

    def block(self, layer: int) -> str:
        """Name of the block (residual stream output) at ``layer``."""
        return self._fill(self.architecture.block, layer)

    def mlp(self, layer: int) -> str:
        """Name of the MLP module at ``layer``."""
        return self._fill(self.architecture.mlp, layer)

    def mlp_in(self, layer: int) -> tuple[str, ...]:
        """Names of the matrices that read the residual stream at ``layer`` (gate and up, or one)."""
        return tuple(self._fill(name, layer) for name in self.architecture.mlp_in)

    def mlp_out(self, layer: int) -> str:
        """Name of the edited matrix of the ROME family: the MLP's second matrix, W in [d, f]."""
        return self._fill(self.architecture.mlp_out, layer)

    def mlp_norm(self, layer: int) -> str | None:
        """Name of the norm between the MLP's output and the residual stream, if there is one."""
        name = self.architecture.mlp_norm
        return None if name is None else self._fill(name, layer)

    def gate(self, layer: int) -> str:
        """Name of the module whose output enters the activation function at ``layer``.

        Raises:
            UnknownArchitectureError: gate and up are one matrix, so that no module is the gate.
        """
        if self.architecture.gate is None:
            raise UnknownArchitectureError(
                "this architecture keeps gate and up in one matrix, so neurons cannot be attributed"
                " at the gate; attribute them at 'activation'"
            )
        return self._fill(self.architecture.gate, layer)

    def layer_of(self, module: str) -> int:
        """Index of the block that ``module`` is or belongs to."""
        for layer in range(self.blocks):
            if f"{module}.".startswith(f"{self.block(layer)}."):
                return layer
        raise ValueError(f"{module} is in no block of this model")

    def _fill(self, name: str, layer: int) -> str:
        if not 0 <= layer < self.blocks:
            raise ValueError(f"layer {layer} is not in this model, which has {self.blocks} blocks")
        return name.format(layer)


def architecture_of(config: PreTrainedConfig) -> Architecture:
    """The row of the table for a model's configuration.

    Raises:
        UnknownArchitectureError: the model type is not in ``ARCHITECTURES``.
    """
    model_type = str(getattr(config, "model_type", "?"))
    if model_type not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnknownArchitectureError(
            f"architecture {model_type!r} is not known (known: {known}); add one entry to ARCHITECTURES"
            " in helpers/models/architectures.py with the names of its block, MLP, in- and"
            " out-matrices (and whether they are stored transposed), final norm, embedding and head"
        )
    return ARCHITECTURES[model_type]


def layout_of(model: PreTrainedModel) -> Layout:
    """Build the layout of a loaded transformers model.

    Raises:
        UnknownArchitectureError: the model type is not in ``ARCHITECTURES``.
    """
    architecture = architecture_of(model.config)
    weight = model.get_submodule(architecture.mlp_out.format(0)).weight
    assert isinstance(weight, Tensor)
    hidden, intermediate = weight.T.shape if architecture.transposed else weight.shape
    return Layout(architecture, int(model.config.num_hidden_layers), int(hidden), int(intermediate))
