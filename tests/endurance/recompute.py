"""Recompute a report's kNN-LM scores from stored keys in float64 numpy, and its neighbours by brute
force.

    memlm build-datastore MODEL --split test                             -> QUERIES, the keys of the scored tokens
    memlm precompute-neighbors INDEX --k 1024 --queries valid,test       -> NEIGHBORS
    memlm evaluate NEIGHBORS --save-token-scores                         -> REPORT
    python -m tests.endurance.recompute REPORT QUERIES --store STORE

Reads files alone, with zarr and json, and shares no code with memlm. Prints the largest
differences; fails if a log-probability is off by more than 1e-3, the perplexity of the saved scores
is not the reported one, a flat index missed a neighbour, or a training token is among its own
neighbours.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import zarr


def load(store: Path, reference: str) -> tuple[dict[str, Any], Path]:
    folder = store / reference
    return json.loads((folder / "manifest.json").read_text()), folder


def used(manifest: dict[str, Any], role: str) -> str:
    record = manifest["inputs"][role]
    return f"{record['kind']}/{record['id']}"


def squared_distances(query: np.ndarray, keys: np.ndarray) -> np.ndarray:
    return ((keys.astype(np.float64) - query.astype(np.float64)) ** 2).sum(1)


def log_sum_exp(values: np.ndarray) -> float:
    if not len(values):
        return -np.inf
    peak = values.max()
    return float(peak + np.log(np.exp(values - peak).sum()))


def check_scores(
    report: Path,
    neighbors: zarr.Group,
    keys: np.ndarray,
    values: np.ndarray,
    queries: np.ndarray,
    sample: np.ndarray,
) -> float:
    """Largest difference of log p_mem and of the final log p over the sampled tokens."""
    metrics = json.loads((report / "metrics.json").read_text())
    (memory,) = metrics["memories"]
    k, temperature, weight = memory["k"], memory["temperature"], memory["lambda"]
    scores = zarr.open_group(report / "scores.zarr", mode="r")
    columns = {name: scores[name][:] for name in ("target", "logp", "logp_lm", "logp_memory")}
    perplexity = float(np.exp(-columns["logp"].astype(np.float64).mean()))
    print(f"perplexity of the saved scores {perplexity:.6f}, reported {metrics['perplexity']:.6f}")
    assert abs(perplexity / metrics["perplexity"] - 1) < 1e-5
    ids, worst = neighbors["ids"], 0.0
    for token in sample:
        rows = ids[token][:k]
        rows = rows[rows >= 0]
        logits = -squared_distances(queries[token], keys[rows]) / temperature
        hits = logits[values[rows] == columns["target"][token]]
        log_p_mem = log_sum_exp(hits) - log_sum_exp(logits)
        p = (1 - weight) * np.exp(np.float64(columns["logp_lm"][token])) + weight * np.exp(
            log_p_mem
        )
        stored = float(columns["logp_memory"][token, 0])
        assert np.isneginf(stored) == np.isneginf(log_p_mem), token
        if np.isfinite(stored):
            worst = max(worst, abs(stored - log_p_mem))
        worst = max(worst, abs(float(columns["logp"][token]) - np.log(p)))
    return worst


def check_neighbours(
    neighbors: zarr.Group, keys: np.ndarray, queries: np.ndarray, sample: np.ndarray
) -> int:
    """How many sampled tokens have a neighbour that is farther than the k nearest by brute force."""
    missed, wide = 0, keys.astype(np.float32)
    norms = (wide.astype(np.float64) ** 2).sum(1)
    for token in sample:
        found = neighbors["ids"][token]
        rough = norms - 2 * (wide @ queries[token].astype(np.float32)).astype(np.float64)
        near = np.argpartition(rough, len(found) + 64)[: len(found) + 64]
        true = np.sort(squared_distances(queries[token], keys[near]))[: len(found)]
        got = np.sort(squared_distances(queries[token], keys[found]))
        missed += not np.allclose(got, true, rtol=1e-6)
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report")
    parser.add_argument("queries", help="datastore of the scored split")
    parser.add_argument("--store", type=Path, default=Path("memlm-store"))
    parser.add_argument("--sample", type=int, default=300)
    options = parser.parse_args()
    report_manifest, report = load(options.store, options.report)
    neighbors_manifest, folder = load(options.store, used(report_manifest, "neighbors"))
    index_manifest, _ = load(options.store, used(neighbors_manifest, "index"))
    _, datastore = load(options.store, used(index_manifest, "datastore"))
    _, query_store = load(options.store, options.queries)
    stored = zarr.open_group(datastore / "datastore.zarr", mode="r")
    keys, values = stored["keys"][:], stored["values"][:]
    queries = zarr.open_group(query_store / "datastore.zarr", mode="r")["keys"][:]
    split = json.loads((report / "metrics.json").read_text())["split"]
    every = zarr.open_group(folder / "neighbors.zarr", mode="r")
    sample = np.random.default_rng(0).choice(
        len(queries), min(options.sample, len(queries)), replace=False
    )
    worst = check_scores(report, every[split], keys, values, queries, sample)
    print(f"largest difference of a log-probability over {len(sample)} tokens: {worst:.2e} nats")
    assert worst < 1e-3
    if index_manifest["config"]["index"] == "flat":
        missed = check_neighbours(every[split], keys, queries, sample)
        print(f"tokens whose neighbours differ from brute force: {missed} of {len(sample)}")
        assert missed == 0
    if "train" in every:
        ids = every["train/ids"][:]
        own = int((ids == np.arange(len(ids))[:, None]).sum())
        print(f"training tokens among their own neighbours: {own} of {len(ids):,}")
        assert own == 0


if __name__ == "__main__":
    main()
