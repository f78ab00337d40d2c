"""Make artifacts on a Ray cluster of two machines, lose one of them at work, and compare with what
one process made.

    python -m tests.endurance.cluster TEXT…       (default text: builtin:pydocs)

Both machines are of Ray's own making, on this one. Each command runs in one process in one store
and on the cluster in another; while the neighbours are computed, the second machine is lost, and
another takes its place. The artifacts must be the same, byte for byte (times, rates and logs
apart). Takes minutes: run by hand, not by pytest.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from tests.endurance.kill_and_resume import differences, finish, start, timed

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
ON_CLUSTER = ["--executor", "ray", "--workers", "2"]


def pipeline(texts: list[str]) -> list[tuple[str, list[str], bool]]:
    """The commands in order: name of the artifact, arguments, and whether a machine is lost
    meanwhile.
    """
    bpe = ["--split", "0.8,0.1,0.1", "--tokenizer", "bpe", "--vocab-size", "2048"]
    return [
        ("tokens", ["tokenize", *texts, *bpe], False),
        ("model", ["train", "{tokens}", "--steps", "150"], False),
        ("datastore", ["build-datastore", "{model}"], False),
        ("index", ["build-index", "{datastore}", "--index", "ivf-flat"], False),
        (
            "neighbors",
            ["precompute-neighbors", "{index}", "--k", "1024", "--queries", "train,valid,test"],
            True,
        ),
        ("report", ["evaluate", "{neighbors}", "--save-token-scores"], False),
        ("xl", ["train", "{tokens}", "--backbone", "transformer-xl", "--steps", "60"], False),
        ("carried", ["build-datastore", "{xl}"], False),
    ]


def lose_one(machines: Any) -> None:
    machines.remove_node(machines.list_all_nodes()[-1], allow_graceful=False)
    machines.add_node(**NODE)


def compare_commands(machines: Any, folder: Path, texts: list[str]) -> int:
    """Returns: how many artifacts differ."""
    wrong = 0
    here, there = folder / "one-process", folder / "cluster"
    references: dict[str, str] = {}
    for name, template, loses in pipeline(texts):
        arguments = [argument.format(**references) for argument in template]
        references[name], alone = timed(here, arguments)
        began, running = time.monotonic(), start(there, arguments + ON_CLUSTER)
        if loses:
            time.sleep(min(20.0, alone / 2))
            lose_one(machines)
        reference, err = finish(running)
        lost = err.count("a worker of the cluster was lost")
        other = differences(here / references[name], there / reference)
        wrong += bool(other) or reference != references[name]
        seconds = f"one process {alone:6.1f} s, cluster {time.monotonic() - began:6.1f} s"
        print(
            f"{name:10} {seconds}, workers lost {lost}, different: {other or 'nothing'}", flush=True
        )
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="*", default=["builtin:pydocs"])
    options = parser.parse_args()
    machines = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    machines.add_node(**NODE)
    machines.wait_for_nodes()
    os.environ["RAY_ADDRESS"] = machines.address
    with tempfile.TemporaryDirectory() as folder:
        wrong = compare_commands(machines, Path(folder), options.texts)
    machines.shutdown()
    print(f"{wrong} artifacts differ")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
