"""A language model small enough to know by heart: it represents a context by what it saw."""

from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from stages.examples import Way
from stages.examples.cutting import Cutting, WindowSettings
from stages.examples.examples import Batch


@dataclass
class FakeEncoding:
    hidden: Tensor
    ffn_input: Tensor
    state: dict[str, Tensor] | None = None

    def key(self, name: str) -> Tensor:
        return {"hidden": self.hidden, "ffn-input": self.ffn_input}[name]


def config(way: Way) -> SimpleNamespace:
    """Settings of a model that wants ranges to be cut in this way."""

    def cutting(windows: WindowSettings, by_document: bool = False) -> Cutting:
        return Cutting(way, windows.context, windows.stride, by_document)

    return SimpleNamespace(carries_state=way == "stream", pools=False, cutting=cutting)


class FakeModel(nn.Module):
    """hidden = (last input, inputs seen, their sum); ffn_input = -hidden; scores = hidden W."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.config = config("windows")
        self.calls: list[tuple[int, int]] = []
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(3, vocabulary, generator=generator) / 10)

    def read(self, batch: Batch, state: dict[str, Tensor] | None = None) -> FakeEncoding:
        tokens = batch.inputs
        self.calls.append((tokens.shape[0], tokens.shape[1]))
        seen = torch.arange(1, tokens.shape[1] + 1).expand_as(tokens)
        hidden = torch.stack((tokens, seen, tokens.cumsum(1)), dim=-1).float()
        return FakeEncoding(hidden, -hidden)

    def log_probs(self, hidden: Tensor) -> Tensor:
        return (hidden @ self.weight).log_softmax(-1)

    def log_prob(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        scores = hidden @ self.weight
        log_z = scores.logsumexp(-1)
        return scores.gather(1, targets[:, None])[:, 0] - log_z, log_z


class AddingModel(FakeModel):
    """hidden = the sum of all inputs so far, divided by 3, 7 and 10: in float32 it depends on how a
    stream is cut.
    """

    def __init__(self, vocabulary: int) -> None:
        super().__init__(vocabulary)
        self.config = config("stream")

    def read(self, batch: Batch, state: dict[str, Tensor] | None = None) -> FakeEncoding:
        tokens = batch.inputs
        self.calls.append((tokens.shape[0], tokens.shape[1]))
        inside = (tokens[..., None] / torch.tensor([3.0, 7.0, 10.0])).cumsum(1)
        hidden = inside if state is None else state["sum"] + inside
        return FakeEncoding(hidden, -hidden, {"sum": hidden[:, -1:]})
