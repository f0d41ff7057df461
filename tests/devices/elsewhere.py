"""A make-believe device: CPU tensors that refuse, as a GPU's do, to meet tensors of the CPU.

What runs here runs on a GPU as far as devices go: every tensor made where its partners are, nothing
converted to numpy without ``.cpu()``. Uses torch's experimental Python backend.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("elsewhere")
ELSEWHERE = torch.device("elsewhere:0")
_INDEXING = {"aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put"}


class DeviceError(RuntimeError):
    """Tensors of two devices met."""


class Elsewhere(Tensor):
    """A tensor on the make-believe device; ``raw`` is where its numbers are."""

    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor) -> Elsewhere:
        with torch.inference_mode(False):
            made = Tensor._make_wrapper_subclass(
                cls,
                raw.size(),
                strides=raw.stride(),
                storage_offset=raw.storage_offset(),
                dtype=raw.dtype,
                device=ELSEWHERE,
            )
        made.raw = raw
        return made

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(op, args, kwargs or {})

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __repr__(self) -> str:
        return f"Elsewhere({self.detach().raw})"

    # torch builds the index tensors of lists, and these below, past the dispatcher.
    def __getitem__(self, index: Any) -> Tensor:
        return super().__getitem__(_indices(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_indices(index), value)

    def __matmul__(self, other: Tensor) -> Tensor:
        """A vector times a matrix without torch's squeeze in place, which no wrapper can follow."""
        return (
            (self[None] @ other)[0] if self.dim() == 1 < other.dim() else super().__matmul__(other)
        )

    def new_tensor(self, data: Any) -> Tensor:
        return _tensor(data, dtype=self.dtype).to(ELSEWHERE)

    def tolist(self) -> Any:
        return self.detach().raw.tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise DeviceError("can't convert a tensor of another device to numpy: use .cpu() first")


def _indices(index: Any) -> Any:
    parts = index if isinstance(index, tuple) else (index,)
    moved = tuple(_tensor(i).to(ELSEWHERE) if isinstance(i, list) else i for i in parts)
    return moved if isinstance(index, tuple) else moved[0]


def _run(op: Any, args: Any, kwargs: Any) -> Any:
    name = op.name().split(".")[0]
    if name == "aten::_to_copy":
        return _moved(args[0], kwargs)
    if name == "aten::copy_":
        _raw(args[0]).copy_(_raw(args[1]))
        return args[0]
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
        return op.decompose(*args, **kwargs)
    flat, spec = pytree.tree_flatten((args, kwargs))
    _check(name, args, [t for t in flat if isinstance(t, Tensor)])
    raw_args, raw_kwargs = pytree.tree_unflatten([_raw(leaf) for leaf in flat], spec)
    found = op(*raw_args, **raw_kwargs)
    known = {id(leaf.raw): leaf for leaf in flat if isinstance(leaf, Elsewhere)}

    def wrapped(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        same = known.get(id(leaf))  # in place: the same tensor, unless its shape changed
        return same if same is not None and same.shape == leaf.shape else Elsewhere(leaf)

    return pytree.tree_map(wrapped, found)


def _moved(tensor: Tensor, options: dict[str, Any]) -> Tensor:
    device = options.get("device")
    left = {k: v for k, v in options.items() if k not in ("device", "pin_memory", "non_blocking")}
    copy = torch.ops.aten._to_copy.default(_raw(tensor), **left)
    here = isinstance(tensor, Elsewhere) if device is None else device.type == "elsewhere"
    return Elsewhere(copy) if here else copy


def _check(name: str, args: Any, tensors: list[Tensor]) -> None:
    """Raise ``DeviceError`` where a GPU would refuse; indices of the CPU are allowed."""
    if name in _INDEXING:
        tensors = [t for t in tensors if not any(t is index for index in args[1])]
    strangers = [t for t in tensors if not isinstance(t, Elsewhere) and t.dim()]
    if strangers and len(strangers) < len(tensors):
        shapes = [(type(t).__name__, tuple(t.shape)) for t in tensors]
        raise DeviceError(f"{name}: all tensors must be on one device, got {shapes}")


def _raw(leaf: Any) -> Any:
    if isinstance(leaf, torch.device):
        return torch.device("cpu")
    return leaf.raw if isinstance(leaf, Elsewhere) else leaf


_library = torch.library.Library("_", "IMPL")
_library.fallback(lambda op, *args, **kwargs: _run(op, args, kwargs), "PrivateUse1")
_tensor = torch.tensor


def _made(*args: Any, device: Any = None, **kwargs: Any) -> Tensor:
    made = _tensor(*args, **kwargs)
    return made if device is None else made.to(device)


torch.tensor = _made
