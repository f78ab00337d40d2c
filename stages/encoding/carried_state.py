"""State that a range of tokens takes over from earlier ranges of its split, in memory or from a
file.
"""

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
    """The past of token `start`: the state of the backbones, and the last positions as they were
    scored.

    `keys` [m, d] by name and `tokens` int64 [m] belong to positions start - m … start - 1; each
    token is the one that followed its key. `encoder_state` is the state of a separate model that
    makes search keys. `side_states` are those of side models, by name. `learned` has the weights of
    a model that learns while it is scored, and all else that its rule keeps; None: they are those
    of training.
    """

    start: int = 0
    state: State = None
    encoder_state: State = None
    keys: Mapping[str, Tensor] = field(default_factory=dict)
    tokens: Tensor | None = None
    side_states: Mapping[str, State] = field(default_factory=dict)
    learned: State = None

    def after(
        self,
        scored: LMScores,
        size: int,
        names: Collection[str],
        encoder_state: State = None,
        side_states: Mapping[str, State] | None = None,
        learned: State = None,
    ) -> "CarriedState":
        """The past of the token after a range that began at `start`.

        Args:
            size: maximum number of past positions to keep; 0: none.
            names: the keys to keep of these positions.
        """
        assert scored.start == self.start
        return CarriedState(
            start=scored.stop,
            state=scored.state,
            encoder_state=encoder_state,
            # Copies: a view would keep the keys of the whole range in memory.
            keys={name: self.joined_keys(scored, name)[-size:].clone() for name in names}
            if size
            else {},
            tokens=self.joined_tokens(scored)[-size:].clone() if size else None,
            side_states=side_states or {},
            learned=learned,
        )

    def joined_keys(self, scored: LMScores, name: str) -> Tensor:
        """Keys of the past and of the range after it, [m + n, d]."""
        return (
            torch.cat((self.keys[name], scored.keys[name]))
            if name in self.keys
            else scored.keys[name]
        )

    def joined_tokens(self, scored: LMScores) -> Tensor:
        """Tokens of the past and of the range after it, int64 [m + n]."""
        return scored.targets if self.tokens is None else torch.cat((self.tokens, scored.targets))


STATE = "state/"
ENCODER_STATE = "encoder-state/"
SIDE_STATE = "side-state/"
LEARNED = "learned/"


class StateStore:
    """Passes the carried state from shard to shard, and stores the states that a resumed run needs
    on disk.

    Keys of earlier positions are not stored: a resumed run reads their tokens again.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        """`folder`: folder of the draft."""
        self._folder = folder
        self._device = device
        self._latest: tuple[str, CarriedState] | None = None

    def keep(
        self, output: ShardOutput, shard: str, after: CarriedState, idle: str | None = None
    ) -> None:
        """Remember the state after a shard, and write it, if there is any, with the shard's output.

        Args:
            idle: an earlier shard whose stored state is no longer needed once this shard is
                committed; None: there is none.
        """
        self._latest = shard, after
        # the file has one name space: a prefix tells whose state a tensor is of
        parts = {
            STATE: after.state,
            ENCODER_STATE: after.encoder_state,
            **{f"{SIDE_STATE}{model}/": state for model, state in after.side_states.items()},
            LEARNED: after.learned,
        }
        tensors = {}
        for prefix, state in parts.items():
            for name, tensor in (state or {}).items():
                tensors[prefix + name] = tensor.cpu().contiguous()
        if not tensors:
            return

        output.add(_file(shard)).write_bytes(save(tensors))
        if idle is not None:
            output.discard(_file(idle))

    def after(self, shard: str) -> CarriedState | None:
        """The state after a shard, if it was the latest of this run."""
        return self._latest[1] if self._latest is not None and self._latest[0] == shard else None

    def latest(self, ranges: Iterable[TokenRange]) -> tuple[CarriedState, list[TokenRange]]:
        """Find the latest stored state among these ranges, and the ranges after it, which must be
        read again.

        The state has past positions only if its range was the last of this run. If no state is
        stored, it is that of the start of the split.

        Args:
            ranges: in reverse order, back to the start of a split.
        """
        lost: list[TokenRange] = []
        for part in ranges:
            carried = self.after(part.key)
            path = self._folder / _file(part.key)
            if carried is None and path.exists():
                tensors = {
                    name: tensor.to(self._device) for name, tensor in load_file(path).items()
                }
                state, encoder_state, learned = (
                    named_below(tensors, prefix) or None
                    for prefix in (STATE, ENCODER_STATE, LEARNED)
                )
                side_states = _side_states(named_below(tensors, SIDE_STATE))
                carried = CarriedState(
                    part.stop, state, encoder_state, side_states=side_states, learned=learned
                )
            if carried is not None:
                return carried, lost[::-1]
            lost.append(part)
        return CarriedState(), lost[::-1]


def _side_states(tensors: Mapping[str, Tensor]) -> dict[str, State]:
    """States by model, of tensors by `MODEL/NAME`; a name of a model has no slash."""
    models = dict.fromkeys(name.partition("/")[0] for name in tensors)
    return {model: named_below(tensors, f"{model}/") for model in models}


def _file(shard: str) -> str:
    return f"scratch/state-{shard}.safetensors"
