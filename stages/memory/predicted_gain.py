"""Selection of the contexts for which a memory is searched: those with the largest predicted gain.

Before a search, a small network predicts the gain of the memory in nats. It is fitted by least
squares on the tuning split, so it predicts the mean gain of similar contexts. Below a threshold
there is no search, and the distribution of the model is used.

Source: He, Neubig and Berg-Kirkpatrick 2021 (Efficient Nearest Neighbor Language Models,
arXiv:2109.04212), adaptive retrieval. They skip contexts with a small predicted λ; the predicted
gain orders contexts better (docs/results/effects.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stages.memory.small_network import SmallNetwork, fit_network


@dataclass(frozen=True)
class PredictedGain:
    """A network that predicts gains in nats, and for each share of searched contexts its threshold
    of the gain.
    """

    network: SmallNetwork
    shares: Sequence[float]
    thresholds: Sequence[float]

    @classmethod
    def fit(
        cls, contexts: Float[Tensor, "n f"], gains: Float[Tensor, " n"], shares: Sequence[float]
    ) -> Self:
        """Fit a network to gains, and set the threshold of each share on the same contexts."""
        network = fit_gain(contexts, gains)
        return cls(network, shares, thresholds(network.outputs(contexts), shares))

    @property
    def record(self) -> dict[str, Any]:
        return {
            "network": self.network.record,
            "shares": self.shares,
            "thresholds": self.thresholds,
        }

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        network = SmallNetwork.of_record(record["network"])
        return cls(network, record["shares"], record["thresholds"])

    def worth(self, contexts: Float[Tensor, "n f"]) -> Bool[Tensor, " n"]:
        """Whether each context is searched for, at the last of the shares; on the CPU."""
        return self.network.outputs(contexts) >= self.thresholds[-1]

    def sums(
        self, contexts: Float[Tensor, "n f"], log_p: Float[Tensor, " n"], alone: Float[Tensor, " n"]
    ) -> Float[Tensor, "shares 2"]:
        """For each share, the number of contexts searched for, and the total loss in nats if only
        these are.

        Args:
            log_p, alone: log p of the targets, with the memory, and by the model alone.
        """
        device = log_p.device
        predicted = self.network.outputs(contexts).to(device)
        thresholds = torch.tensor(self.thresholds, dtype=torch.float64, device=device)

        is_searched = predicted[:, None] >= thresholds  # [n, shares]
        log_p_of_share = torch.where(is_searched, log_p[:, None], alone[:, None])
        losses = -log_p_of_share.sum(0, dtype=torch.float64)
        return torch.stack((is_searched.sum(0), losses), -1)


def fit_gain(
    contexts: Float[Tensor, "n f"], gains: Float[Tensor, " n"], seed: int = 0
) -> SmallNetwork:
    """Fit a network that predicts gains, in nats, from features that are known before a search."""

    def loss(rows: Tensor, outputs: Tensor) -> Tensor:
        return (outputs - gains[rows]).square().mean()

    network = SmallNetwork.constant(contexts, float(gains.mean()), seed)
    return fit_network(network, contexts, loss, seed)


def thresholds(predicted: Float[Tensor, " n"], shares: Sequence[float]) -> list[float]:
    """Threshold for each share, in (0, 1): that fraction of the n outputs is at or above it.

    >>> import torch
    >>> thresholds(torch.tensor([0.125, 0.5, 0.25, 0.375]), [0.25, 0.5])
    [0.5, 0.375]
    """
    falling = predicted.double().sort(descending=True).values
    result = list[float]()
    for share in shares:
        # At least one context is searched for, however small a share is.
        number = max(1, round(share * len(falling)))
        result.append(float(falling[number - 1]))
    return result
