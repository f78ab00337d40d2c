"""TRIME: the authors' three training losses, value and gradients, against memlm's methods.

Both sides read the same encodings of one memlm model, and their adaptive softmax (fairseq's, in the
same repository) is given memlm's weights as functions of memlm's parameters, so that one list of
gradients speaks of all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from stages.methods import METHODS
from stages.methods.method import Batch, Carried
from stages.methods.trime import ExtBatch, LongBatch, MemoryBatch
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.language_model import LanguageModel
from tests.peers.agreement import Agreement, difference, gradients
from tests.peers.sources import Peer, importable, load, stand_in

PEER = Peer(
    name="TRIME",
    address="princeton-nlp/TRIME",
    commit="3350ca9df9c423ee738ecc112787eae87b574300",
    made_equal="memlm's loss is the mean a token, theirs the sum; no target is 0, their padding; with tied weights "
    "memlm's projection of the first cluster, which their softmax has not, is the identity; whether local memory is "
    "dropped is set, not drawn",
    patched="fairseq's own imports are stood in for",
)

V, WIDTH, CUTOFFS, FACTOR = 13, 16, (5, 9), 2
NO_PADDING = -100
SOFTMAXES = ("full", "adaptive", "adaptive, tied")
TARGETS = ("random", "no positives", "all equal")
CHAINS = 2


@dataclass(frozen=True)
class Case:
    """A batch of B segments of L tokens, and what its targets are."""

    rows: int
    length: int
    targets: str = "random"
    softmax: str = "full"
    sharpness: float = 1.0
    """What layer norms, and with them keys and scores, are multiplied by."""
    seed: int = 0

    def batch(self) -> Batch:
        made = torch.Generator().manual_seed(self.seed)
        shape = self.rows, self.length
        inputs = torch.randint(0, V, shape, generator=made)
        match self.targets:
            case "no positives":
                targets = torch.randperm(V - 1, generator=made)[: inputs.numel()].view(shape) + 1
            case "all equal":
                targets = torch.full(shape, 7)
            case _:
                targets = torch.randint(1, V, shape, generator=made)
        return Batch(
            inputs=inputs, targets=targets, places=np.arange(inputs.numel()).reshape(shape)
        )


SMALL = [Case(4, 3, targets, softmax) for targets, softmax in product(TARGETS, SOFTMAXES)]
CASES = [
    *SMALL,
    *(Case(4, 9, softmax=softmax, seed=seed) for softmax, seed in product(SOFTMAXES, (1, 2))),
    Case(2, 1),
    Case(2, 1, "all equal"),
    Case(4, 9, sharpness=20.0),
]


def comparisons(source: Path) -> Iterator[Agreement]:
    theirs = Theirs(source)
    for name, memory, against in (
        ("trime", "local memory", {}),
        ("trime-long", f"long memory, {CHAINS} chains", {}),
        ("trime-ext", "external and local memory", {"local": True}),
        ("trime-ext", "external memory alone", {"local": False}),
    ):
        apart = [_compare(theirs, name, case, **against) for case in CASES]
        sizes = f"{len(CASES)} batches of 2-36 tokens, V {V}, float64"
        for number, what in enumerate(("loss", "gradients")):
            yield Agreement(f"{what}, {memory}", sizes, max(one[number] for one in apart))


def _compare(theirs: "Theirs", name: str, case: Case, **settings: Any) -> tuple[float, float]:
    """How far apart the losses and the gradients of all parameters are."""
    model = _model(case)
    batch = case.batch()
    ours = _loss(model, name, batch, **settings)
    other = theirs.loss(model, name, batch, **settings)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    apart = difference(gradients(ours, weights), gradients(other, weights))
    return difference([ours], [other]), apart


def _model(case: Case) -> LanguageModel:
    torch.manual_seed(case.seed)
    sizes = {
        "vocab_size": V,
        "width": WIDTH,
        "layers": 1,
        "heads": 2,
        "ffn_width": 8,
        "max_positions": 16,
    }
    cutoffs = {} if case.softmax == "full" else {"cutoffs": CUTOFFS, "factor": FACTOR}
    tied = case.softmax == "adaptive, tied"
    model = LanguageModel(TransformerConfig(**sizes, **cutoffs, dropout=0.0, tied=tied)).double()
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, nn.LayerNorm):
                part.weight.mul_(case.sharpness)
        if tied:
            model.vocabulary.projections[0].copy_(torch.eye(WIDTH)).requires_grad_(False)
    return model


def _loss(model: LanguageModel, name: str, batch: Batch, local: bool = True) -> Tensor:
    """memlm's, after its warm-up."""
    settings = METHODS.settings(name)()
    rows, length = batch.targets.shape
    match name:
        case "trime":
            batch = MemoryBatch.of(batch, plain=False)
        case "trime-ext":
            batch = ExtBatch.of(batch, plain=False, local=torch.full((rows,), local))
        case "trime-long":
            settings = settings.model_copy(update={"consecutive": rows // CHAINS})
            batch = LongBatch.of(batch, plain=False, back=torch.full((rows, length), 10**6))
    loss = METHODS.load(name)(settings).loss(model, batch, Carried()).mean
    return loss


class Theirs:
    """The authors' losses of a batch that a memlm model reads."""

    def __init__(self, source: Path) -> None:
        fairseq = source / "fairseq"
        base = stand_in(
            "fairseq",
            metrics=None,
            utils=SimpleNamespace(strip_pad=lambda ids, pad: ids[ids != pad]),
        )
        with importable({"fairseq": base}):
            criterion = load(
                fairseq / "criterions" / "fairseq_criterion.py", "fairseq_criterion"
            ).FairseqCriterion
            criteria = stand_in(
                "fairseq.criterions",
                FairseqCriterion=criterion,
                register_criterion=lambda name: lambda kind: kind,
            )
            with importable({"fairseq.criterions": criteria}):
                modules = {
                    name: load(fairseq / "criterions" / f"{name}_loss.py", name)
                    for name in self.KINDS
                }
        self.kinds = {name: getattr(modules[name], kind) for name, kind in self.KINDS.items()}
        self.softmax = load(
            fairseq / "modules" / "adaptive_softmax.py", "adaptive_softmax"
        ).AdaptiveSoftmax
        self.embedding = load(
            fairseq / "modules" / "adaptive_input.py", "adaptive_input"
        ).AdaptiveInput

    KINDS = {"trime": "TrimeLoss", "trime_ext": "TrimeExtLoss", "trime_long": "TrimeLongLoss"}  # noqa: RUF012

    def loss(self, model: LanguageModel, name: str, batch: Batch, local: bool = True) -> Tensor:
        """The mean a token; theirs is the sum."""
        encoding = model.encode(batch.inputs)
        assert encoding.ffn_input is not None
        settings = SimpleNamespace(
            dist=None,
            temp=None,
            ddp_backend="no_c10d",
            sentence_avg=False,
            knn_keytype="g",
            cross_sent_ratio=0.0 if local else 1.0,
            max_tokens=batch.targets.numel() // CHAINS,
            num_comb_shards=1,
            distributed_world_size=CHAINS,
        )
        criterion = self.kinds[name.replace("-", "_")](
            settings, SimpleNamespace(target_dictionary=None)
        )
        read = _Read(
            self._softmax_of(model), encoding.hidden, {"g": encoding.ffn_input.transpose(0, 1)}
        )
        total, tokens, _ = criterion(read, {"net_input": {}, "target": batch.targets})
        return total.squeeze() / tokens

    def _softmax_of(self, model: LanguageModel) -> Any:
        """Their adaptive softmax with memlm's weights."""
        vocabulary, config = model.vocabulary, model.config
        if not config.cutoffs:
            softmax, weights = self.softmax(V, WIDTH, [V], 0.0), {"head.weight": vocabulary.output}
        elif config.tied:
            softmax, weights = self._tied(), _tied_weights(vocabulary)
        else:
            softmax, weights = (
                self.softmax(V, WIDTH, list(CUTOFFS), 0.0, FACTOR),
                _untied_weights(vocabulary),
            )
        softmax = softmax.double()
        return lambda *given, **named: functional_call(
            softmax, weights, given, named, tie_weights=False
        )

    def _tied(self) -> nn.Module:
        embedding = self.embedding(V, 0, WIDTH, FACTOR, WIDTH, list(CUTOFFS))
        softmax: nn.Module = self.softmax(
            V, WIDTH, list(CUTOFFS), 0.0, FACTOR, embedding, tie_proj=True
        )
        return softmax


@dataclass
class _Read:
    """What their criteria ask of a model: hidden states [B, L, d], keys [L, B, d] by name, a
    softmax.
    """

    adaptive_softmax: Any
    hidden: Tensor
    keys: dict[str, Tensor]

    @property
    def decoder(self) -> "_Read":
        return self

    def __call__(self) -> tuple[Tensor, dict[str, Tensor]]:
        return self.hidden, self.keys

    def get_targets(self, sample: dict[str, Any], output: object) -> Tensor:
        targets: Tensor = sample["target"]
        return targets


def _untied_weights(vocabulary: Any) -> dict[str, Tensor]:
    weights = {"head.weight": torch.cat((vocabulary.outputs[0], vocabulary.clusters))}
    for number, projection in enumerate(vocabulary.tail_projections):
        weights[f"tail.{number}.0.weight"] = projection.T
        weights[f"tail.{number}.2.weight"] = vocabulary.outputs[number + 1]
    return weights


def _tied_weights(vocabulary: Any) -> dict[str, Tensor]:
    weights = {
        "head.word_proj.weight": vocabulary.embeddings[0],
        "head.class_proj.weight": vocabulary.clusters,
    }
    for number, projection in enumerate(list(vocabulary.projections)[1:]):
        weights[f"tail.{number}.0.weight"] = projection
        weights[f"tail.{number}.2.weight"] = vocabulary.embeddings[number + 1]
    return weights
