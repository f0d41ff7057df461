"""Reading activations during a forward pass, stopping once the last one asked for is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from torch import Tensor, nn

from helpers.models.language_model import LanguageModel


class _StopForward(Exception):
    """Leaves a forward pass whose remaining blocks nobody reads."""


@contextmanager
def record(
    language_model: LanguageModel, *, inputs: Sequence[str] = (), outputs: Sequence[str] = ()
) -> Iterator[dict[str, Tensor]]:
    """Collect inputs and outputs of named modules in one forward pass, which ends at the last one.

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

    def hook_for(name: str) -> Any:
        def hook(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            seen[name] = arguments[0] if name in inputs else first_tensor(output)
            if wanted <= seen.keys():
                raise _StopForward

        return hook

    with ExitStack() as stack:
        for name in wanted:
            handle = language_model.module(name).register_forward_hook(hook_for(name))
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
