"""A decoder small enough to try every translation: a recurrent network that attends to its source."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from stages.translation.decoder import Step
from tests.oracles.translation import Next

V, WIDTH, EOS = 5, 6, 0


@dataclass
class ToyDecoder:
    """Random weights, float64; `sharpness` says how sure it is."""

    seed: int = 0
    start: int = EOS
    never: tuple[int, ...] = ()
    eos: int = EOS
    sharpness: float = 2.0
    steps: int = 0

    def __post_init__(self) -> None:
        random = torch.Generator().manual_seed(self.seed)
        shapes = {
            "source": (V, WIDTH),
            "target": (V, WIDTH),
            "own": (WIDTH, WIDTH),
            "out": (2 * WIDTH, V),
        }
        self.w = {
            name: torch.randn(s, generator=random, dtype=torch.float64)
            for name, s in shapes.items()
        }

    def begin(self, source: Tensor, mask: Tensor) -> Mapping[str, Tensor]:
        hidden = torch.zeros(len(source), WIDTH, dtype=torch.float64)
        return {"hidden": hidden, "source": self.w["source"][source], "mask": mask}

    def step(self, tokens: Tensor, state: Mapping[str, Tensor]) -> Step:
        self.steps += 1
        hidden = torch.tanh(state["hidden"] @ self.w["own"] + self.w["target"][tokens])
        scores = (state["source"] @ hidden[..., None])[..., 0].masked_fill(
            ~state["mask"], -torch.inf
        )
        read = (scores.softmax(-1)[:, None] @ state["source"])[:, 0]
        key = torch.cat((hidden, read), 1)
        logits = self.sharpness * key @ self.w["out"]
        return Step(
            tokens, logits.log_softmax(-1), logits.logsumexp(-1), key, {**state, "hidden": hidden}
        )

    def next_token(self, source: list[int]) -> Next:
        """Reads one source, without padding, and a whole prefix anew."""

        @cache
        def log_p(target: tuple[int, ...]) -> np.ndarray:
            tokens = torch.tensor([source])
            state = self.begin(tokens, torch.ones_like(tokens, dtype=torch.bool))
            for token in (self.start, *target):
                step = self.step(torch.tensor([token]), state)
                state = step.state
            return step.log_probs[0].numpy()

        return log_p


def padded(
    sources: list[list[int]], filler: int = 0, width: int | None = None
) -> tuple[Tensor, Tensor]:
    """Sources as one batch; what is masked holds `filler`."""
    width = width or max(map(len, sources))
    tokens = torch.full((len(sources), width), filler)
    for row, source in enumerate(sources):
        tokens[row, : len(source)] = torch.tensor(source)
    lengths = torch.tensor([len(source) for source in sources])
    return tokens, torch.arange(width) < lengths[:, None]
