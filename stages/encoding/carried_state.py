"""What a range of a split's tokens takes over from the ranges before it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.encoding.scoring import LMScores
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel, State


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


def state_bytes(encoder: Artifact, context: int, mem_length: int | None = None) -> int:
    """Size of the largest state that a model carries from range to range, 0 for none; its weights are not read."""
    config = parse_model(encoder.config["model"]).reading(context, mem_length)
    if not config.carries_state:
        return 0
    with torch.device("meta"):
        model = LanguageModel(config)
    model.to_empty(device="cpu")
    for values in model.state_dict().values():
        values.zero_()  # what memory happens to hold is no permutation of a vocabulary
    return model.state_bytes(context)
