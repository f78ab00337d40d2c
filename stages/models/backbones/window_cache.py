"""Caches of transformers as states of windows: the rows of several join, and inputs are dropped
again.

A cache has a layer for each block: keys and values of all inputs, or of those in a sliding window,
or the states of a recurrent block. RWKV has a list of tensors instead. Rows of unequal length are
padded at the beginning.

Shapes: B rows, H heads, L inputs of the longest row.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

NAMES = ("cache", "past_key_values", "cache_params", "state")
"""Names of the cache as an argument of models, and in their outputs; the first one there is used.
"""
KEYS = ("keys", "values")
"""Attributes of a layer that holds attention's inputs, [B, H, L, d_head] each."""


class WindowCache(Mapping[str, Tensor]):
    """State of B rows within their windows; it does not change, so earlier states stay valid.

    As a mapping it has the tensors of the cache by name, `layer0.keys`.
    """

    def __init__(self, cache: Any, lengths: Sequence[int]) -> None:
        """Args:
        cache: a cache of transformers, or a list of tensors [B, …].
        lengths: inputs that each of the B rows has read.
        """
        self._cache = cache
        self.lengths = tuple(lengths)

    def __getitem__(self, name: str) -> Tensor:
        return dict(_tensors(self._cache))[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in _tensors(self._cache))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def longest(self) -> int:
        """L, the inputs of the longest row."""
        return max(self.lengths)

    @property
    def is_padded(self) -> bool:
        """Whether some row has read fewer inputs than another."""
        return min(self.lengths) < self.longest

    @property
    def has_keys(self) -> bool:
        """Whether some layer attends to earlier inputs."""
        return any(_has_keys(layer) for layer in _layers(self._cache))

    @property
    def is_recurrent(self) -> bool:
        """Whether some layer has a state that cannot forget its last input."""
        return any(not _has_keys(layer) for layer in _layers(self._cache))

    @property
    def can_join(self) -> bool:
        """Whether rows can be read together; RWKV of transformers reads one text alone."""
        return not isinstance(self._cache, list)

    def copied(self) -> Any:
        """The cache of transformers, which a model may extend without changing this state."""
        if isinstance(self._cache, list):
            return [tensor.clone() for tensor in self._cache]
        return _with_layers(self._cache, [_copied(layer) for layer in self._cache.layers])

    def mask(self, number: int, device: torch.device) -> Tensor:
        """Inputs that count, padding excluded, with `number` more for each row, int64 [B, L + n]."""
        lengths = torch.tensor(self.lengths, device=device)[:, None]
        places = torch.arange(self.longest + number, device=device)
        return (places >= self.longest - lengths).long()

    def positions(self, number: int, device: torch.device) -> Tensor:
        """Places of the next `number` inputs in their windows, int64 [B, n]."""
        lengths = torch.tensor(self.lengths, device=device)[:, None]
        return lengths + torch.arange(number, device=device)

    def rows(self, rows: Sequence[int]) -> "WindowCache":
        """The state of some rows."""
        lengths = [self.lengths[row] for row in rows]
        layers = [_rows_of(layer, list(rows), max(lengths)) for layer in self._cache.layers]
        return WindowCache(_with_layers(self._cache, layers), lengths)

    def without_last(self, number: int) -> "WindowCache | None":
        """The state before the last `number` inputs; None if it cannot be had from this one."""
        if number == 0:
            return self
        layers = _layers(self._cache)
        if not all(_can_drop(layer) for layer in layers):
            return None
        shorter = [_without_last(layer, number) for layer in layers]
        lengths = [length - number for length in self.lengths]
        return WindowCache(_with_layers(self._cache, shorter), lengths)


def join(states: Sequence[WindowCache]) -> WindowCache:
    """One state with the rows of all of these, in their order."""
    if len(states) == 1:
        return states[0]
    lengths = [length for state in states for length in state.lengths]
    max_length = max(lengths)
    caches = [state._cache for state in states]

    # the n-th layers of all states become the n-th layer
    by_layer = zip(*(cache.layers for cache in caches), strict=True)
    layers = [_joined(layers, max_length) for layers in by_layer]
    return WindowCache(_with_layers(caches[0], layers), lengths)


