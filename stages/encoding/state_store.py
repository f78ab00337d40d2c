"""Where the carried state of a shard comes from: the shard before it, or what that left on disk."""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from stages.artifacts.output import ShardOutput
from stages.encoding.carried_state import CarriedState
from stages.models.language_model import State

STATE, ENCODER_STATE = "state/", "encoder-state/"


class StateStore:
    """Hands the carried state from shard to shard, and keeps on disk the states that a run that goes on begins with.

    Keys of earlier positions are not kept: the tokens they belong to are read again.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        """`folder`: the draft's."""
        self._folder, self._device = folder, device
        self._latest: tuple[str, CarriedState] | None = None

    def keep(self, output: ShardOutput, shard: str, after: CarriedState, idle: str | None = None) -> None:
        """Note what is carried past a shard; its states, if there are any, are written with it.

        Args:
            idle: an earlier shard, whose states no run needs any more once this one is committed; None: there is none.
        """
        self._latest = shard, after
        tensors = {f"{STATE}{i}": part for i, part in enumerate(after.state or ())}
        tensors |= {f"{ENCODER_STATE}{i}": part for i, part in enumerate(after.encoder_state or ())}
        if not tensors:
            return
        stored = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        output.add(_file(shard)).write_bytes(save(stored))
        if idle is not None:
            output.discard(_file(idle))

    def after(self, shard: str) -> CarriedState | None:
        """What is carried past a shard, if it was the latest of this run."""
        return self._latest[1] if self._latest is not None and self._latest[0] == shard else None

    def before(self, shard: str, start: int) -> CarriedState | None:
        """What is carried to token `start` from the shard before it, if it was the latest of this run.

        Else without positions, if its states are on disk; None: neither, so tokens before it are to be read again.
        """
        latest = self.after(shard)
        return self._stored(shard, start) if latest is None else latest

    def latest(self, shards: Sequence[str], step: int) -> CarriedState:
        """What is carried past the last of these shards that left its states; of none, of the start of the split.

        Args:
            shards: in order, the first ones of a split, of `step` tokens each.
        """
        for number in range(len(shards), 0, -1):
            carried = self.before(shards[number - 1], number * step)
            if carried is not None:
                return carried
        return CarriedState()

    def _stored(self, shard: str, start: int) -> CarriedState | None:
        path = self._folder / _file(shard)
        if not path.exists():
            return None
        tensors = load_file(path, device=str(self._device))
        return CarriedState(start, _state(tensors, STATE), _state(tensors, ENCODER_STATE))


def _state(tensors: dict[str, Tensor], prefix: str) -> State:
    number = sum(name.startswith(prefix) for name in tensors)
    return tuple(tensors[f"{prefix}{i}"] for i in range(number)) or None


def _file(shard: str) -> str:
    return f"scratch/state-{shard}.safetensors"
