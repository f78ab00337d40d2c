"""Recompute a report's scores of memory, of any sources, from stored keys in float64 numpy.

    memlm build-datastore MODEL --split test --dtype float32                        -> KEYS, those of the scored tokens
    memlm evaluate REF --memory …  --save-token-scores                              -> REPORT
    python -m tests.endurance.recompute_memory REPORT KEYS [--datastore DATASTORE --neighbors NEIGHBORS] --store STORE

Reads files alone, with zarr and json, and shares no code with memlm. KEYS hold the key that the
readings compare (`--key hidden` for caches of plain models). Readings of `external` need the
datastore and the neighbours that the report read, whose distances are computed anew, from queries
rounded as the keys are; windows must not overlap, and scope must be `stream`. Fails if a
log-probability is off by more than --tolerance, or the perplexity of the saved scores is not the
reported one.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from tests.endurance.recompute import log_sum_exp


@dataclass
class Stored:
    """Keys and tokens of the scored split, the inputs of a window, and, if neighbours were read,
    theirs.
    """

    keys: np.ndarray
    tokens: np.ndarray
    context: int
    datastore: Any = None
    neighbors: Any = None

    def entries(self, memory: dict[str, Any], token: int) -> tuple[np.ndarray, np.ndarray]:
        """Similarities of all entries that a token reads, and the token that each holds."""
        query = self.keys[token].astype(np.float64)
        reach = [token - memory["size"]] if "long" in memory["sources"] else []
        reach += [token // self.context * self.context] if "local" in memory["sources"] else []
        first = max(0, min(reach, default=token))
        scores = [similarities(query, self.keys[first:token], memory["similarity"])]
        values = [self.tokens[first:token]]
        if "external" in memory["sources"]:
            ids = self.neighbors[token][: memory["k"]]
            ids = np.sort(ids[ids >= 0])
            keys = self.datastore["keys"].oindex[ids]
            scores.append(
                similarities(
                    query.astype(keys.dtype).astype(np.float64), keys, memory["similarity"]
                )
            )
            values.append(self.datastore["values"].oindex[ids])
        return np.concatenate(scores), np.concatenate(values)


def similarities(query: np.ndarray, keys: np.ndarray, similarity: str) -> np.ndarray:
    keys = keys.astype(np.float64)
    if similarity == "l2":
        return -np.square(query - keys).sum(1)
    return keys @ query / (np.sqrt(len(query)) if similarity == "scaled-dot" else 1)


def read(
    stored: Stored, memory: dict[str, Any], token: int, log_z: float, log_p: float
) -> tuple[float, float]:
    """log p_mem of a token's target, and log p after the reading."""
    scores, values = stored.entries(memory, token)
    if not len(scores):
        return -np.inf, log_p
    scores = scores * (memory["theta"] if "theta" in memory else 1 / memory["temperature"])
    target, total = log_sum_exp(scores[values == stored.tokens[token]]), log_sum_exp(scores)
    if memory["reader"] == "interpolate":
        weight = memory["lambda"]
        return target - total, float(
            np.log((1 - weight) * np.exp(log_p) + weight * np.exp(target - total))
        )
    alpha = memory["alpha"]
    joint = np.logaddexp(log_p + log_z, target + alpha) - np.logaddexp(log_z, total + alpha)
    return target - total, float(joint)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report")
    parser.add_argument("keys", help="datastore of the scored split")
    parser.add_argument("--datastore", help="the one that the report read")
    parser.add_argument("--neighbors", help="those that the report read")
    parser.add_argument("--store", type=Path, default=Path("memlm-store"))
    parser.add_argument("--sample", type=int, default=500)
    parser.add_argument("--tolerance", type=float, default=1e-3, help="nats")
    options = parser.parse_args()
    report = options.store / options.report
    metrics = json.loads((report / "metrics.json").read_text())
    scores = zarr.open_group(report / "scores.zarr", mode="r")
    columns = {
        name: scores[name][:] for name in ("target", "logp", "logp_lm", "log_z", "logp_memory")
    }
    perplexity = float(np.exp(-columns["logp"].astype(np.float64).mean()))
    print(f"perplexity of the saved scores {perplexity:.6f}, reported {metrics['perplexity']:.6f}")
    assert abs(perplexity / metrics["perplexity"] - 1) < 1e-5
    keys = zarr.open_group(options.store / options.keys / "datastore.zarr", mode="r")["keys"][:]
    context = json.loads((report / "manifest.json").read_text())["config"]["context"]
    stored = Stored(keys, columns["target"], context)
    if options.neighbors:
        stored.datastore = zarr.open_group(
            options.store / options.datastore / "datastore.zarr", mode="r"
        )
        stored.neighbors = zarr.open_group(
            options.store / options.neighbors / "neighbors.zarr", mode="r"
        )[f"{metrics['split']}/ids"]
    total = len(columns["target"])
    random = np.random.default_rng(0).choice(total, min(options.sample, total), replace=False)
    sample, worst = [*range(min(20, total)), *random.tolist()], 0.0
    for token in sample:
        log_p, log_z = (float(columns[name][token]) for name in ("logp_lm", "log_z"))
        for number, memory in enumerate(metrics["memories"]):
            assert memory.get("scope", "stream") == "stream"
            log_p_mem, log_p = read(stored, memory, token, log_z, log_p)
            found = float(columns["logp_memory"][token, number])
            assert np.isneginf(found) == np.isneginf(log_p_mem), token
            worst = max(worst, abs(found - log_p_mem) if np.isfinite(found) else 0.0)
        worst = max(worst, abs(float(columns["logp"][token]) - log_p))
    print(f"largest difference of a log-probability over {len(sample)} tokens: {worst:.2e} nats")
    assert worst < options.tolerance


if __name__ == "__main__":
    main()
