"""A make-believe device: CPU tensors that refuse, as a GPU's do, to meet tensors of the CPU.

Importing it changes torch for good (its experimental Python backend), so tests import it only where
``HELPERS_DEVICE=elsewhere``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from helpers.editing import weight_edit

_setup_privateuseone_for_python_backend("elsewhere")
DEVICE = torch.device("elsewhere:0")
_INDEXING = {"aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put"}
_tensor = torch.tensor


class Elsewhere(Tensor):
    """A tensor on the make-believe device; ``raw`` is where its numbers are."""

    @staticmethod
    def __new__(cls, raw: Tensor) -> Elsewhere:
        about = {"strides": raw.stride(), "storage_offset": raw.storage_offset()}
        with torch.inference_mode(False):
            made = Tensor._make_wrapper_subclass(
                cls, raw.size(), **about, dtype=raw.dtype, device=DEVICE
            )
        made.raw = raw
        return made

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(op, args, kwargs or {})

    __torch_function__ = torch._C._disabled_torch_function_impl

    # torch builds the index tensors of lists, and what follows, past the dispatcher.
    def __getitem__(self, index: Any) -> Tensor:
        return super().__getitem__(_indices(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_indices(index), value)

    def __matmul__(self, other: Tensor) -> Tensor:
        alone = self.dim() == 1 < other.dim()
        return (self[None] @ other)[0] if alone else super().__matmul__(other)

    def new_tensor(self, data: Any) -> Tensor:
        return _tensor(data, dtype=self.dtype).to(DEVICE)

    def tolist(self) -> Any:
        return self.detach().raw.tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("a tensor of another device is no numpy array: use .cpu() first")


def _indices(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(map(_indices, index))
    return _tensor(index).to(DEVICE) if isinstance(index, list) else index


def _run(op: Any, args: Any, kwargs: Any) -> Any:
    name = op.name().split(".")[0]
    if name == "aten::_to_copy":
        device = kwargs.pop("device", None)
        copy = op(_raw(args[0]), **{k: v for k, v in kwargs.items() if k == "dtype"})
        moved = isinstance(args[0], Elsewhere) if device is None else device.type == "elsewhere"
        return Elsewhere(copy) if moved else copy
    if name == "aten::copy_":
        _raw(args[0]).copy_(_raw(args[1]))
        return args[0]
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
        return op.decompose(*args, **kwargs)
    flat, spec = pytree.tree_flatten((args, kwargs))
    known = {id(leaf.raw): leaf for leaf in flat if isinstance(leaf, Elsewhere)}
    indices = {id(index) for index in args[1]} if name in _INDEXING else set()
    here = [t for t in flat if type(t) is Tensor and t.dim() and id(t) not in indices]
    if here and known:
        raise RuntimeError(f"{name}: tensors of two devices, one of shape {tuple(here[0].shape)}")
    raw_args, raw_kwargs = pytree.tree_unflatten([_raw(leaf) for leaf in flat], spec)

    def wrapped(leaf: Any) -> Any:  # in place: the same tensor, unless its shape changed
        same = known.get(id(leaf), leaf)
        if not isinstance(leaf, Tensor):
            return leaf
        return same if same is not leaf and same.shape == leaf.shape else Elsewhere(leaf)

    return pytree.tree_map(wrapped, op(*raw_args, **raw_kwargs))


def _raw(leaf: Any) -> Any:
    if isinstance(leaf, torch.device):
        return torch.device("cpu")
    return leaf.raw if isinstance(leaf, Elsewhere) else leaf


def _made(*args: Any, device: Any = None, **kwargs: Any) -> Tensor:
    made = _tensor(*args, **kwargs)
    return made if device is None else made.to(device)


_library = torch.library.Library("_", "IMPL")
_library.fallback(lambda op, *args, **kwargs: _run(op, args, kwargs), "PrivateUse1")
torch.tensor = _made
weight_edit.PLAIN = (
    *weight_edit.PLAIN,
    Elsewhere,
)  # a GPU's tensors are plain ones, this device's are not
