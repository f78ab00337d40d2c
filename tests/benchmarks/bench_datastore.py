"""build-datastore against the forward pass alone.

    python -m tests.benchmarks.bench_datastore [--tokens 65536 --precision fp32]

The forward pass encodes the same tokens in the same batches with the same model and drops what
comes out. The stage is the whole of it: opening artifacts, loading the model, encoding, rounding,
writing, hashing, publishing. Both take turns in one process; the ratio is that of the median times.
`cpu_ratio` is the same of processor time, which other processes on the machine disturb less.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable

import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.encoding.encode import encode
from stages.examples.cutting import WindowSettings
from stages.examples.examples import Corpus
from stages.models.computing import resolve_device, tune_allocator
from stages.models.weights import load_model
from tests.benchmarks.artificial import Model, Tokens, artificial


def forward_pass(model: Artifact, tokens: int, precision: str) -> Callable[[], None]:
    device = resolve_device("auto")
    loaded = load_model(model.path, device)
    examples = Corpus.of(model.input("tokens")).examples(
        "train", loaded.config.cutting(WindowSettings(256, 256))
    )

    def run() -> None:
        for _ in encode(loaded, examples.blocks(0, tokens), precision=precision):
            pass
        if device.type == "cuda":
            torch.cuda.synchronize()

    return run


def stage(store: Store, model: Artifact, precision: str) -> Callable[[], None]:
    def run() -> None:
        config = DatastoreConfig(precision=precision)
        made = make(BuildDatastore(), config, {"source": model.reference}, store, Execution())
        store.remove(made.artifact.reference)

    return run


def timed(run: Callable[[], None]) -> tuple[float, float]:
    """Wall and processor seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    tune_allocator()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        corpus = artificial(store, Tokens(), {}, splits={"train": arguments.tokens})
        model = artificial(store, Model(), {"tokens": corpus})
        runs = [
            forward_pass(model, arguments.tokens, arguments.precision),
            stage(store, model, arguments.precision),
        ]
        times = [
            [second for run in runs for second in timed(run)] for _ in range(arguments.rounds + 1)
        ]
        medians = [statistics.median(column) for column in zip(*times[1:], strict=True)]
        forward, forward_cpu, whole, whole_cpu = medians
    return {
        "forward_tokens_per_second": round(arguments.tokens / forward, 1),
        "datastore_tokens_per_second": round(arguments.tokens / whole, 1),
        "ratio": round(forward / whole, 3),
        "cpu_ratio": round(forward_cpu / whole_cpu, 3),
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--rounds", type=int, default=5)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
