"""Where a copied word gains under an adaptive softmax: at the entry of its cluster, or among the cluster's words.

    python -m tests.benchmarks.bench_clusters NEIGHBORS XL… --gated SPALM… [--store STORE]

log p(w) = log p(entry of w's cluster) + log p(w | cluster); a word of the first cluster is its own entry. Of the
targets of test, by cluster, and whether one of the best k neighbours holds them (copied): both parts of the change from
a Transformer-XL to the SPALM of the same seed, in nats, mean over the pairs. Segments as in training, state carried.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.encoding.encode import encode
from stages.examples.corpus import Corpus
from stages.models.cross_entropy import linear_log_prob
from stages.models.language_model import LanguageModel, load_model
from stages.models.vocabulary import AdaptiveVocabulary
from stages.models.windows import WindowSettings
from stages.retrieval.neighbors import NeighborTokens

SPLIT = "test"


@torch.no_grad()
def two_parts(model: LanguageModel, tokens: Artifact, neighbors: np.ndarray, context: int) -> np.ndarray:
    """Log-probabilities of the entry and of the word within its cluster, float64 [T, 2], in nats."""
    examples = Corpus.of(tokens).examples(SPLIT, model.config.cutting(WindowSettings(context, context)))
    vocabulary = model.vocabulary
    assert isinstance(vocabulary, AdaptiveVocabulary), "there are no clusters in a full softmax"
    blocks = []
    for block in encode(model, examples.blocks(0, int(examples.documents[-1]))):
        near = torch.from_numpy(neighbors[block.start : block.stop])
        hidden = block.hidden if model.gate is None else model.gated(block.hidden, near).hidden
        head, *_ = vocabulary._parts(hidden, block.targets)
        entry, _ = linear_log_prob(head.hidden, head.weight, head.targets)
        whole, _ = model.log_prob(hidden, block.targets)
        blocks.append(torch.stack((entry, whole - entry), 1).double().numpy())
    return np.concatenate(blocks)


def measure(store: Store, arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    found = store.get(arguments.neighbors, "neighbors")
    pairs = [[store.get(name, "model") for name in pair] for pair in zip(arguments.xl, arguments.gated, strict=True)]
    tokens = pairs[0][0].input("tokens")
    targets = np.asarray(tokens.zarr("tokens.zarr")[f"{SPLIT}/ids"][:]).astype(np.int64)
    neighbors = NeighborTokens.of(found, arguments.k).read(SPLIT, 0, len(targets))
    models = [[load_model(artifact.path, "cpu") for artifact in pair] for pair in pairs]
    parts = np.stack([[two_parts(one, tokens, neighbors, arguments.context) for one in pair] for pair in models])
    copied = (neighbors == targets[:, None]).any(1)
    vocabulary = models[0][0].vocabulary
    assert isinstance(vocabulary, AdaptiveVocabulary)
    clusters = vocabulary._cluster(vocabulary.rank[torch.from_numpy(targets)]).numpy()
    for cluster in range(len(vocabulary.bounds) - 1):
        for name, which in (("copied", copied), ("not copied", ~copied)):
            rows = (clusters == cluster) & which
            change = (parts[:, 1, rows] - parts[:, 0, rows]).mean(1)
            yield {
                "cluster": cluster,
                "targets": name,
                "tokens": int(rows.sum()),
                "xl": (-parts[:, 0, rows].mean((0, 1))).round(3).tolist(),
                "entry": change[:, 0].mean().round(3),
                "within": change[:, 1].mean().round(3),
                "by_pair": change.round(3).tolist(),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("neighbors")
    parser.add_argument("xl", nargs="+", metavar="XL")
    parser.add_argument("--gated", nargs="+", required=True, metavar="SPALM")
    parser.add_argument("--store", type=Path, default=Path("memlm-store"))
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--k", type=int, default=4)
    arguments = parser.parse_args()
    for row in measure(Store(arguments.store), arguments):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
