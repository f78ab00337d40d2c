"""A real pretrained model read with a datastore by memlm and by knn-transformers: perplexities, and
the time of both.

    python -m tests.peers.knn_transformers_speed --sources peers --model MODEL --train TEXT \\
        --test TEXT

MODEL: a folder or FILE.gguf; TEXT: a file each. One process, the same tokens, windows, k, λ and
temperature. Their exact search is an index of one list; their own index (IVF-PQ, 32 of its lists
read) is shown beside it, with its distances and with recomputed ones. Both keep float16 keys;
queries are float16 in memlm alone, as is each side's habit.

Seconds are of the processor, so that other programs beside it do not count; with several threads,
those that wait count too, so one is taken unless --threads says otherwise. memlm's are of whole
stages, with the model loaded in each and all that a report holds; theirs are of the loops alone,
with the model in memory.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import faiss
import torch

from stages.artifacts.store import Store
from stages.metrics import perplexity
from stages.pretrained.location import locate
from tests.peers.knn_transformers import PEER, Ours, Setting, knnlm, log_probs, one_list, read, save

T = TypeVar("T")
LISTS = 64
"""Of their own index: theirs, 4,096, are for millions of keys."""


class Line(NamedTuple):
    """What one side took, in seconds of the processor, and what it found."""

    name: str
    datastore: float
    index: float
    scoring: float
    plain: float | None
    knn: float


def main() -> int:
    asked = _arguments()
    torch.set_num_threads(asked.threads)
    faiss.omp_set_num_threads(asked.threads)
    setting = Setting(asked.context, asked.k, asked.weight, asked.temperature)
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        lines = compared(knnlm(PEER.folder(asked.sources.resolve())), asked, setting, Path(folder))
    print(f"{setting.memory}, windows of {setting.length}, {torch.get_num_threads()} threads")
    print(f"{'':<44} {'datastore':>10} {'index':>8} {'scoring':>9} {'plain':>9} {'kNN-LM':>9}")
    for line in lines:
        plain = "" if line.plain is None else f"{line.plain:.3f}"
        times = f"{line.datastore:>8.1f} s {line.index:>6.1f} s {line.scoring:>7.1f} s"
        print(f"{line.name:<44} {times} {plain:>9} {line.knn:>9.3f}")
    return 0


def compared(
    theirs: ModuleType, asked: argparse.Namespace, setting: Setting, folder: Path
) -> list[Line]:
    texts = {"train": str(asked.train), "valid": str(asked.test), "test": str(asked.test)}
    ours = Ours(Store(folder / "store"), str(asked.model), texts, setting)
    train, test = ours.ids("train"), ours.ids("test")
    print(f"{len(train):,} keys, {len(test):,} tokens scored", flush=True)
    metrics = ours.report.json("metrics.json")
    plain, knn = (row["perplexity"] for row in metrics["rows"][:2])
    lines = [
        Line(
            "memlm, all keys",
            *(ours.seconds[kind] for kind in ("datastore", "index", "report")),
            plain,
            knn,
        )
    ]
    model, rows = _loaded(asked.model), len(train)
    saving = timed(lambda: save(theirs, model, train, ours.start, setting, folder))[1]
    alone = _perplexity(log_probs(model, test, ours.start, setting))

    def scored(name: str, index: float, plain: float | None = None, **more: Any) -> Line:
        log_p, seconds = timed(
            lambda: read(theirs, model, test, ours.start, setting, folder, rows, **more)
        )
        return Line(name, saving, index, seconds, plain, _perplexity(log_p))

    index = timed(lambda: one_list(theirs, model, folder, rows))[1]
    lines.append(scored("knn-transformers, all keys", index, alone, rounded=False))
    index = timed(lambda: _own_index(theirs, model, folder, rows))[1]
    lines.append(scored("knn-transformers, its index", index, rounded=False))
    lines.append(
        scored(
            "knn-transformers, its index, recomputed", index, rounded=False, recompute_dists=True
        )
    )
    return lines


def _perplexity(log_p: torch.Tensor) -> float:
    found = perplexity(-float(log_p.double().sum()), len(log_p))
    assert found is not None
    return found


def _loaded(path: Path) -> Any:
    from transformers import AutoModelForCausalLM

    location = locate(str(path))
    given = {**location.loading(), "dtype": torch.float32}
    return torch.nn.Module.float(
        AutoModelForCausalLM.from_pretrained(str(location.folder), **given).eval()
    )


def _own_index(theirs: ModuleType, model: Any, folder: Path, rows: int) -> None:
    """As their `build_index` makes it of the keys that were saved."""
    saver = theirs.KNNSaver(
        rows, str(folder), model.config.hidden_size, theirs.KEY_TYPE.last_ffn_input
    )
    saver.break_into(model)
    saver.break_out()
    saver.build_index(ncentroids=LISTS)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What it gives, and the seconds of the processor that it takes."""
    started = time.process_time()
    return work(), time.process_time() - started


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.peers.knn_transformers_speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--sources", type=Path, required=True, help="folder with their repository, as git clones it"
    )
    parser.add_argument("--model", type=Path, required=True, help="a folder or FILE.gguf")
    parser.add_argument("--train", type=Path, required=True, help="text of the datastore")
    parser.add_argument("--test", type=Path, required=True, help="text that is scored")
    parser.add_argument("--context", type=int, default=512, help="tokens of a window")
    parser.add_argument("--k", type=int, default=1024, help="neighbours")
    parser.add_argument("--weight", type=float, default=0.25, help="lambda")
    parser.add_argument("--temperature", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=1, help="of torch and FAISS")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
