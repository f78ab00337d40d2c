"""Dynamic evaluation: the authors' script, run whole over a memlm LSTM, against memlm's learner."""

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from stages.adaptation.decay_to_prior import DecayToPrior
from stages.adaptation.gradient_statistics import ROWS, measure_gradients
from stages.adaptation.learner import Learner
from stages.adaptation.settings import Dynamic, Numbers
from stages.encoding.encode import SplitReader
from stages.examples.cutting import WindowSettings
from stages.examples.examples import Corpus
from stages.models.backbones.stream_configs import LSTMConfig
from stages.models.language_model import LanguageModel
from tests.peers.agreement import Agreement, difference
from tests.peers.sources import Peer, importable, load, stand_in

PEER = Peer(
    name="dynamic-evaluation",
    address="benkrause/dynamic-evaluation",
    commit="8f872c5",
    made_equal="ε is their constant, 2e-5, which memlm gives in units of mean(M); streams and segments "
    "are whole; the first input, which memlm has before a text, is their first token",
    patched="Variable is a detached tensor; a loss has one dimension; torch.load gives the memlm model",
)

V, WIDTH, LAYERS = 23, 12, 2
SEGMENT, TRAINED, SCORED = 5, 8, 200
"""Tokens of a segment, and segments of each training stream and of the scored text."""
EPSILON = 2e-5
FLOAT32 = 1e-7
"""Tolerance: their shares of the way back are float32."""
FIRST = 0
"""The token before each text."""


class Case(NamedTuple):
    rate: float
    decay: float
    seed: int


CASES = (Case(5e-5, 0.002, 0), Case(3e-4, 0.02, 1), Case(1e-3, 0.3, 2), Case(0.0, 0.1, 3))


def comparisons(source: Path) -> Iterator[Agreement]:
    for case in CASES:
        random = torch.Generator().manual_seed(case.seed)
        train = torch.randint(V, (ROWS * TRAINED * SEGMENT,), generator=random)
        test = torch.randint(V, (SCORED * SEGMENT,), generator=random)
        ours = _ours(_model(case.seed), train, test, case)
        theirs = _theirs(source, _model(case.seed), train, test, case)
        sizes = f"{SCORED} segments of {SEGMENT} tokens, η {case.rate}, γ {case.decay}, float64"
        compared = "loss of each segment" if case.rate else "loss of each segment, plain"
        yield Agreement(compared, sizes, difference([ours], [theirs]), FLOAT32)


def _model(seed: int) -> LanguageModel:
    torch.manual_seed(seed)
    config = LSTMConfig(vocab_size=V, width=WIDTH, layers=LAYERS, dropout=0.0, initial_range=0.5)
    return LanguageModel(config).double().eval()


def _ours(model: LanguageModel, train: Tensor, test: Tensor, case: Case) -> Tensor:
    """Mean loss of each segment, float64 [SCORED]."""
    arrays: dict[str, Any] = {}
    for split, ids in (("train", train), ("test", test)):
        arrays[f"{split}/ids"] = ids.numpy()
        arrays[f"{split}/doc_offsets"] = np.array([0, len(ids)])
    windows = WindowSettings(SEGMENT, SEGMENT)
    reader = SplitReader(Corpus(arrays, FIRST), windows, False, torch.device("cpu"), "fp32")
    rms = measure_gradients(model, reader, SEGMENT).rms

    mean = sum(float(one.mean()) for one in rms.values()) / len(rms)
    numbers = {"rate": (case.rate,), "decay": (case.decay,)}
    settings = Dynamic(**numbers, segment=SEGMENT, epsilon=EPSILON / mean)
    rule = DecayToPrior(model, settings, rms)
    learner = Learner(rule, settings, Numbers(rate=case.rate, decay=case.decay))
    losses = []
    for block in learner.encode(reader, "test", 0, len(test), None, None):
        log_p, _ = model.log_prob(block.hidden, block.targets)
        losses.append(-log_p.mean())
    return torch.stack(losses).detach()


def _theirs(source: Path, model: LanguageModel, train: Tensor, test: Tensor, case: Case) -> Tensor:
    """The same of their script."""
    # They cut the text into streams, each of which needs the token before it.
    streams = train.view(ROWS, -1)
    before = torch.cat((torch.tensor([FIRST]), streams[:-1, -1]))
    texts = {
        "train": torch.cat((before[:, None], streams), 1).flatten(),
        "valid": test,
        "test": torch.cat((torch.tensor([FIRST]), test)),
    }
    corpus = stand_in("corpus", **texts, dictionary=range(V))
    options = {"lr": case.rate, "lamb": case.decay, "epsilon": EPSILON, "bptt": SEGMENT, "gpu": -1}
    options["model"] = __file__  # they open it, and torch.load gives the model
    arguments = [f"--{name}={value}" for name, value in options.items()]
    losses: list[Tensor] = []
    with (
        importable({"data": stand_in("data", Corpus=lambda path: corpus)}),
        patch.object(sys, "argv", ["dynamiceval.py", *arguments]),
        patch.object(torch, "load", lambda file: _Read(model)),
        patch.object(torch.autograd, "Variable", _Variable()),
        patch.object(nn, "CrossEntropyLoss", lambda: _Criterion(losses)),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        load(source / "dynamiceval.py", "dynamiceval")
    return torch.cat(losses[-SCORED:])


class _Variable:
    """What they call a Variable is a tensor today."""

    def __call__(self, tensor: Tensor, volatile: bool = False) -> Tensor:
        return tensor.detach()

    def __eq__(self, other: object) -> bool:
        return other is Tensor

    __hash__ = None  # type: ignore[assignment]


class _Criterion:
    """A mean loss [1], of which a copy is kept."""

    def __init__(self, kept: list[Tensor]) -> None:
        self._kept = kept

    def __call__(self, scores: Tensor, targets: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(scores, targets)[None]
        self._kept.append(loss.detach())
        return loss


class _Read:
    """What the script asks of a model: scores [L, B, V] of tokens [L, B], and what is carried."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._weights = model.vocabulary.output_weight
        self.parameters = model.parameters
        self.zero_grad = model.zero_grad
        self.eval = model.eval

    def init_hidden(self, rows: int) -> tuple[Tensor, Tensor]:
        nothing = torch.zeros(LAYERS, rows, WIDTH, dtype=torch.float64)
        return nothing, nothing

    def __call__(self, tokens: Tensor, carried: Any) -> tuple[Tensor, Any]:
        state = dict(zip("hc", carried, strict=True))
        encoding = self._model.encode(tokens.T, state)
        assert encoding.state is not None
        scores = encoding.hidden.transpose(0, 1) @ self._weights.T
        return scores, (encoding.state["h"], encoding.state["c"])
