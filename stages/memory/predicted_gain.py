"""Which contexts a memory is searched for: those where it is expected to gain most.

A small network predicts, from what is known before a search, how many nats the memory will gain; its squares of errors
are made small on the tuning split, so it predicts the mean gain of contexts like this one. Searches below a threshold
are left out, and the model's distribution stands as it was there.

Source: He, Neubig and Berg-Kirkpatrick 2021 (Efficient Nearest Neighbor Language Models, arXiv:2109.04212), adaptive
retrieval. They leave out where a predicted λ is small; the gain itself orders contexts better
(docs/results/effects.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stages.memory.small_network import SmallNetwork, fitted


@dataclass(frozen=True)
class PredictedGain:
    """A network that predicts gains, nats, and the gain at which searches begin for each share of the contexts."""

    network: SmallNetwork
    shares: Sequence[float]
    thresholds: Sequence[float]

    @classmethod
    def fitted(cls, contexts: Float[Tensor, "n f"], gains: Float[Tensor, " n"], shares: Sequence[float]) -> Self:
        network = fit_gain(contexts, gains)
        return cls(network, shares, thresholds(network.outputs(contexts), shares))

    @property
    def record(self) -> dict[str, Any]:
        return {"network": self.network.record, "shares": self.shares, "thresholds": self.thresholds}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        return cls(SmallNetwork.of_record(record["network"]), record["shares"], record["thresholds"])

    def worth(self, contexts: Float[Tensor, "n f"]) -> Bool[Tensor, " n"]:
        """Whether a search for each context is worth it, where the last share is, on the CPU."""
        return self.network.outputs(contexts) >= self.thresholds[-1]

    def sums(
        self, contexts: Float[Tensor, "n f"], log_p: Float[Tensor, " n"], alone: Float[Tensor, " n"]
    ) -> Float[Tensor, "shares 2"]:
        """For each share, the contexts that are searched for, and the nats of all where these alone are.

        Args:
            log_p, alone: of the targets, with the memory read and of the model alone.
        """
        predicted = self.network.outputs(contexts)[:, None].to(log_p.device)
        above = predicted >= torch.tensor(self.thresholds, dtype=torch.float64, device=log_p.device)
        read = torch.where(above, log_p[:, None], alone[:, None])
        return torch.stack((above.sum(0), -read.sum(0, dtype=torch.float64)), -1)


def fit_gain(contexts: Float[Tensor, "n f"], gains: Float[Tensor, " n"], seed: int = 0) -> SmallNetwork:
    """A network that predicts gains, in nats, from what is known before a search."""

    def loss(rows: Tensor, outputs: Tensor) -> Tensor:
        return (outputs - gains[rows]).square().mean()

    return fitted(SmallNetwork.constant(contexts, float(gains.mean()), seed), contexts, loss, seed)


def thresholds(predicted: Float[Tensor, " n"], shares: Sequence[float]) -> list[float]:
    """For each share of n contexts, above 0 and below 1, the output that as many are at or above.

    >>> import torch
    >>> thresholds(torch.tensor([0.125, 0.5, 0.25, 0.375]), [0.25, 0.5])
    [0.5, 0.375]
    """
    falling = predicted.double().sort(descending=True).values
    # One context at least is searched for, however small a share is.
    return [float(falling[max(1, round(share * len(falling))) - 1]) for share in shares]
