"""A datastore grown in ten steps and cut in half, against those that are built at once.

    python -m tests.benchmarks.bench_grow wikitext-2/train.txt [--width 64 --layers 2 --articles \\
        600]

The articles of a text in WikiText's format are tokenized together, and in ten parts; a model with
random weights, which reads each article by itself, makes keys. A tenth of the text is added nine
times, index and all; then every other article is forgotten. Told are: the share of neighbours of
2,000 tokens that are those of the datastore built at once (flat), recall of the changed IVF index
and of one built anew, and what the last tenth and the cut cost, in processor seconds, in shares of
building anew. Of an index its recall is measured as build-index does it; what that costs is also
told apart. Threads that wait must not count, so that OMP_NUM_THREADS=1 is set, and the like.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}

import argparse
import gzip
import json
import re
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import stages.search.quality
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution, Stage
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.index import BuildIndex
from stages.search.config import IndexConfig
from stages.search.exact import ExactSearcher
from stages.search.keys import StoredKeys
from stages.search.open import open_searcher
from stages.search.quality import measure
from stages.text.config import TokenizeConfig
from stages.tokenize import Tokenize
from stages.update import UpdateDatastore
from stages.updating.config import UpdateConfig
from tests.benchmarks.artificial import Model, artificial

PARTS = 10
QUERIES, NEIGHBORS = 2000, 16
TITLE = re.compile(r"(?m)^ \n = [^=].* = \n \n")
BLANK = len(" \n")
"""The line before a title, which belongs to the article before."""


class Measuring:
    """What measuring recall took in the stage that ran last, in processor seconds."""

    seconds = 0.0

    @classmethod
    def measure(cls, *arguments: Any) -> dict[str, Any]:
        started = time.process_time()
        figures = measure(*arguments)
        cls.seconds += time.process_time() - started
        return figures


class Timed:
    """A store whose stages tell what they take, in processor seconds."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / "store")
        self.folder = folder
        self.seconds = 0.0

    @property
    def index_seconds(self) -> dict[str, float]:
        """What the index that was made last took, and of that recall."""
        return {"index": self.seconds - Measuring.seconds, "recall": Measuring.seconds}

    def make(self, stage: Stage[Any], config: Any, **references: Any) -> Artifact:
        given = {
            name: getattr(one, "reference", one)
            for name, one in references.items()
            if one is not None
        }
        Measuring.seconds, started = 0.0, time.process_time()
        artifact = make(stage, config, given, self.store, Execution("cpu")).artifact
        self.seconds = time.process_time() - started
        return artifact

    def tokens(self, name: str, articles: Sequence[str], like: Artifact | None = None) -> Artifact:
        file = self.folder / f"{name}.txt"
        file.write_text("".join(articles), encoding="utf-8")
        settings = {"documents": "wikitext"} | ({"tokenizer": "word"} if like is None else {})
        return self.make(Tokenize(), TokenizeConfig(**settings), train=[str(file)], tokenizer=like)


