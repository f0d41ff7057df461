"""Hooks on named modules for the length of a block, and what modules read and write in a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

from torch import Tensor, nn

from helpers.models.language_model import LanguageModel

OnInput = Callable[[Tensor], Tensor | None]
OnOutput = Callable[[Tensor, Tensor], Tensor | None]


@contextmanager
def input_hooks(lm: LanguageModel, hooks: Mapping[str, OnInput]) -> Iterator[None]:
    """Show each named module's input to its function, whose result, unless None, replaces it."""

    def hook(on_input: OnInput, _: nn.Module, arguments: tuple[Any, ...]) -> Any:
        changed = on_input(arguments[0])
        return None if changed is None else (changed, *arguments[1:])

    with ExitStack() as stack:
        for name, on_input in hooks.items():
            module = lm.module(name)
            handle = module.register_forward_pre_hook(partial(hook, on_input))
            stack.enter_context(handle)
        yield


@contextmanager
def output_hooks(lm: LanguageModel, hooks: Mapping[str, OnOutput]) -> Iterator[None]:
    """Show each named module's input and output to its function, whose result replaces the output."""

    def hook(on_output: OnOutput, _: nn.Module, arguments: tuple[Any, ...], output: Any) -> Any:
        in_tuple = isinstance(output, tuple)
        changed = on_output(arguments[0], output[0] if in_tuple else output)
        return (changed, *output[1:]) if in_tuple and changed is not None else changed

    with ExitStack() as stack:
        for name, on_output in hooks.items():
            module = lm.module(name)
            handle = module.register_forward_hook(partial(hook, on_output))
            stack.enter_context(handle)
        yield


class _StopForward(Exception):
    """Leaves a forward pass whose remaining blocks nobody reads."""


@contextmanager
def record(
    lm: LanguageModel, *, inputs: Sequence[str] = (), outputs: Sequence[str] = ()
) -> Iterator[dict[str, Tensor]]:
    """Collect inputs or outputs of named modules in one forward pass, which ends at the last one."""
    recorded: dict[str, Tensor] = {}

    def keep(name: str, *tensors: Tensor) -> None:
        recorded[name] = tensors[-1]
        if recorded.keys() >= {*inputs, *outputs}:
            raise _StopForward

    before = input_hooks(lm, {name: partial(keep, name) for name in inputs})
    after = output_hooks(lm, {name: partial(keep, name) for name in outputs})
    with before, after, suppress(_StopForward):
        yield recorded
