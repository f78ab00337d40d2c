"""Bytes of the tensors that a computation holds at once, counted while it runs; on the meta device by shapes alone."""

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary, finalize

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class TensorBytes(TorchDispatchMode):
    """What is made inside and not freed yet: `held`, and the most there was at once: `peak`; whole storages.

    What is inside one kernel is not seen, and what was there before does not count.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held = self.peak = 0
        self._known: WeakKeyDictionary[Any, None] = WeakKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        for tensor in _tensors((args, kwargs)):
            self._known[tensor.untyped_storage()] = None
        found = func(*args, **(kwargs or {}))
        for tensor in _tensors(found):
            self._count(tensor.untyped_storage())
        return found

    def _count(self, storage: Any) -> None:
        if storage not in self._known:
            self._known[storage] = None
            size = storage.nbytes()
            self.held += size
            self.peak = max(self.peak, self.held)
            finalize(storage, self._free, size)

    def _free(self, size: int) -> None:
        self.held -= size


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
