"""Reading activations during a forward pass, stopping once the last one asked for is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from torch import Tensor

from helpers.models.hooks import OnInput, OnOutput, input_hooks, output_hooks
from helpers.models.language_model import LanguageModel


class _StopForward(Exception):
    """Leaves a forward pass whose remaining blocks nobody reads."""


@contextmanager
def record(
    language_model: LanguageModel, *, inputs: Sequence[str] = (), outputs: Sequence[str] = ()
) -> Iterator[dict[str, Tensor]]:
    """Collect inputs and outputs of named modules in one forward pass, which ends at the last one.

    A module whose input is the last thing read is itself not run.

    >>> with record(language_model, inputs=["model.layers.5.mlp.down_proj"]) as seen:
    ...     hidden_states(language_model, ids, positions, visible)
    >>> seen["model.layers.5.mlp.down_proj"].shape

    Raises:
        ValueError: a module named in both lists.
    """
    if set(inputs) & set(outputs):
        raise ValueError(f"read input or output, not both: {sorted(set(inputs) & set(outputs))}")
    seen: dict[str, Tensor] = {}
    wanted = {*inputs, *outputs}

    def keep(name: str, tensor: Tensor) -> None:
        seen[name] = tensor
        if wanted <= seen.keys():
            raise _StopForward

    def reading(name: str) -> OnInput:
        return lambda entering: keep(name, entering)

    def writing(name: str) -> OnOutput:
        return lambda _, output: keep(name, output)

    with (
        input_hooks(language_model, {name: reading(name) for name in inputs}),
        output_hooks(language_model, {name: writing(name) for name in outputs}),
        suppress(_StopForward),
    ):
        yield seen


@contextmanager
def record_inputs(
    language_model: LanguageModel, names: Sequence[str]
) -> Iterator[dict[str, Tensor]]:
    """Collect the inputs of the named modules (see ``record``)."""
    with record(language_model, inputs=names) as seen:
        yield seen


@contextmanager
def record_outputs(
    language_model: LanguageModel, names: Sequence[str]
) -> Iterator[dict[str, Tensor]]:
    """Collect the outputs of the named modules (see ``record``)."""
    with record(language_model, outputs=names) as seen:
        yield seen
