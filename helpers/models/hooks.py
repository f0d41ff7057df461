"""Hooks on named modules for the length of a block; they are taken off however it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from helpers.models.language_model import LanguageModel

OnInput = Callable[[Tensor], Tensor | None]
OnOutput = Callable[[Tensor, Tensor], Tensor | None]


@contextmanager
def input_hooks(language_model: LanguageModel, hooks: Mapping[str, OnInput]) -> Iterator[None]:
    """Show each named module's input to its function before the module runs.

    What a function returns takes the input's place; None leaves it as it is.
    """
    with ExitStack() as stack:
        for name, on_input in hooks.items():
            module = language_model.module(name)
            stack.callback(module.register_forward_pre_hook(_before(on_input)).remove)
        yield


@contextmanager
def output_hooks(language_model: LanguageModel, hooks: Mapping[str, OnOutput]) -> Iterator[None]:
    """Show each named module's input and output to its function after the module ran.

    What a function returns takes the output's place; None leaves it as it is. Of a module that
    returns a tuple, as some architectures' blocks do, the output is the first.
    """
    with ExitStack() as stack:
        for name, on_output in hooks.items():
            module = language_model.module(name)
            stack.callback(module.register_forward_hook(_after(on_output)).remove)
        yield


def _before(on_input: OnInput) -> Any:
    def hook(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        changed = on_input(arguments[0])
        return None if changed is None else (changed, *arguments[1:])

    return hook


def _after(on_output: OnOutput) -> Any:
    def hook(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> Any:
        in_tuple = isinstance(output, tuple)
        changed = on_output(arguments[0], output[0] if in_tuple else output)
        return (changed, *output[1:]) if in_tuple and changed is not None else changed

    return hook
