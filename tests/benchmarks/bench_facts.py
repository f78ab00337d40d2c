"""Facts stored in product-key memories, and in dense layers that learn for as many passes and for as long a time.

    python -m tests.benchmarks.bench_facts [--pairs 65536 --types 256 --passes 14 --seeds 0 1 2]

Rows `a b c`, c a fixed random one of --types tokens for each of --pairs pairs; asked is c of the pairs that were
learned. Two blocks of width 64, feed-forward layers of width 256, or 128² slots with a value rate of .01; batches of
512 rows. `dense, equal time` takes as many passes as fill the processor time that the slots took. A line a model and a
seed: passes, the share of right answers (a guess: 1 / types), weights, and seconds of processor time.
"""

import argparse
import json
import time
from typing import Any

from stages.models.config import parse_model
from stages.models.devices import tune_allocator
from tests.stages.models.layers.made_tasks import Task, accuracy, batches_of, facts, learned

ROWS, WIDTH = 512, 64
SLOTS = {"name": "product-keys", "heads": 4, "sub_keys": 128, "neighbors": 32, "value_lr": 1e-2}
DENSE: dict[str, Any] = {"width": WIDTH, "layers": 2, "heads": 4, "ffn_width": 256, "dropout": 0.0}


def measure(name: str, chosen: dict[str, Any], task: Task, types: int, passes: float, lr: float, seed: int) -> float:
    """Prints the line of a model; returns the seconds of processor time that it learned for."""
    config = parse_model(DENSE | chosen).sized(types, 2)
    updates, started = round(passes * len(task.tokens) / ROWS), time.process_time()
    model = learned(config, batches_of(task, ROWS, seed), updates, lr, seed=seed)
    took = time.process_time() - started
    line = {"model": name, "seed": seed, "passes": round(passes, 1), "right": round(accuracy(model, task), 4)}
    weights = sum(parameter.numel() for parameter in model.parameters())
    print(json.dumps({**line, "weights": weights, "seconds": round(took, 1)}), flush=True)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1 << 16, help="types² at the most")
    parser.add_argument("--types", type=int, default=256)
    parser.add_argument("--passes", type=float, default=14)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    tune_allocator()
    for seed in given.seeds:
        task = facts(given.pairs, given.types, seed)

        def learn(
            name: str, chosen: dict[str, Any], passes: float = given.passes, task: Task = task, seed: int = seed
        ) -> float:
            return measure(name, chosen, task, given.types, passes, given.lr, seed)

        dense = learn("dense", {})
        slots = learn("slots", {"feed_forward": SLOTS})
        learn("dense, equal time", {}, given.passes * slots / dense)


if __name__ == "__main__":
    main()
