"""Students of neighbours beside three controls: no neighbours, labels of other positions, more time.

    python -m tests.endurance.distilled TEXT [--store STORE] [--students taught control …] \\
        [--seeds 1 2 3] [--mixtures]

TEXT holds `train.txt`, `valid.txt` and `test.txt` of WikiText-2. The base is a Transformer of 2
layers x 128; a student begins as a copy of it, unless `STUDENTS` says otherwise. The method
`shuffled-labels` is that of `memory-decoder`, but each position has the labels of another one, drawn
at random: labels are as smooth, and say nothing about the context. Prints a line of JSON for each
student: its test perplexity, and with --mixtures that of the base and the student, whose λ is tuned
on valid. An MLP has its perplexity on valid. Behind them come the changes against `control`, the
control at equal time and the base, over all seeds. Intervals are over documents, over documents and
seeds, and over seeds. What was made before is not made again.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import zarr

from stages.evaluation.figures.intervals import Bootstrap
from stages.evaluation.figures.seed_groups import spread
from stages.methods import METHODS
from stages.methods.neighbor_labels import NeighborLabels
from stages.methods.settings import MemoryDecoderConfig
from stages.registry import Part

THIS = "tests.endurance.distilled"
COMMON = ("--batch-tokens", "2048", "--precision", "fp32")
BASE = (*COMMON, "--model", "wikitext2-8x128", "--set", "model.layers=2")
BASE_UPDATES = 600
STUDENT = (
    *COMMON,
    "--set",
    "clip_norm=1",
    "--set",
    "schedule.warmup=15",
    "--segment-length",
    "256",
)
WEIGHTS = np.linspace(0.05, 0.95, 19)
"""Values of λ."""


class ShuffledLabelsConfig(MemoryDecoderConfig):
    """Labels of other positions: as smooth, and of no context."""

    method: Literal["shuffled-labels"] = "shuffled-labels"  # type: ignore[assignment]


class OtherRows:
    """An array whose rows are those of other positions, drawn anew for each batch."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, places: Any) -> np.ndarray:
        if isinstance(places, slice):
            return self._rows[places]
        # A batch asks for tokens and for shares, and must get the same rows.
        draw = np.random.default_rng(int(places.sum()))
        return self._rows[draw.integers(len(self), size=len(places))]


def shuffled_labels(settings: Any, side_inputs: Any = None) -> Any:
    """The method `memory-decoder` on labels of other positions."""
    given = dict(side_inputs or {})
    labels = given.get("soft-labels")
    if labels is not None:
        given["soft-labels"] = NeighborLabels(*map(OtherRows, labels))  # type: ignore[arg-type]
    return METHODS.load("memory-decoder")(settings, given)


METHODS.targets["shuffled-labels"] = Part(f"{THIS}:ShuffledLabelsConfig", f"{THIS}:shuffled_labels")


class Student(NamedTuple):
    """How a student learns."""

    alpha: float
    updates: int = 150
    method: str = "memory-decoder"
    begins: Literal["base", "random"] = "base"
    lr: str = "1e-3"
    k: int = 256


STUDENTS = {
    "control": Student(0),
    "taught": Student(0.5),
    # Labels of another position are those of the text as a whole, by few neighbours or by many.
    "shuffled .5": Student(0.5, method="shuffled-labels", k=64),
    "shuffled .1": Student(0.1, method="shuffled-labels", k=64),
    "control, equal time": Student(0, 280),
    "control, 600 updates": Student(0, 600),
    "taught, 600 updates": Student(0.5, 600),
    "random control": Student(0, BASE_UPDATES, begins="random", lr="2e-3"),
    "random taught": Student(0.5, BASE_UPDATES, begins="random", lr="2e-3"),
    "mlp control": Student(0, method="mlp-memory"),
    "mlp taught": Student(0.5, method="mlp-memory"),
}
CONTROLS = ("control", "control, equal time")
SPLITS = ("test", "valid")


class Store:
    """memlm's commands on one store."""

    run_as: ClassVar[dict[str, str]] = {"MEMLM_PARTS": THIS}

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: object) -> str:
        """The last line that a command writes, a reference where it makes something."""
        words = [str(word) for word in arguments]
        command = [sys.executable, "-m", "memlm_cli", *words, "--store", str(self.folder)]
        environment = os.environ | self.run_as
        finished = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, env=environment
        )
        return finished.stdout.strip()

    def scores(self, report: str) -> np.ndarray:
        """Log-probabilities of a report's tokens, in nats."""
        group: Any = zarr.open_group(self.folder / report / "scores.zarr", mode="r")
        return np.asarray(group["logp"][:], np.float64)

    def manifest(self, reference: str) -> Any:
        return json.loads((self.folder / reference / "manifest.json").read_text())

    def document_ends(self, model: str) -> np.ndarray:
        """Offsets of the documents of the test split, then its end."""
        tokens = self.manifest(model)["inputs"]["tokens"]
        path = self.folder / tokens["kind"] / tokens["id"] / "tokens.zarr"
        group: Any = zarr.open_group(path, mode="r")
        return np.asarray(group["test/doc_offsets"][:])


class Prepared(NamedTuple):
    """What students begin from."""

    base: str
    near: str


