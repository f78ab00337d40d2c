"""Memory Decoder: the authors' loss and interpolation on memlm's scores and labels."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.examples.examples import Batch
from stages.memory.readers.reader import interpolate
from stages.methods.distilled import MemoryDecoder
from stages.methods.method import BatchIndex, Carried
from stages.methods.neighbor_labels import NeighborLabels, RankedNeighbors, neighbor_labels
from stages.methods.settings import MemoryDecoderConfig
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.language_model import LanguageModel
from tests.peers.agreement import Agreement, difference, gradients
from tests.peers.sources import Peer, importable, load, stand_in

PEER = Peer(
    name="MemoryDecoder",
    address="LUMIA-Group/MemoryDecoder",
    commit="1aad746",
    made_equal="the same scores and the same distributions of neighbours, memlm's in float32; a token more stands "
    "before the labels, which their loss shifts by one",
    patched="loguru and tqdm are not loaded: nothing is logged",
)

VOCABULARY, WIDTH, LENGTH, ROWS, NEIGHBORS = 40, 12, 9, 3, 20
ROUNDED = 1e-6
"""Distributions of neighbours are stored as float32."""


class Segments:
    """Random segments, as a method asks for them."""

    def batch(self, which: np.ndarray) -> Batch:
        tokens = torch.randint(VOCABULARY, (ROWS, LENGTH + 1))
        places = np.arange(ROWS * LENGTH).reshape(ROWS, LENGTH)
        return Batch(inputs=tokens[:, :-1], targets=tokens[:, 1:], places=places)


def comparisons(source: Path) -> Iterator[Agreement]:
    with importable(
        {"loguru": stand_in("loguru", logger=_Silent()), "tqdm": stand_in("tqdm", tqdm=iter)}
    ):
        theirs = load(source / "utils/cal_loss.py", "cal_loss")
    for alpha in (0.3, 0.5, 1.0):
        for cutoffs in ((), (10, 25)):
            sizes = f"{ROWS} x {LENGTH} positions, {NEIGHBORS} neighbours, α {alpha}, clusters {len(cutoffs)}"
            for compared, result in _compare_losses(theirs, alpha, cutoffs).items():
                yield Agreement(compared, sizes, result, ROUNDED)
    first, second = torch.randn(2, 50, dtype=torch.float64).log_softmax(-1)
    for weight in (0.25, 0.55):
        mixed = theirs.interpolate(second, first, weight)
        apart = difference([interpolate(first, second, weight)], [mixed])
        yield Agreement("mixture of two models", f"50 tokens, λ {weight}", apart)


def _compare_losses(theirs: ModuleType, alpha: float, cutoffs: tuple[int, ...]) -> dict[str, float]:
    """Largest difference of the loss, and of its gradients."""
    torch.manual_seed(len(cutoffs))
    sizes = {"vocab_size": VOCABULARY, "width": WIDTH, "heads": 2, "layers": 1, "dropout": 0.0}
    config = TransformerConfig(**sizes, max_positions=LENGTH, cutoffs=cutoffs, factor=2)  # type: ignore[arg-type]
    model = LanguageModel(config).double()
    labels = _labels()
    method = MemoryDecoder(MemoryDecoderConfig(alpha=alpha), {"soft-labels": labels})
    batch = method.batch(Segments(), np.arange(ROWS), BatchIndex(0, 0, 1, 0))  # type: ignore[arg-type]

    own = method.loss(model, batch, Carried()).mean
    scores = model.vocabulary.log_probs(model.read(batch).hidden.flatten(0, 1))
    logits = scores.unflatten(0, (ROWS, LENGTH))
    # Their loss drops the last scores and the first label of each row.
    shifted = {
        "logits": torch.cat((logits, logits[:, :1]), 1),
        "batch": {"labels": torch.cat((batch.targets[:, :1], batch.targets), 1)},
    }
    other, _, _ = theirs.kl_loss_token(
        **shifted,
        tokenizer=None,
        args=None,
        knn_label=batch.targets.flatten(),
        knn_prob=_dense(labels),
        alpha=alpha,
    )
    learnt = list(model.parameters())
    return {
        "loss": difference([own], [other]),
        "gradients": difference(gradients(own, learnt), gradients(other, learnt)),
    }


def _labels() -> NeighborLabels:
    random = np.random.default_rng(0)
    tokens = random.integers(0, VOCABULARY, (ROWS * LENGTH, NEIGHBORS))
    scores = -np.sort(random.random(tokens.shape), axis=1)
    return neighbor_labels(RankedNeighbors(tokens, scores), 0.3)


def _dense(labels: NeighborLabels) -> Tensor:
    """Labels as distributions over the vocabulary, [N, V]."""
    dense = np.zeros((len(labels.tokens), VOCABULARY))
    rows = np.arange(len(dense))[:, None]
    np.add.at(dense, (rows, labels.tokens), labels.shares)
    return torch.from_numpy(dense)


class _Silent:
    """Stands for their logger."""

    def info(self, *words: Any) -> None:
        """Say nothing."""
