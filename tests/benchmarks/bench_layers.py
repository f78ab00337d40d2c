"""What memories of layers are worth on text, and what they cost: equal updates, every model with
the same seeds.

    python -m tests.benchmarks.bench_layers TOKENS RESULTS.jsonl [--store S --seeds 0 1 2 \\
        --updates 400 --together 2]
    python -m tests.benchmarks.bench_layers TOKENS RESULTS.jsonl --models transformer-xl \\
        memorizing --small-vocabulary
    python -m tests.benchmarks.bench_layers TOKENS R.jsonl --models memorizing-0 memorizing \\
        --init-from MODEL --lr 0.001

Models of two layers of width 128, segments of 256, learn by `memlm train` and are read by `memlm
evaluate`, each with one thread, so many side by side. A line of RESULTS is a training, or a
reading, with the processor time and the peak memory of its process; those that are there already
are not made again. At the end a Markdown table: figures are perplexities of test, or bits a byte
where `--small-vocabulary` says that TOKENS are bytes or pieces of words; brackets are 95 %
intervals of the mean over seeds, by Student's t; changes (%, or bits) and the processor time of a
training (start and one validation included) are against the Transformer-XL of the same seed; the
state is a stream's at test. With `--init-from` all go on from one trained model, whose layers then
remember what each of these says.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stages.artifacts.store import Store
from stages.encoding.window_settings import state_bytes
from stages.evaluation.figures.seed_groups import spread
from stages.examples.cutting import WindowSettings
from tests.benchmarks import earlier_ngrams

BASE, CONFIDENCE = "transformer-xl", 0.95
MEMORIES = (0, 512, 2048, 8192)
BATCH_TOKENS = 2048
COMMON = ["--precision", "fp32", "--set", "log_every=20"]


@dataclass(frozen=True)
class Trained:
    """How a model is trained, and how it is read."""

    settings: Sequence[str] = ()
    preset: str = "wikitext2-8x128-xl"
    remembered: int | None = None
    """What `--long-length` of training says; None: nothing."""
    long_lengths: Sequence[int | None] = (None,)
    """What that of a reading says; None: nothing, as in training."""
    pieces: int = 1
    """Segments of each stream that an update of the preset reads."""

    def arguments(self, more: Sequence[str]) -> list[str]:
        """Words of `train` for a model that is made, with more settings of a model."""
        settings = ["layers=2", *self.settings, *more]
        return [*self.again(), *(word for one in settings for word in ("--set", f"model.{one}"))]

    def again(self) -> list[str]:
        """The same for one that goes on from another, which settles how it is made."""
        length = [] if self.remembered is None else ["--long-length", str(self.remembered)]
        return [
            "--model",
            self.preset,
            "--batch-tokens",
            str(BATCH_TOKENS // self.pieces),
            *COMMON,
            *length,
        ]


def attention(name: str, *settings: str) -> list[str]:
    return [f"attention.{one}" for one in (f"name={name}", *settings)]


WORDS = ("cutoffs=[2000, 10000]", "factor=4")
"""The adaptive softmax of the presets of words, for those of bytes."""

MODELS = {  # transformer-xl-wide has as many weights as product-keys
    "transformer": Trained(preset="wikitext2-8x128"),
    "transformer-xl": Trained(),
    "transformer-xl-wide": Trained(["ffn_width=1472"]),
    "transformer-xl-512": Trained(["mem_length=512"]),
    "compressive": Trained(attention("compressive"), remembered=256, long_lengths=(None, 0)),
    "memorizing-0": Trained(attention("memorizing", "layers=[2]"), remembered=0),
    "memorizing": Trained(
        attention("memorizing", "layers=[2]"), remembered=2048, long_lengths=MEMORIES
    ),
    "infinity": Trained(attention("infinity")),
    "infinity-even": Trained(attention("infinity", "sticky=false")),
    "hashed-ngrams": Trained(["lookup.name=hashed-ngrams", "lookup.layers=[1]"]),
    "hashed-ngrams-signed-root": Trained(
        ["lookup.name=hashed-ngrams", "lookup.layers=[1]", "lookup.gate=signed-root"]
    ),
    # Tables of some rows tell no n-grams apart: what is left is the path without a memory.
    "hashed-ngrams-2-slots": Trained(
        ["lookup.name=hashed-ngrams", "lookup.layers=[1]", "lookup.slots=2"]
    ),
    # As many rows, of n-grams that say nothing about the latest tokens.
    "earlier-ngrams": Trained([f"lookup.name={earlier_ngrams.NAME}", "lookup.layers=[1]"]),
    "memory-plus": Trained(
        [f"feed_forward.{one}" for one in ("name=memory-plus", "sub_keys=64", "value_lr=1e-2")]
    ),
    "memory-tokens": Trained(
        ["width=128", "ffn_width=512", *WORDS], preset="enwik8-small-memory-tokens"
    ),
    "sru++": Trained(["width=400", "projection=100", *WORDS], preset="enwik8-small-sru"),
    "memsizer": Trained(attention("memsizer", "slots=32"), preset="wikitext2-8x128"),
    "memformer": Trained(
        ["encoder_layers=1", "width=128", "ffn_width=512", "slots=32", *WORDS],
        preset="enwik8-small-memformer",
        pieces=4,
    ),
    "product-keys": Trained(
        [
            f"feed_forward.{one}"
            for one in ("name=product-keys", "layers=[1]", "sub_keys=64", "value_lr=1e-2")
        ]
    ),
}


@dataclass(frozen=True)
class Bench:
    """What is measured where."""

    tokens: str
    results: Path
    store: Path
    updates: int
    figure: str
    settings: Sequence[str]
    """Of every model, beside its own."""
    models: Mapping[str, Trained]
    began: Sequence[str]
    """The model that all go on from, and their learning rate, as words of `train`; empty: none."""
    device: str

    def rows(self) -> list[dict[str, Any]]:
        lines = self.results.read_text().splitlines() if self.results.exists() else []
        return [json.loads(line) for line in lines]

    def measure(self, name: str, seed: int) -> None:
        """Train a model and read it, as far as RESULTS do not have it."""
        done = {(row["model"], row["seed"], row["read"]): row for row in self.rows()}
        trained = done.get((name, seed, "train")) or self._train(name, seed)
        for length in self.models[name].long_lengths:
            read = "own" if length is None else str(length)
            if (name, seed, read) not in done:
                self._evaluate(name, seed, read, trained["artifact"])

    def _train(self, name: str, seed: int) -> dict[str, Any]:
        trained = self.models[name]
        model = [*trained.again(), *self.began] if self.began else trained.arguments(self.settings)
        length = [
            "--steps",
            str(self.updates),
            "--set",
            f"valid_every={self.updates}",
            "--seed",
            str(seed),
        ]
        row = self._run("train", self.tokens, *model, *length)
        metrics = Store(self.store).get(row["artifact"], "model").metrics
        kept = ("parameters", "tokens_per_second", "train_loss", "valid_perplexity")
        return self._write(
            row
            | {"model": name, "seed": seed, "read": "train"}
            | {key: metrics[key] for key in kept}
        )

    def _evaluate(self, name: str, seed: int, read: str, model: str) -> None:
        length = [] if read == "own" else ["--long-length", read]
        row = self._run("evaluate", model, "--precision", "fp32", *length)
        store = Store(self.store)
        report = store.get(row["artifact"], "report")
        tokens = int(report.metrics["tokens"])
        state = state_bytes(store.get(model, "model"), WindowSettings.of(report.config), tokens)
        figures = {
            "figure": report.metrics[self.figure],
            "tokens_per_second": report.metrics["tokens_per_second"],
        }
        self._write(row | {"model": name, "seed": seed, "read": read, "state": state} | figures)

    def _run(self, *command: str) -> dict[str, Any]:
        """A command of memlm: what it makes, and what its process takes."""
        words = [
            sys.executable,
            "-m",
            "memlm_cli",
            *command,
            "--store",
            str(self.store),
            "--device",
            self.device,
        ]
        began = time.perf_counter()
        process = subprocess.Popen(
            words,
            env=os.environ | {"OMP_NUM_THREADS": "1", "MEMLM_PARTS": earlier_ngrams.MODULE},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        with ThreadPoolExecutor(1) as reader:
            said = reader.submit(process.stderr.read)
            reference = process.stdout.read().strip()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{' '.join(words)}: {said.result()}")
        taken = {
            "wall": time.perf_counter() - began,
            "cpu": used.ru_utime + used.ru_stime,
            "peak_kb": used.ru_maxrss,
        }
        return {"artifact": reference, **taken}

    def _write(self, row: dict[str, Any]) -> dict[str, Any]:
        with self.results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
        return row


def table(rows: list[dict[str, Any]], bits: bool) -> Iterator[str]:
    """A line of Markdown for each reading of a model."""
    of_base = {row["seed"]: row for row in rows if row["model"] == BASE and row["read"] == "own"}
    trainings = {(row["model"], row["seed"]): row for row in rows if row["read"] == "train"}
    yield "| model | long length | seeds | figure | change | training, time | peak MiB, train / test | state, KiB |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, read in dict.fromkeys(
        (row["model"], row["read"]) for row in rows if row["read"] != "train"
    ):
        some = [row for row in rows if row["model"] == name and row["read"] == read]
        pairs = [
            (row["figure"], of_base[row["seed"]]["figure"])
            for row in some
            if row["seed"] in of_base
        ]
        changes = [own - base if bits else 100 * (own / base - 1) for own, base in pairs]
        costs = [
            trainings[name, row["seed"]]["cpu"] / trainings[BASE, row["seed"]]["cpu"]
            for row in some
            if row["seed"] in of_base
        ]
        cells = (
            name,
            read,
            ", ".join(str(row["seed"]) for row in some),
            _spread([row["figure"] for row in some], 3 if bits else 1),
            _spread(changes, 3 if bits else 1) if name != BASE else "",
            f"{sum(costs) / len(costs):.2f}" if costs else "",
            f"{trainings[name, some[0]['seed']]['peak_kb'] / 1024:.0f} / {some[0]['peak_kb'] / 1024:.0f}",
            f"{some[0]['state'] / 1024:,.0f}",
        )
        yield f"| {' | '.join(cells)} |"


def _spread(values: list[float], digits: int) -> str:
    if not values:
        return ""
    over_seeds = spread(values, CONFIDENCE)
    if over_seeds.interval is None:
        return f"{over_seeds.mean:.{digits}f}"
    low, high = over_seeds.interval
    return f"{over_seeds.mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tokens", help="artifact")
    parser.add_argument("results", type=Path)
    parser.add_argument("--store", type=Path, default=Path("memlm-store"))
    parser.add_argument("--updates", type=int, default=400, help="of 2,048 tokens")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], metavar="SEED")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument(
        "--together", type=int, default=2, help="processes side by side, one thread each"
    )
    parser.add_argument("--device", default="cpu", help="where they learn; times are a processor's")
    parser.add_argument("--small-vocabulary", action="store_true", help="full softmax, bits a byte")
    parser.add_argument(
        "--long-lengths",
        type=int,
        nargs="+",
        default=MEMORIES,
        help="that `memorizing` is read with",
    )
    parser.add_argument(
        "--init-from", metavar="MODEL", help="that all go on from, of the attention that they have"
    )
    parser.add_argument("--lr", help="highest learning rate of what goes on")
    given = parser.parse_args()
    models = MODELS | {"memorizing": replace(MODELS["memorizing"], long_lengths=given.long_lengths)}
    figure, settings = (
        ("bits_per_byte", ["cutoffs=[]"]) if given.small_vocabulary else ("perplexity", [])
    )
    began = (
        ["--init-from", given.init_from, *(["--lr", given.lr] if given.lr else [])]
        if given.init_from
        else []
    )
    of_all = (given.tokens, given.results, given.store, given.updates, figure, settings)
    bench = Bench(*of_all, models, began, given.device)
    with ThreadPoolExecutor(given.together) as pool:
        # All models of a seed before those of the next.
        list(
            pool.map(
                lambda job: bench.measure(*job),
                [(name, seed) for seed in given.seeds for name in given.models],
            )
        )
    print("\n".join(table(bench.rows(), given.small_vocabulary)))


if __name__ == "__main__":
    main()
