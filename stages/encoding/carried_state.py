"""State that a range of a split's tokens takes over from the ranges before it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stages.encoding.scoring import LMScores
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
            keys={name: self.joined_keys(scored, name)[-size:].clone() for name in names} if size else {},
            tokens=self.joined_tokens(scored)[-size:].clone() if size else None,
        )

    def joined_keys(self, scored: LMScores, name: str) -> Tensor:
        """Keys of the past and of a range behind it, [m + n, d]."""
        return torch.cat((self.keys[name], scored.keys[name])) if name in self.keys else scored.keys[name]

    def joined_tokens(self, scored: LMScores) -> Tensor:
        """Tokens of the past and of a range behind it, int64 [m + n]."""
        return scored.targets if self.tokens is None else torch.cat((self.tokens, scored.targets))