def prepare(store: Store, text: Path) -> Prepared:
    splits = [f for name in ("train", "valid", "test") for f in (f"--{name}", text / f"{name}.txt")]
    tokens = store.run("tokenize", "--tokenizer", "word", "--documents", "wikitext", *splits)
    often = ("--set", "valid_every=100")
    base = store.run("train", tokens, *BASE, *often, "--steps", BASE_UPDATES, "--seed", 0)
    index = store.run("build-index", store.run("build-datastore", base), "--index", "ivf-flat")
    chosen = ("--queries", "train", "--k", 256, "--exclude", "document")
    return Prepared(base, store.run("precompute-neighbors", index, *chosen))


def trained(store: Store, prepared: Prepared, student: Student, seed: int) -> str:
    begins = BASE if student.begins == "random" else (*STUDENT, "--init-from", prepared.base)
    # Validation takes as long as fifty updates, and only an MLP's is read.
    every = student.updates if student.method == "mlp-memory" else 0
    length = ("--steps", student.updates, "--set", f"valid_every={every}")
    learning: tuple[str, ...] = (
        "--method",
        student.method,
        "--set",
        f"memory.alpha={student.alpha}",
    )
    if student.alpha:
        learning += ("--set", f"memory.k={student.k}")
    return store.run(
        *("train", prepared.near, *begins, *length, *learning, "--lr", student.lr, "--seed", seed)
    )


def evaluated(store: Store, model: str, splits: Sequence[str]) -> list[np.ndarray]:
    """Log-probabilities of the tokens of each split by a model alone."""
    scoring = ("--memory", "none", "--save-token-scores", "--split")
    return [store.scores(store.run("evaluate", model, *scoring, split)) for split in splits]


def table(store: Store, text: Path, names: list[str], seeds: list[int], mixtures: bool) -> None:
    prepared = prepare(store, text)
    splits = SPLITS if mixtures else SPLITS[:1]
    base = evaluated(store, prepared.base, splits)
    show({"row": "base", "perplexity": perplexity(base[0])})
    alone: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for name in names:
        for seed in seeds:
            model = trained(store, prepared, STUDENTS[name], seed)
            line = {"row": name, "seed": seed, "model": model}
            if STUDENTS[name].method == "mlp-memory":
                show({**line, "valid": store.manifest(model)["metrics"]["valid_perplexity"]})
                continue
            own = evaluated(store, model, splits)
            alone[name].append(own[0])
            show({**line, "perplexity": perplexity(own[0]), **mixture(base, own)})

    ends = store.document_ends(prepared.base)
    for name, scores in alone.items():
        for control in CONTROLS:
            if scores and name not in CONTROLS and alone.get(control):
                show({"row": name, "against": control, **change(ends, scores, alone[control])})
        if scores:
            of_each_seed = base[:1] * len(scores)
            show({"row": name, "against": "base", **change(ends, scores, of_each_seed)})


def mixture(base: list[np.ndarray], own: list[np.ndarray]) -> dict[str, float]:
    """Perplexity of both together, with the λ that is best on valid; nothing without valid."""
    if len(own) < len(SPLITS):
        return {}
    weight = max(WEIGHTS, key=lambda x: float(mixed(base[1], own[1], x).mean()))
    together = perplexity(mixed(base[0], own[0], weight))
    return {"lambda": round(float(weight), 2), "with_base": together}


def mixed(base: np.ndarray, own: np.ndarray, weight: float) -> np.ndarray:
    """log((1 - λ) p + λ q)."""
    return np.logaddexp(np.log(1 - weight) + base, np.log(weight) + own)


def change(ends: np.ndarray, scores: list[np.ndarray], others: list[np.ndarray]) -> dict[str, Any]:
    """Change of perplexity in percent, paired by seed, and its intervals.

    Args:
        ends: offsets of the documents, then their end.
        scores, others: log-probabilities of the tokens, an array for each seed.
    Returns: the mean over seeds; its interval over documents; that over documents and seeds, both
        drawn anew, and that over seeds by Student's t, None for one seed.

    Source: Owen 2007, The pigeonhole bootstrap (both drawn independently).
    """
    losses = np.stack(others) - np.stack(scores)
    tokens = np.repeat(np.diff(ends)[:, None], len(losses), axis=1).astype(float)
    of_documents = np.add.reduceat(losses, ends[:-1], axis=1).T

    bootstrap = Bootstrap()
    of_draws = bootstrap.resampled_means(of_documents, tokens)
    seeds = np.random.default_rng(0).integers(len(losses), size=of_draws.shape)
    with_seeds = np.take_along_axis(of_draws, seeds, axis=1)
    several = len(losses) > 1
    return {
        "percent": percent(losses.mean()),
        "by_seed": [percent(mean) for mean in losses.mean(axis=1)],
        "over_documents": edges(bootstrap.interval(of_draws.mean(axis=1))),
        "over_both": edges(bootstrap.interval(with_seeds.mean(axis=1))) if several else None,
        "over_seeds": edges(spread(losses.mean(axis=1).tolist(), 0.95).interval),
    }


def edges(interval: tuple[float, float] | None) -> list[float] | None:
    """An interval of nats in percent."""
    if interval is None:
        return None
    return [percent(edge) for edge in interval]


def percent(nats: float) -> float:
    return round(100 * float(np.expm1(nats)), 2)


def perplexity(scores: np.ndarray) -> float:
    return round(float(np.exp(-scores.mean())), 2)


def show(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", type=Path)
    parser.add_argument("--store", type=Path, default=Path("memlm-store"))
    parser.add_argument("--students", nargs="+", choices=STUDENTS, default=list(STUDENTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--mixtures", action="store_true")
    options = parser.parse_args()
    store = Store(options.store)
    table(store, options.text, options.students, options.seeds, options.mixtures)


if __name__ == "__main__":
    main()
