"""Recompute a report's neural-cache scores from stored keys in float64 numpy.

    memlm build-datastore MODEL --split test --key hidden --dtype float32     -> KEYS, those of the scored tokens
    memlm evaluate MODEL --memory long:… --save-token-scores                  -> REPORT
    python -m tests.endurance.recompute_cache REPORT KEYS --store STORE

Reads files alone, with zarr and json, and shares no code with memlm. All readings of the report must be of source
`long`, similarity `dot` and scope `stream`. Fails if a log-probability is off by more than 1e-3, or the perplexity of
the saved scores is not the reported one.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from tests.endurance.recompute import log_sum_exp


def read(memory: dict[str, Any], token: int, keys: np.ndarray, columns: dict[str, np.ndarray], log_p: float) -> Any:
    """log p_mem of a token's target, and log p after the reading."""
    first = max(0, token - memory["size"])
    factor = memory["theta"] if "theta" in memory else 1 / memory["temperature"]
    scores = factor * (keys[first:token].astype(np.float64) @ keys[token].astype(np.float64))
    target, total = scores[columns["target"][first:token] == columns["target"][token]], log_sum_exp(scores)
    if not len(scores):
        return -np.inf, log_p
    log_p_mem = log_sum_exp(target) - total
    if memory["reader"] == "interpolate":
        weight = memory["lambda"]
        return log_p_mem, float(np.log((1 - weight) * np.exp(log_p) + weight * np.exp(log_p_mem)))
    log_z, alpha = np.float64(columns["log_z"][token]), memory["alpha"]
    joint = np.logaddexp(log_p + log_z, log_sum_exp(target) + alpha) - np.logaddexp(log_z, total + alpha)
    return log_p_mem, float(joint)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report")
    parser.add_argument("keys", help="datastore of the scored split, key hidden")
    parser.add_argument("--store", type=Path, default=Path("memlm-store"))
    parser.add_argument("--sample", type=int, default=500)
    options = parser.parse_args()
    report = options.store / options.report
    metrics = json.loads((report / "metrics.json").read_text())
    scores = zarr.open_group(report / "scores.zarr", mode="r")
    columns = {name: scores[name][:] for name in ("target", "logp", "logp_lm", "log_z", "logp_memory")}
    keys = zarr.open_group(options.store / options.keys / "datastore.zarr", mode="r")["keys"]
    perplexity = float(np.exp(-columns["logp"].astype(np.float64).mean()))
    print(f"perplexity of the saved scores {perplexity:.6f}, reported {metrics['perplexity']:.6f}")
    assert abs(perplexity / metrics["perplexity"] - 1) < 1e-5
    keys, total = keys[:], len(columns["target"])
    random = np.random.default_rng(0).choice(total, min(options.sample, total), replace=False)
    sample, worst = [*range(min(20, total)), *random.tolist()], 0.0
    for token in sample:
        log_p = float(columns["logp_lm"][token])
        for number, memory in enumerate(metrics["memories"]):
            assert memory["sources"] == ["long"] and (memory["similarity"], memory["scope"]) == ("dot", "stream")
            log_p_mem, log_p = read(memory, token, keys, columns, log_p)
            stored = float(columns["logp_memory"][token, number])
            assert np.isneginf(stored) == np.isneginf(log_p_mem), token
            worst = max(worst, abs(stored - log_p_mem) if np.isfinite(stored) else 0.0)
        worst = max(worst, abs(float(columns["logp"][token]) - log_p))
    print(f"largest difference of a log-probability over {len(sample)} tokens: {worst:.2e} nats")
    assert worst < 1e-3


if __name__ == "__main__":
    main()
