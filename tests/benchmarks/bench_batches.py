"""How many segments drawn at random a batch of each kind is worth to the plain loss, and how many
documents it reads.

    python -m tests.benchmarks.bench_batches MODEL [BATCHES…] [--batches 60 --segments 16 \\
        --segment-length 256]

Of every kind so many batches are drawn, and the gradient of the plain loss of each is taken,
without dropout and without change of weights. The mean of n independent segments varies by 1/n of
what one does, so a batch of n is worth n · (variance of random batches) / (variance of its kind).
`BATCHES`: of `pack-batches`, of the model's tokens.
"""

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.examples.cutting import Cutting
from stages.examples.examples import Corpus, Examples
from stages.methods import METHODS
from stages.methods.config import TRAIN
from stages.methods.method import Method
from stages.models.language_model import LanguageModel
from stages.models.weights import load_model


def kinds(segments: int, packings: dict[str, np.ndarray]) -> Iterator[tuple[str, Method]]:
    """Methods that draw batches of so many segments, each with a name."""
    yield "random", _method("lm")
    for together in (segments, segments // 4, segments // 8):
        yield f"runs of {together}", _method("trime-long", consecutive=together)
        for name, packing in packings.items():
            groups = segments // together
            yield f"{name} in groups of {together}", _method("trime-ext", packing, groups=groups)


def _method(name: str, packing: np.ndarray | None = None, **settings: int) -> Method:
    return METHODS.load(name)(METHODS.settings(name)(**settings), {"batches": packing})


def variance(model: LanguageModel, split: Examples, batches: np.ndarray) -> float:
    """Of the gradient of the plain loss around its mean over batches, summed over all weights."""
    total, squares = 0.0, 0.0
    for segments in batches:
        batch = split.batch(segments)
        hidden = model.read(batch).hidden
        loss = model.loss(hidden.flatten(0, 1), batch.targets.flatten())
        gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        gradient = torch.cat([part.flatten().double() for part in gradients if part is not None])
        total, squares = total + gradient, squares + float(gradient @ gradient)
    count = len(batches)
    return (squares - float(total @ total) / count) / (count - 1)


def measure(store: Store, arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    artifact = store.get(arguments.model, "model")
    tokens = artifact.input("tokens")
    model = load_model(artifact.path, "cpu").eval()
    split = _segments(tokens, arguments.segment_length)
    packings = {}
    for reference in arguments.packings:
        batches = store.get(reference, "batches")
        name = (
            "packed across documents" if batches.config.get("exclude") == "document" else "packed"
        )
        packings[name] = np.asarray(batches.zarr("batches.zarr")["order"][:])
    of_random = math.nan
    for name, method in kinds(arguments.segments, packings):
        epochs = (
            method.order(split.count, arguments.segments, arguments.seed, epoch)
            for epoch in range(10**9)
        )
        drawn: list[np.ndarray] = []
        while len(drawn) < arguments.batches:
            drawn += list(next(epochs))
        batches = np.random.default_rng(arguments.seed).permutation(np.stack(drawn))[
            : arguments.batches
        ]
        found = variance(model, split, batches)
        of_random = found if math.isnan(of_random) else of_random
        yield {
            "batches": name,
            "documents": round(
                float(np.mean([len(split.documents_in(batch)) for batch in batches])), 1
            ),
            "worth_of_random_segments": round(arguments.segments * of_random / found, 1),
        }


def _segments(tokens: Artifact, length: int) -> Examples:
    arrays = tokens.zarr("tokens.zarr")
    held = {name: np.asarray(arrays[name][:]) for name in (f"{TRAIN}/ids", f"{TRAIN}/doc_offsets")}
    return Corpus.of(tokens, held).examples(TRAIN, Cutting("windows", length, length))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("packings", nargs="*", metavar="BATCHES")
    parser.add_argument("--store", type=Path, default=Path("memlm-store"))
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--segments", type=int, default=16)
    parser.add_argument("--segment-length", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for row in measure(Store(arguments.store), arguments):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
