"""Reading activations during a forward pass, stopping once the last one asked for is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from torch import Tensor

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

    def reading(name: str) -> Any:
        return lambda _module, arguments: keep(name, arguments[0])

    def writing(name: str) -> Any:
        return lambda _module, _arguments, output: keep(name, first_tensor(output))

    with ExitStack() as stack:
        for name in wanted:
            module = language_model.module(name)
            if name in outputs:
                handle = module.register_forward_hook(writing(name))
            else:
                handle = module.register_forward_pre_hook(reading(name))
            stack.callback(handle.remove)
        with suppress(_StopForward):
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


def first_tensor(output: Any) -> Tensor:
    """A module's output tensor; some blocks return it as the first of a tuple."""
    return output[0] if isinstance(output, tuple) else output