def read_articles(path: Path, most: int | None) -> list[str]:
    text = (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8").read()
    starts = [
        0,
        *(found.start() + BLANK for found in TITLE.finditer(text) if found.start()),
        len(text),
    ]
    return [text[a:b] for a, b in pairwise(starts)][:most]


def keys_of(datastore: Artifact) -> StoredKeys:
    return StoredKeys(datastore.zarr("datastore.zarr")["keys"])


def told(what: str, **figures: Any) -> None:
    rounded = {
        name: round(one, 4) if isinstance(one, float) else one for name, one in figures.items()
    }
    print(json.dumps({"of": what, **rounded}), flush=True)


def compare(what: str, changed: Artifact, anew: Artifact) -> None:
    """Exact neighbours of the same contexts in both."""
    ours, theirs = keys_of(changed), keys_of(anew)
    places = np.sort(np.random.default_rng(0).choice(theirs.rows, QUERIES, replace=False))
    itself = np.stack([places, places + 1], axis=1)
    queries = theirs.take(places)
    a, near = ExactSearcher(ours, "l2").search(queries, NEIGHBORS, itself)
    b, true = ExactSearcher(theirs, "l2").search(queries, NEIGHBORS, itself)
    same = sum(np.array_equal(ours.read(n), theirs.read(n)) for n in range(ours.shards))
    told(
        what,
        rows=ours.rows,
        rows_anew=theirs.rows,
        shards_with_the_same_bytes=f"{same} of {ours.shards}",
        same_neighbors=float((a == b).mean()),
        largest_difference_of_distances=float(np.abs(near - true).max()),
    )


def compare_recall(what: str, changed: Artifact, anew: Artifact, queries: int) -> None:
    """Recall of as many queries in both; the index that was built anew reads as many lists as it
    does by itself.
    """
    for name, index in (("changed", changed), ("built at once", anew)):
        keys = keys_of(index.input("datastore"))
        searcher = open_searcher(index.file("index.faiss"), index.config, (keys.rows, keys.dim))
        figures = measure(searcher, keys, queries, 0)
        told(
            f"recall, {what}, {name}",
            lists=index.config["lists"],
            probe=index.config["probe"],
            recall=figures["recall"],
            error=figures["recall_error"],
            measured={
                name: index.metrics[name]
                for name in ("queries", "recall", "recall_error")
                if name in index.metrics
            },
        )


def shares(step: dict[str, float], cost: dict[str, float]) -> dict[str, float]:
    """Of building anew: of all, and of all but measuring recall on either side."""
    but_recall = [sum(of[name] for name in ("datastore", "index")) for of in (step, cost)]
    return {
        "share": sum(step.values()) / sum(cost.values()),
        "share_but_recall": but_recall[0] / but_recall[1],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("--articles", type=int)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--recall-queries", type=int, default=1000)
    arguments = parser.parse_args()
    stages.search.quality.measure = Measuring.measure  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        run(Timed(Path(folder)), arguments)


def run(timed: Timed, arguments: argparse.Namespace) -> None:
    articles = read_articles(arguments.text, arguments.articles)
    everything = timed.tokens("all", articles)
    cut = [round(n * len(articles) / PARTS) for n in range(PARTS + 1)]
    parts = [
        timed.tokens(f"part-{n}", articles[a:b], everything)
        for n, (a, b) in enumerate(pairwise(cut))
    ]
    shape = {"width": arguments.width, "layers": arguments.layers, "ffn_width": 4 * arguments.width}
    shape |= {"backbone": "transformer", "heads": 4, "max_positions": 128, "positions": "learned"}
    shape |= {"vocab_size": everything.metrics["vocabulary_size"]}
    model = artificial(
        timed.store, Model(), {"tokens": everything}, model=shape, segment_length=128
    )
    lists = IndexConfig(index="ivf-flat", recall=arguments.recall)
    settings = DatastoreConfig(reset="document")

    anew = timed.make(BuildDatastore(), settings, source=model)
    cost = {"datastore": timed.seconds}
    index_anew = timed.make(BuildIndex(), lists, source=anew)
    cost |= timed.index_seconds
    told("built at once", articles=len(articles), rows=anew.metrics["rows"], **cost)

    grown = timed.make(BuildDatastore(), settings, source=model, tokens=parts[0])
    index = timed.make(BuildIndex(), lists, source=grown)
    for part in parts[1:]:
        grown = timed.make(UpdateDatastore(), UpdateConfig(), source=grown, add=part)
        step = {"datastore": timed.seconds}
        index = timed.make(BuildIndex(), lists, source=grown)
        step |= timed.index_seconds
        told("one more tenth", rows=grown.metrics["rows"], queries=index.metrics["queries"], **step)
    share = {f"{name}_share": step[name] / cost[name] for name in step}
    told("the last tenth, of building anew", **share, **shares(step, cost))
    compare_recall("grown in ten steps", index, index_anew, arguments.recall)
    compare("grown in ten steps", grown, anew)

    forgotten = tuple(str(number) for number in range(1, len(articles), 2))
    half = timed.make(UpdateDatastore(), UpdateConfig(forget=forgotten), source=grown)
    step = {"datastore": timed.seconds}
    halved = timed.make(BuildIndex(), lists, source=half)
    step |= timed.index_seconds
    left = timed.tokens("half", articles[::2], everything)
    alone = timed.make(BuildDatastore(), settings, source=model, tokens=left)
    cost = {"datastore": timed.seconds}
    index_alone = timed.make(BuildIndex(), lists, source=alone)
    cost |= timed.index_seconds
    told("cut in half", **step, **shares(step, cost))
    compare_recall("cut in half", halved, index_alone, arguments.recall)
    compare("cut in half", half, alone)


if __name__ == "__main__":
    main()