def _tensors(cache: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors [B, …] of a cache by name."""
    if isinstance(cache, list):
        for number, tensor in enumerate(cache):
            yield f"state{number}", tensor
        return

    for number, layer in enumerate(cache.layers):
        if _has_keys(layer):
            for name in KEYS:
                yield f"layer{number}.{name}", getattr(layer, name)
        for name, states in _states(layer).items():
            for place, tensor in states.items():
                # a state that was not reached yet is no tensor
                if isinstance(tensor, Tensor):
                    yield f"layer{number}.{name}{place}", tensor


def _layers(cache: Any) -> Sequence[Any]:
    """The layers of a cache; a list of tensors is one layer without keys."""
    return [cache] if isinstance(cache, list) else cache.layers


def _has_keys(layer: Any) -> bool:
    return isinstance(getattr(layer, "keys", None), Tensor)


def _states(layer: Any) -> dict[str, dict[Any, Any]]:
    """Attributes of a layer that have a value for each of its recurrent states."""
    return {name: value for name, value in vars(layer).items() if isinstance(value, dict)}


def _with_layers(cache: Any, layers: list[Any]) -> Any:
    """The same cache with other layers."""
    changed = copy(cache)
    changed.layers = layers
    return changed


def _copied(layer: Any) -> Any:
    """A layer whose changes do not reach this one.

    Keys and values grow by concatenation, so they may be shared. Recurrent states change in place.
    """
    changed = copy(layer)
    for name, states in _states(layer).items():
        setattr(changed, name, {place: _cloned(value) for place, value in states.items()})
    return changed


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _stored(layer: Any, length: int) -> int:
    """Inputs that a layer keeps of a row that has read `length`."""
    return min(length, layer.sliding_window - 1) if layer.is_sliding else length


def _with_keys(layer: Any, keys: Tensor, values: Tensor, length: int) -> Any:
    """A layer with other keys and values, after `length` inputs."""
    changed = _copied(layer)
    changed.keys = keys
    changed.values = values
    if layer.is_sliding:
        changed.cumulative_length = length
    return changed


def _joined(layers: Sequence[Any], length: int) -> Any:
    """One layer with the rows of several, padded to the longest of `length` inputs."""
    first = layers[0]
    joined = _copied(first)
    if _has_keys(first):
        size = _stored(first, length)
        tensors = []
        for name in KEYS:
            padded = [_padded(getattr(layer, name), size) for layer in layers]
            tensors.append(torch.cat(padded))
        keys, values = tensors
        joined = _with_keys(first, keys, values, length)

    for name, states in _states(first).items():
        together = {}
        for place in states:
            parts = [getattr(layer, name)[place] for layer in layers]
            together[place] = _concatenated(parts)
        setattr(joined, name, together)
    return joined


def _padded(part: Tensor, size: int) -> Tensor:
    """Keys or values [B, H, l, d_head] with zeros before them, [B, H, size, d_head]."""
    return F.pad(part, (0, 0, size - part.shape[2], 0))


def _concatenated(values: Sequence[Any]) -> Any:
    """States of several rows together; marks, such as whether there is a state, are equal."""
    return torch.cat(list(values)) if isinstance(values[0], Tensor) else values[0]


def _rows_of(layer: Any, rows: list[int], length: int) -> Any:
    """Some rows of a layer, of which the longest has read `length` inputs."""
    chosen = _copied(layer)
    if _has_keys(layer):
        size = _stored(layer, length)
        keys, values = (
            part[rows, :, part.shape[2] - size :] for part in (layer.keys, layer.values)
        )
        chosen = _with_keys(layer, keys, values, length)
    for name, states in _states(layer).items():
        of_rows = {
            place: value[rows] if isinstance(value, Tensor) else value
            for place, value in states.items()
        }
        setattr(chosen, name, of_rows)
    return chosen


def _can_drop(layer: Any) -> bool:
    """Whether a layer still has all inputs before its last ones."""
    if not _has_keys(layer) or _states(layer):
        return False
    # A window that slides has dropped inputs that an earlier state would need.
    return not layer.is_sliding or layer.cumulative_length < layer.sliding_window


def _without_last(layer: Any, number: int) -> Any:
    size = layer.keys.shape[2] - number
    return _with_keys(layer, layer.keys[:, :, :size], layer.values[:, :, :size], size)
