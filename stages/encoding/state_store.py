"""The carried state of a shard: handed on by the shard before it, or read from that one's file."""

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file, save

from stages.artifacts.output import ShardOutput
from stages.encoding.carried_state import CarriedState
from stages.encoding.window_settings import TokenRange
from stages.models.backbone import named_below

STATE, ENCODER_STATE = "state/", "encoder-state/"


class StateStore:
    """Hands the carried state from shard to shard, and keeps on disk the states that a resumed run begins with.

    Keys of earlier positions are not kept: the tokens they belong to are read again.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        """`folder`: the draft's."""
        self._folder, self._device = folder, device
        self._latest: tuple[str, CarriedState] | None = None

    def keep(self, output: ShardOutput, shard: str, after: CarriedState, idle: str | None = None) -> None:
        """Note what is carried past a shard; its states, if there are any, are written with it.

        Args:
            idle: an earlier shard, with whose states no run begins any more once this one is committed; None: there is
                none.
        """
        self._latest = shard, after
        tensors = {STATE + name: part for name, part in (after.state or {}).items()}
        tensors |= {ENCODER_STATE + name: part for name, part in (after.encoder_state or {}).items()}
        if not tensors:
            return
        content = save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()})
        output.add(_file(shard)).write_bytes(content)
        if idle is not None:
            output.discard(_file(idle))

    def after(self, shard: str) -> CarriedState | None:
        """The state after a shard, if it was the latest of this run."""
        return self._latest[1] if self._latest is not None and self._latest[0] == shard else None

    def latest(self, ranges: Iterable[TokenRange]) -> tuple[CarriedState, list[TokenRange]]:
        """Find the latest stored state among some ranges, and the ranges after it, which must be read again.

        It is without positions unless that range was the latest of this run; where none left anything, it is that of
        the start of the split.

        Args:
            ranges: the last first, back to the start of a split.
        """
        lost: list[TokenRange] = []
        for one in ranges:
            carried = self.after(one.key) or self._stored(one)
            if carried is not None:
                return carried, lost[::-1]
            lost.append(one)
        return CarriedState(), lost[::-1]

    def _stored(self, shard: TokenRange) -> CarriedState | None:
        path = self._folder / _file(shard.key)
        if not path.exists():
            return None
        tensors = {name: tensor.to(self._device) for name, tensor in load_file(path).items()}
        state, encoder_state = (named_below(tensors, prefix) or None for prefix in (STATE, ENCODER_STATE))
        return CarriedState(shard.stop, state, encoder_state)


def _file(shard: str) -> str:
    return f"scratch/state-{shard}.safetensors"
