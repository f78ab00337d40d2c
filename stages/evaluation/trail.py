"""Where the history of a shard comes from: the shard before it, in memory or on disk."""

from collections.abc import Mapping, Sequence

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from stages.artifacts.draft import Draft
from stages.evaluation.history import History
from stages.models.language_model import State

STATE, ENCODER_STATE, KEYS, TOKENS = "state/", "encoder-state/", "keys/", "tokens"


class Trail:
    """Hands the history from shard to shard, and leaves on disk what a run that goes on needs of it.

    Every shard leaves the state behind it and the latest of its own positions, so that a history of
    any size is put together from as many shards as it reaches back.
    """

    def __init__(self, draft: Draft, size: int, carries_state: bool, device: torch.device) -> None:
        """Begin a trail.

        Args:
            size: positions that a history reaches back, 0 for none.
            carries_state: whether the backbone carries state from token to token.
        """
        self._draft, self._size, self._device = draft, size, device
        self._needed = size > 0 or carries_state
        self._latest: tuple[str, History] | None = None

    def before(self, previous: Sequence[str], start: int) -> History:
        """The history of token `start`, which the shards with these keys end at; none: where a split starts."""
        if not previous or not self._needed:
            return History(start)
        if self._latest is not None and self._latest[0] == previous[-1]:
            return self._latest[1]
        return self._load(previous, start)

    def keep(self, shard: str, after: History, positions: int) -> None:
        """Note the history behind a shard of so many positions; its file belongs to the unit under way."""
        if not self._needed:
            return
        self._latest = shard, after
        tensors = {f"{STATE}{i}": part for i, part in enumerate(after.state or ())}
        tensors |= {f"{ENCODER_STATE}{i}": part for i, part in enumerate(after.encoder_state or ())}
        if after.tokens is not None:
            tensors |= {TOKENS: after.tokens[-positions:]}
            tensors |= {KEYS + name: keys[-positions:] for name, keys in after.keys.items()}
        stored = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        self._draft.add(_file(shard)).write_bytes(save(stored))

    def _load(self, previous: Sequence[str], start: int) -> History:
        """A history from the files of as many shards as it reaches back."""
        parts: list[dict[str, Tensor]] = []
        held = 0
        for shard in reversed(previous):
            parts.insert(0, load_file(self._draft.path / _file(shard), device=str(self._device)))
            held += len(parts[0].get(TOKENS, ()))
            if held >= self._size:
                break
        return History(
            start=start,
            state=_state(parts[-1], STATE),
            encoder_state=_state(parts[-1], ENCODER_STATE),
            keys={name.removeprefix(KEYS): self._joined(parts, name) for name in parts[-1] if name.startswith(KEYS)},
            tokens=self._joined(parts, TOKENS) if TOKENS in parts[-1] else None,
        )

    def _joined(self, parts: Sequence[Mapping[str, Tensor]], name: str) -> Tensor:
        return torch.cat([part[name] for part in parts])[-self._size :]


def _state(tensors: Mapping[str, Tensor], prefix: str) -> State:
    number = sum(name.startswith(prefix) for name in tensors)
    return tuple(tensors[f"{prefix}{i}"] for i in range(number)) or None


def _file(shard: str) -> str:
    return f"scratch/past-{shard}.safetensors"
