"""State that a range of a split's tokens takes over from the ranges before it: handed on, or read from a file."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from stages.artifacts.output import ShardOutput
from stages.encoding.scoring import LMScores
from stages.encoding.window_settings import TokenRange
from stages.models.backbone import named_below
from stages.models.language_model import State


@dataclass(frozen=True)
class CarriedState:
    """The past of token `start`: the state of the backbones, and the latest positions as they were scored.

    `keys` [m, d] by name and `tokens` int64 [m] are of positions start - m … start - 1; a token is
    what followed its key. `encoder_state` is that of another model that makes search keys.
    """

    start: int = 0
    state: State = None
    encoder_state: State = None
    keys: Mapping[str, Tensor] = field(default_factory=dict)
    tokens: Tensor | None = None

    def after(self, scored: LMScores, size: int, names: Collection[str], encoder_state: State = None) -> "CarriedState":
        """The past of the token behind a range, which began at `start`.

        Args:
            size: positions that it reaches back at most; 0: none.
            names: the keys that are kept of them.
        """
        assert scored.start == self.start
        return CarriedState(
            start=scored.stop,
            state=scored.state,
            encoder_state=encoder_state,
            # Copies: a view would keep the keys of the whole range in memory.
            keys={name: self.joined_keys(scored, name)[-size:].clone() for name in names} if size else {},
            tokens=self.joined_tokens(scored)[-size:].clone() if size else None,
        )

    def joined_keys(self, scored: LMScores, name: str) -> Tensor:
        """Keys of the past and of a range behind it, [m + n, d]."""
        return torch.cat((self.keys[name], scored.keys[name])) if name in self.keys else scored.keys[name]

    def joined_tokens(self, scored: LMScores) -> Tensor:
        """Tokens of the past and of a range behind it, int64 [m + n]."""
        return scored.targets if self.tokens is None else torch.cat((self.tokens, scored.targets))


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
