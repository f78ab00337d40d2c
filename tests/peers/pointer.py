"""The neural cache: the loop of awd-lstm-lm's `pointer.py`, run whole over a memlm LSTM, against
memlm's cache.
"""

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from stages.memory.entries import target_log_sums
from stages.memory.readers.reader import Interpolate
from stages.memory.recent import Recent, recent_entries, recent_matches
from stages.models.backbones.stream_configs import LSTMConfig
from stages.models.language_model import LanguageModel
from tests.peers.agreement import Agreement, difference
from tests.peers.sources import Peer, importable, load, stand_in

PEER = Peer(
    name="awd-lstm-lm",
    address="salesforce/awd-lstm-lm",
    commit="1d466ec5875675ca6b6f0caacbb741240a29da9e",
    made_equal="the cache is read where they read it: not before more than a window is stored, nor at the first "
    "position of a later chunk, where memlm reads what there is; totals are compared, for their mean counts a token "
    "too many; memlm's scores are float32",
    patched="Tensor.cuda changes nothing; torch.load gives the memlm model; targets are a column",
)

V, WIDTH, TOKENS = 23, 12, 400
FLOAT32 = 1e-6


class Case(NamedTuple):
    """What the loop is told; chunks are the tokens that it reads at once."""

    window: int
    chunk: int
    theta: float
    lam: float
    seed: int


CASES = (
    Case(50, TOKENS, 0.66, 0.13, 0),
    Case(50, 70, 0.66, 0.13, 1),
    Case(50, 20, 3.0, 0.5, 2),
    Case(1, 30, 1.0, 0.3, 3),
    Case(150, 30, 0.5, 0.2, 4),
)


def comparisons(source: Path) -> Iterator[Agreement]:
    for case in CASES:
        stream = torch.randint(0, V, (TOKENS,), generator=torch.Generator().manual_seed(case.seed))
        model = _model(case.seed)
        apart = difference([_ours(model, stream, case)], [_theirs(source, model, stream, case)])
        sizes = f"{TOKENS - 1} tokens, window {case.window}, chunks of {case.chunk}, θ {case.theta}, λ {case.lam}"
        yield Agreement("total loss with the cache", sizes, apart, FLOAT32)


def _model(seed: int) -> LanguageModel:
    torch.manual_seed(seed)
    config = LSTMConfig(vocab_size=V, width=WIDTH, layers=1, dropout=0.0, initial_range=1.0)
    return LanguageModel(config).double().eval()


@torch.no_grad()
def _ours(model: LanguageModel, stream: Tensor, case: Case) -> Tensor:
    """Total -log p, where the cache is read by their rule."""
    inputs, targets = stream[None, :-1], stream[1:]
    hidden = model.encode(inputs).hidden[0]
    log_p, log_z = model.log_prob(hidden, targets)
    place = torch.arange(len(targets))
    at = Recent(hidden, targets, (place - case.window).clamp(min=0), "dot", case.window)
    memory = target_log_sums(
        recent_entries(at), recent_matches(at), [case.theta], [case.window]
    ).at(0, 0)
    stored = (place // case.chunk * case.chunk).clamp(max=case.window) + place % case.chunk
    with_cache = Interpolate().read(log_p, log_z, memory, case.lam)
    return -torch.where(stored > case.window, with_cache, log_p).sum()


def _theirs(source: Path, model: LanguageModel, stream: Tensor, case: Case) -> Tensor:
    """The same of their loop, which is given the stream as both of its splits."""
    corpus = stand_in("corpus", valid=stream, test=stream, dictionary=range(V))
    modules = {
        "data": stand_in("data", Corpus=lambda path: corpus),
        "model": stand_in("model"),
        "utils": _utils(source),
    }
    options = {
        "window": case.window,
        "bptt": case.chunk,
        "theta": case.theta,
        "lambdasm": case.lam,
        "save": os.devnull,
    }
    arguments = ["pointer.py", "--cuda", *(f"--{name}={value}" for name, value in options.items())]
    with (
        importable(modules),
        patch.object(sys, "argv", arguments),
        patch.object(torch, "load", lambda *args, **named: _Read(model)),
        patch.object(Tensor, "cuda", lambda tensor: tensor),
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
        torch.no_grad(),
    ):
        warnings.simplefilter("ignore")  # softmax over a dimension that is not named
        ran = load(source / "pointer.py", "pointer")
    return torch.as_tensor(ran.test_loss * len(stream))


def _utils(source: Path) -> ModuleType:
    utils = load(source / "utils.py", "utils")
    get_batch = utils.get_batch

    def columns(*args: Any, **named: Any) -> tuple[Tensor, Tensor]:
        data, targets = get_batch(*args, **named)
        return data, targets[:, None]

    utils.get_batch = columns
    return utils


class _Read:
    """What the loop asks of a model: scores [n, 1, V], what is carried, outputs of each layer, and
    one thing more.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model

    def eval(self) -> None:
        self.model.eval()

    def init_hidden(self, rows: int) -> None:
        return None

    def __call__(
        self, data: Tensor, state: Any, return_h: bool
    ) -> tuple[Tensor, Any, list[Tensor], None]:
        """Their loop detaches a tuple."""
        encoding = self.model.encode(
            data.T, None if state is None else dict(zip("hc", state, strict=True))
        )
        hidden = encoding.hidden.transpose(0, 1)
        return (
            self.model.log_probs(hidden[:, 0])[:, None],
            (encoding.state["h"], encoding.state["c"]),
            [hidden],
            None,
        )
