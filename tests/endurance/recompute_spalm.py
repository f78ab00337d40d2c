"""Recompute a SPALM report's scores from stored hidden states, neighbours and weights in float64
numpy.

    memlm build-datastore MODEL --key hidden --split test --dtype float32       -> HIDDEN, as they are before the gate
    memlm evaluate MODEL --save-token-scores                                    -> REPORT
    python -m tests.endurance.recompute_spalm REPORT HIDDEN --store STORE

Give build-datastore the --context and --mem-length of the report. Reads files alone, with zarr,
safetensors and json, and shares no code with memlm; embeddings must be tied. For a sample of tokens
makes m, g and z of the stored neighbours' embeddings, and log p of the softmax over z. Prints the
largest differences; fails if one is larger than --tolerance, the perplexity of the saved scores is
not the reported one, the mean gate is not, or neighbours of the datastore's own split hold the
token's own row.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zarr
from safetensors.numpy import load_file

from tests.endurance.recompute import load, log_sum_exp, used


class Softmax:
    """The tied embeddings of a model, full or adaptive, as inputs and as what scores the next
    token.
    """

    def __init__(self, weights: dict[str, np.ndarray], settings: dict[str, Any]) -> None:
        self._bounds = (0, *settings.get("cutoffs", ()), settings["vocab_size"])
        self._weights = {
            name.removeprefix("vocabulary."): weight.astype(
                np.int64 if name.endswith("rank") else np.float64
            )
            for name, weight in weights.items()
            if name.startswith("vocabulary.")
        }
        self.adaptive = len(self._bounds) > 2

    def _cluster(self, token: int) -> tuple[int, int]:
        """The cluster of a token, and its place in there."""
        rank = int(self._weights["rank"][token])
        cluster = int(np.searchsorted(self._bounds[1:], rank, side="right"))
        return cluster, rank - self._bounds[cluster]

    def embedding(self, token: int) -> np.ndarray:
        """y, [d]."""
        if not self.adaptive:
            return self._weights["embedding"][token]
        cluster, place = self._cluster(token)
        return (
            self._weights[f"projections.{cluster}"] @ self._weights[f"embeddings.{cluster}"][place]
        )

    def log_prob(self, state: np.ndarray, token: int) -> float:
        """log p of a token given z [d]."""
        if not self.adaptive:
            scores = self._weights["embedding"] @ state
            return float(scores[token] - log_sum_exp(scores))
        cluster, place = self._cluster(token)
        head = self._weights["projections.0"].T @ state
        scores = np.concatenate(
            (self._weights["embeddings.0"] @ head, self._weights["clusters"] @ head)
        )
        entry = place if cluster == 0 else self._bounds[1] + cluster - 1
        log_p = float(scores[entry] - log_sum_exp(scores))
        if cluster == 0:
            return log_p
        tail = self._weights[f"embeddings.{cluster}"] @ (
            self._weights[f"projections.{cluster}"].T @ state
        )
        return log_p + float(tail[place] - log_sum_exp(tail))


class Gated(NamedTuple):
    """z [d] and the mean of the gate that made it."""

    state: np.ndarray
    gate: float


def gated(hidden: np.ndarray, near: list[np.ndarray], weight: np.ndarray, scale: float) -> Gated:
    """m = Σ softmax(y·h) scale y, g = σ(V h), z = (1 - g) m + g h; z = h where nothing is near."""
    if not near:
        return Gated(hidden, 1.0)
    scores = np.array([y @ hidden for y in near])
    log_sums = np.exp(scores - log_sum_exp(scores))
    memory = scale * sum(mass * y for mass, y in zip(log_sums, near, strict=True))
    gate = 1 / (1 + np.exp(-(weight @ hidden)))
    return Gated((1 - gate) * memory + gate * hidden, float(gate.mean()))


def check_totals(metrics: dict[str, Any], columns: dict[str, np.ndarray]) -> None:
    """The perplexity and the mean gate of the saved scores are those that are reported."""
    perplexity = float(np.exp(-columns["logp"].astype(np.float64).mean()))
    gate = float(columns["gate"].astype(np.float64).mean())
    print(f"perplexity of the saved scores {perplexity:.6f}, reported {metrics['perplexity']:.6f}")
    print(f"mean gate of the saved scores {gate:.6f}, reported {metrics['gate']['mean']:.6f}")
    assert abs(perplexity / metrics["perplexity"] - 1) < 1e-5
    assert abs(gate - metrics["gate"]["mean"]) < 1e-5


def check_right(
    metrics: dict[str, Any], targets: np.ndarray, ids: np.ndarray, values: np.ndarray
) -> None:
    """The share of tokens whose best neighbour is right is the reported one."""
    best = ids[:, 0]
    share = float((np.where(best >= 0, values[best], -1) == targets).mean())
    print(
        f"best neighbours that are right {share:.6f}, reported {metrics['gate']['neighbors_right']['1']:.6f}"
    )
    assert abs(share - metrics["gate"]["neighbors_right"]["1"]) < 1e-9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report")
    parser.add_argument("hidden", help="datastore of the scored split, keys `hidden` of the model")
    parser.add_argument("--store", type=Path, default=Path("memlm-store"))
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--tolerance", type=float, default=1e-3, help="nats")
    options = parser.parse_args()
    manifest, report = load(options.store, options.report)
    metrics = json.loads((report / "metrics.json").read_text())
    _, model = load(options.store, used(manifest, "model"))
    neighbors_manifest, folder = load(options.store, used(manifest, "gate_neighbors"))
    index_manifest, _ = load(options.store, used(neighbors_manifest, "index"))
    datastore_manifest, datastore = load(options.store, used(index_manifest, "datastore"))
    hidden_manifest, hidden_store = load(options.store, options.hidden)
    assert hidden_manifest["config"]["key"] == "hidden"
    for name in ("context", "mem_length"):
        assert hidden_manifest["config"][name] == manifest["config"][name], name
    scores = zarr.open_group(report / "scores.zarr", mode="r")
    columns = {name: scores[name][:] for name in ("target", "logp_lm", "logp", "gate")}
    values = zarr.open_group(datastore / "datastore.zarr", mode="r")["values"][:]
    ids = zarr.open_group(folder / "neighbors.zarr", mode="r")[f"{metrics['split']}/ids"][:]
    own = neighbors_manifest["inputs"]["queries"] == datastore_manifest["inputs"]["corpus"]
    if own and datastore_manifest["config"]["split"] == metrics["split"]:
        assert not (ids == np.arange(len(ids))[:, None]).any(), "own neighbours"
    check_totals(metrics, columns)
    check_right(metrics, columns["target"], ids, values)
    keys = zarr.open_group(hidden_store / "datastore.zarr", mode="r")["keys"]
    weights = load_file(model / "model.safetensors")
    settings = json.loads((model / "config.json").read_text())["model"]
    softmax, scaled = Softmax(weights, settings), settings.get("gate_values") == "scaled"
    weight, k = weights["gate.weight"].astype(np.float64), metrics["gate"]["neighbors"]
    scale = weight.shape[1] ** 0.5 if scaled else 1.0
    total, worst, worst_gate = len(ids), 0.0, 0.0
    for token in (
        np.random.default_rng(0).choice(total, min(options.sample, total), replace=False).tolist()
    ):
        near = [softmax.embedding(int(values[row])) for row in ids[token, :k] if row >= 0]
        made = gated(keys[token].astype(np.float64), near, weight, scale)
        log_p = softmax.log_prob(made.state, int(columns["target"][token]))
        worst = max(worst, abs(log_p - float(columns["logp_lm"][token])))
        worst_gate = max(worst_gate, abs(made.gate - float(columns["gate"][token])))
    print(
        f"largest difference of a log-probability: {worst:.2e} nats, of a mean gate: {worst_gate:.2e}"
    )
    assert worst < options.tolerance
    assert worst_gate < options.tolerance


if __name__ == "__main__":
    main()
