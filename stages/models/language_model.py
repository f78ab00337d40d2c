"""A backbone between the input and the output side of a vocabulary."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stages.errors import UsageError
from stages.models import BACKBONES
from stages.models.config import ModelConfig, parse_model
from stages.models.layers.gate import Gate, Gated
from stages.models.vocabulary import make_vocabulary

State = tuple[Tensor, ...] | None
"""What a backbone carries from window to window: of an LSTM h and c, each [layers, B, d]; of a Transformer-XL cached
hidden states [layers, B, m, d] and the place in the segment under way, int64 [1]. None: nothing (yet)."""


@dataclass
class Encoding:
    """Representations of B windows of L inputs: row i of a window predicts its next token."""

    hidden: Tensor
    """f(c_t), [B, L, d]: what the softmax reads."""
    ffn_input: Tensor | None
    """g(c_t), [B, L, d]: input of the last feed-forward block, after its layer norm; None: there is no such block."""
    state: State = None
    """What the backbone carries to the next window of the same stream."""

    def key(self, name: str) -> Tensor:
        """The representation that memory is searched with: `hidden` or `ffn-input`.

        Raises: UsageError if the backbone does not have it.
        """
        key = {"hidden": self.hidden, "ffn-input": self.ffn_input}[name]
        if key is None:
            raise UsageError(f"The model has no key {name!r}; use --key hidden.")
        return key


class LanguageModel(nn.Module):
    """Tokens -> (f, g) -> distribution of the next token.

    The output side always computes in the weights' own precision (float32), with autocast off.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.vocabulary = make_vocabulary(config)
        self.backbone = BACKBONES.load(config.backbone)(config)
        self.gate = None if config.gate is None else Gate(config.width, config.gate)

    def encode(self, tokens: Tensor, state: State = None) -> Encoding:
        """Read tokens int64 [B, L], going on from `state` where the backbone carries one."""
        return Encoding(*self.backbone(self.vocabulary.embed(tokens), state))

    def gated(self, hidden: Tensor, neighbors: Tensor) -> Gated:
        """Hidden states [N, d] with the tokens of their neighbours let in, int64 [N, k], -1 where one is missing.

        Only of a model with a gate.
        """
        assert self.gate is not None, "the model has no gate"
        with self._exact(hidden):
            gated: Gated = self.gate(self._own(hidden), neighbors, self.vocabulary)
            return gated

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood in nats; hidden [N, d], targets int64 [N]."""
        with self._exact(hidden):
            return self.vocabulary.loss(self._own(hidden), targets)

    def joint_loss(self, hidden: Tensor, targets: Tensor, memory_target: Tensor, memory_total: Tensor) -> Tensor:
        """Mean negative log-likelihood in nats of one softmax over the vocabulary's scores and a memory's.

        Args:
            hidden, targets: as in `loss`.
            memory_target, memory_total: float [N], log of the sums of exp of the memory's scores over the
                cells that hold the target and over all; -inf where there are none.
        Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), equation 5.
        """
        with self._exact(hidden):
            memory = (self._own(memory_target), self._own(memory_total))
            return self.vocabulary.joint_loss(self._own(hidden), targets, *memory)

    def log_prob(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of each target and the log-normalizer, both [N], in nats.

        The normalizer is the logsumexp of the vocabulary's scores; with adaptive softmax, of the
        head cluster's. Not for training: no gradients.
        """
        with torch.no_grad(), self._exact(hidden):
            return self.vocabulary.log_prob(self._own(hidden), targets)

    def log_probs(self, hidden: Tensor) -> Tensor:
        """Log-probabilities [N, V] of every token, in nats. Not for training: no gradients."""
        with torch.no_grad(), self._exact(hidden):
            return self.vocabulary.log_probs(self._own(hidden))

    def state_bytes(self, context: int) -> int:
        """The most bytes that a stream of segments of `context` inputs carries as its state; 0: it carries none."""
        token = torch.zeros((1, 1), dtype=torch.int64, device=next(self.parameters()).device)
        with torch.no_grad():
            of_one = sum(part.nbytes for part in self.encode(token).state or ())
        carried = self.config.carried_positions
        return of_one if carried is None else of_one * (carried + context)

    def _exact(self, hidden: Tensor) -> torch.autocast:
        return torch.autocast(hidden.device.type, enabled=False)

    def _own(self, hidden: Tensor) -> Tensor:
        return hidden.to(next(self.parameters()).dtype)


def load_model(
    path: Path,
    device: str | torch.device,
    *,
    context: int | None = None,
    mem_length: int | None = None,
) -> LanguageModel:
    """The model of an artifact folder (`config.json` and weights), in evaluation mode.

    Args:
        context: inputs of a window or segment that it is to read; None: as in training, and so is what it carries.
        mem_length: positions that it is to carry from segment to segment, beside a context; None: as in training.
    """
    assert mem_length is None or context is not None, "a memory length stands beside a context"
    config = parse_model(json.loads((path / "config.json").read_text("utf-8"))["model"])
    if context is not None:
        config = config.reading(context, mem_length)
    with torch.device("meta"):
        model = LanguageModel(config)
    model.to_empty(device=device)
    model.load_state_dict(load_file(path / "model.safetensors", device=str(device)))
    return model.eval()


def save_weights(model: nn.Module, path: Path) -> None:
    """Write a model's parameters and buffers as safetensors; tied weights are there once."""
    save_file({name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}, path)


def start_from(model: nn.Module, path: Path) -> None:
    """Give a model the weights of a file; a gate that they lack stays as it is.

    Raises: RuntimeError if they are those of another architecture.
    """
    weights = load_file(path)
    own = {name: tensor for name, tensor in model.state_dict().items() if name.startswith("gate.")}
    model.load_state_dict(own | weights)
