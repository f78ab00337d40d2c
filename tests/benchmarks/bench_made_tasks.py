"""What memories of layers are good for: made tasks with known chance levels, as text, learnt by
`memlm train`.

    python -m tests.benchmarks.bench_made_tasks TASK FOLDER [--seeds 0 1 2 --updates 2000 \\
        --models NAME …]

A document is a line of words. Every word is predicted, as in any text; scored are those that a
question asks for. A seed is one of the documents, the weights and the order. A line a model, a seed
and a reading: `right` is the share of answers that have more than half of the probability, `nats`
the loss of an answer, `rest` that of all other words, `seconds` the processor time of the training.
FOLDER holds the texts and the store; what is there is not made again.

`beginnings`: one of 8 names stands once in the first segment of 8 words, and is asked for at the
end. Documents of 48 words are learnt, longer ones are read, too, with as long a memory. `look-up`:
`a:b` states one of 16 values for one of 32 names; `?a` asks for the pair. *Near* was stated within
64 words, *far* beyond the 128 that a layer reaches. `commoner`: of words whose frequencies shift,
which of two was the commoner so far; scored is the last quarter of a document. `facts`: a word for
each pair of words, which the answers repeat. `delay` and `copy`: every word is that of 16 words
before, one of 16. With segments of 8 it stands two segments back, where a Memformer has slots
alone; with those of 16 in the segment before, where a bottleneck has memory tokens alone.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stages.artifacts.store import Store
from stages.evaluation.figures.token_scores import open_scores

Parts = dict[str, np.ndarray]
"""Which words of the documents are asked for, bool [documents, words + 1], by the name of the kind
of question.
"""


@dataclass(frozen=True)
class Task:
    """Makes documents of a length; and how they are learnt and read."""

    make: Callable[[int, int, np.random.Generator], tuple[list[list[str]], Parts]]
    documents: int
    tested: int
    lengths: Sequence[int]
    """Words of a document with its end: those that are learnt, then those that are read as well."""
    train: Sequence[str]
    models: dict[str, tuple[Sequence[str], Sequence[int | None]]]
    """Words of `train`, and the `--long-length` of each reading; None: that of training, or the
    document's.
    """
    grows: bool = False
    """Whether the memory is as long as the document that is read."""


def beginnings(
    rows: int, length: int, random: np.random.Generator
) -> tuple[list[list[str]], Parts]:
    documents = [
        [f"w{word}" for word in row] for row in random.integers(8, size=(rows, length - 1))
    ]
    for document in documents:
        name = f"n{random.integers(8)}"
        document[random.integers(7)] = (
            name  # the first segment begins with the end of the document before
        )
        document[-2:] = "?", name
    asked = np.zeros((rows, length), bool)
    asked[:, length - 2] = True
    return documents, {"end": asked}


NAMES, VALUES, EVERY = 32, 16, 8


def look_up(rows: int, length: int, random: np.random.Generator) -> tuple[list[list[str]], Parts]:
    """Each name is stated once, in the first half; an answer states its pair again."""
    documents, back = list[list[str]](), np.zeros((rows, length), np.int64)
    places = np.array([place for place in range(length // 2) if place % EVERY not in (0, 1)])
    for row in range(rows):
        document = [f"o{word}" for word in random.integers(VALUES, size=length - 1)]
        stated, values = (
            np.sort(random.choice(places, NAMES, replace=False)),
            random.integers(VALUES, size=NAMES),
        )
        names, last = random.permutation(NAMES), stated.copy()
        for place, name, value in zip(stated, names, values, strict=True):
            document[place] = f"{name}:{value}"
        for place in range(int(stated[0]) // EVERY * EVERY + EVERY, length - 2, EVERY):
            which = random.integers(int(np.searchsorted(stated, place)))
            document[place : place + 2] = f"?{names[which]}", f"{names[which]}:{values[which]}"
            back[row, place + 1], last[which] = place + 1 - last[which], place + 1
        documents.append(document)
    return documents, {"near": (back > 0) & (back <= 64), "far": back > 128}


TYPES, SEGMENT, QUESTIONS = 20, 64, 2


def commoner(rows: int, length: int, random: np.random.Generator) -> tuple[list[list[str]], Parts]:
    """Words of (1 - t) p_0 + t p_1, t from 0 to 1 along the document, and `? a b c` twice at the
    end of each segment.

    Source: a small form of the sorting task of Martins et al. 2022 (∞-former, arXiv:2109.00301),
    section 4.1.
    """
    documents, asked, own = (
        list[list[str]](),
        np.zeros((rows, length), bool),
        SEGMENT - 4 * QUESTIONS,
    )
    for row in range(rows):
        first, last = random.dirichlet(np.full(TYPES, 0.5), 2)
        counts, document = np.zeros(TYPES, np.int64), list[str]()
        for start in range(0, length, SEGMENT):
            t = (start + np.arange(own)[:, None]) / length
            ends = ((1 - t) * first + t * last).cumsum(1)
            drawn = (random.random((own, 1)) * ends[:, -1:] > ends).sum(1)
            counts += np.bincount(drawn, minlength=TYPES)
            document += [f"w{word}" for word in drawn]
            for _ in range(QUESTIONS):
                a, b = two_of_other_counts(counts, random)
                document += ["?", f"w{a}", f"w{b}", f"w{a if counts[a] > counts[b] else b}"]
                asked[row, len(document) - 1] = len(document) >= length * 3 // 4
        asked[row, -1] = False  # where the document ends
        documents.append(document[:-1])
    return documents, {"late": asked}


def two_of_other_counts(counts: np.ndarray, random: np.random.Generator) -> tuple[int, int]:
    """Two types, one of them commoner than the other."""
    while True:
        a, b = random.choice(len(counts), 2, replace=False).tolist()
        if counts[a] != counts[b]:
            return a, b


def facts(rows: int, length: int, random: np.random.Generator) -> tuple[list[list[str]], Parts]:
    """All pairs of as many words that there are `rows` of them; those of two calls are the same."""
    types, fixed = round(rows**0.5), np.random.default_rng(rows)
    answers = fixed.integers(types, size=(types, types))
    order = random.permutation(types * types)
    documents = [
        [f"w{a}", f"w{b}", f"w{answers[a, b]}"] for a, b in zip(*divmod(order, types), strict=True)
    ]
    asked = np.zeros((len(documents), length), bool)
    asked[:, 2] = True
    return documents, {"all": asked}


TYPES_REPEATED, PERIOD = 16, 16


def repeated(rows: int, length: int, random: np.random.Generator) -> tuple[list[list[str]], Parts]:
    """Random words, again and again."""
    drawn = random.integers(TYPES_REPEATED, size=(rows, PERIOD))
    documents = [[f"w{row[place % PERIOD]}" for place in range(length - 1)] for row in drawn]
    asked = np.zeros((rows, length), bool)
    asked[:, PERIOD : length - 1] = True
    return documents, {"again": asked}


def words(text: str) -> list[str]:
    return text.split()


def model(*settings: str) -> list[str]:
    return [word for one in settings for word in ("--set", f"model.{one}")]


def attention(name: str, *settings: str) -> list[str]:
    return model(*(f"attention.{one}" for one in (f"name={name}", *settings)))


SIGNAL = ("sticky=false", "contraction=0.75")
XL = ["--backbone", "transformer-xl", *model("dropout=0", "cutoffs=[]")]
TASKS = {
    "beginnings": Task(
        beginnings,
        4096,
        512,
        (48, 192, 768),
        [
            *XL,
            *model("layers=1", "width=32", "heads=2", "ffn_width=64"),
            *words("--segment-length 8 --mem-length 8 --batch-tokens 512 --lr 0.01"),
        ],
        {
            "transformer-xl": ([], (None,)),
            "memorizing": (attention("memorizing", "neighbors=8", "long_length=48"), (None,)),
            "compressive": (attention("compressive", "long_length=12", "rate=4"), (None,)),
            "infinity": (
                attention("infinity", "basis=16", "samples=16", "widths=[0.05, 0.1]", *SIGNAL),
                (None,),
            ),
        },
        grows=True,
    ),
    "look-up": Task(
        look_up,
        2048,
        64,
        (1024,),
        [
            *XL,
            *model("layers=1", "width=48", "heads=4", "ffn_width=96"),
            *words("--segment-length 64 --mem-length 64 --batch-tokens 2048 --lr 0.005"),
        ],
        {
            "transformer-xl": ([], (None,)),
            "memorizing": (attention("memorizing", "long_length=512"), (0, 512, 1024)),
            "compressive": (attention("compressive", "long_length=128", "rate=4"), (None,)),
            "infinity": (attention("infinity", "basis=128", "samples=128", *SIGNAL), (None,)),
        },
    ),
    "commoner": Task(
        commoner,
        1024,
        128,
        (1024,),
        [
            *XL,
            *model("layers=2", "width=64", "heads=4", "ffn_width=128"),
            *words("--segment-length 64 --batch-tokens 2048 --lr 0.005"),
        ],
        {
            "transformer-xl": (["--mem-length", "64"], (None,)),
            "transformer-xl-320": (["--mem-length", "320"], (None,)),
            "compressive": (
                [
                    "--mem-length",
                    "64",
                    *attention("compressive", "long_length=256", "compression=mean"),
                ],
                (None,),
            ),
            "infinity": (
                [
                    "--mem-length",
                    "64",
                    *attention(
                        "infinity", "basis=64", "samples=64", "widths=[0.02, 0.05]", *SIGNAL
                    ),
                ],
                (None,),
            ),
        },
    ),
    "delay": Task(
        repeated,
        4096,
        256,
        (64,),
        [
            *words("--backbone memformer --segment-length 8 --lr 0.003"),
            *model(
                "dropout=0",
                "cutoffs=[]",
                "layers=2",
                "width=64",
                "heads=4",
                "ffn_width=128",
                "slots=16",
            ),
        ],
        {
            "memformer": (words("--batch-tokens 128 --accumulate 4"), (None,)),
            "memformer, T = 1": (words("--batch-tokens 512 --accumulate 1"), (None,)),
            "without slots": (
                [*words("--batch-tokens 128 --accumulate 4"), *model("slots=0")],
                (None,),
            ),
        },
    ),
    "copy": Task(
        repeated,
        4096,
        256,
        (64,),
        [
            *words(
                "--backbone memory-transformer --segment-length 16 --mem-length 16 --batch-tokens 512 --lr 0.003"
            ),
            *model("dropout=0", "cutoffs=[]", "layers=2", "width=64", "heads=4", "ffn_width=128"),
        ],
        {
            **{
                f"bottleneck, m = {m}": (
                    model("memory_rows=bottleneck", f"memory_tokens={m}"),
                    (None,),
                )
                for m in (0, 1, 2, 4, 8, 16)
            },
            "shared, m = 4": (model("memory_tokens=4"), (None,)),
            "controller, m = 4": (model("memory_rows=controller", "memory_tokens=4"), (None,)),
        },
    ),
    "facts": Task(
        facts,
        1 << 14,
        1 << 14,
        (4,),
        [
            *model("layers=2", "width=64", "heads=4", "ffn_width=256", "dropout=0", "cutoffs=[]"),
            *words("--segment-length 4 --batch-tokens 2048 --lr 0.003"),
        ],
        {
            "dense": ([], (None,)),
            "product-keys": (
                model(
                    *(
                        f"feed_forward.{one}"
                        for one in ("name=product-keys", "sub_keys=64", "value_lr=1e-2")
                    )
                ),
                (None,),
            ),
        },
    ),
}


class Bench:
    """A task in a folder of its own."""

    def __init__(self, name: str, folder: Path, updates: int) -> None:
        self.task, self.folder, self.updates = TASKS[name], folder / name, updates
        self.store = self.folder / "store"

    def run(self, name: str, seed: int) -> Iterator[dict[str, object]]:
        """Train a model and read it."""
        task, short = self.task, self.task.lengths[0]
        tokens, parts = self._tokens(seed, short)
        settings, long_lengths = task.models[name]
        length = words(
            f"--set optimizer.weight_decay=0 --set valid_every={self.updates} --steps {self.updates} --seed {seed}"
        )
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        trained = self._memlm("train", tokens, *task.train, *settings, *length)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = round(ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime)
        for read in task.lengths:
            of_read, parts = self._tokens(seed, read, None if read == short else tokens)
            for long_length in long_lengths:
                longer = long_length
                if task.grows and settings and read != short:
                    longer = (
                        read // 4
                        if name == "compressive"
                        else read
                        if name == "memorizing"
                        else None
                    )
                memory = [] if longer is None else ["--long-length", str(longer)]
                report = self._memlm(
                    "evaluate", trained, *words(f"--save-token-scores --tokens {of_read}"), *memory
                )
                scores = open_scores(Store(self.store).get(report, "report"), "final")
                row = {
                    "model": name,
                    "seed": seed,
                    "length": read,
                    "read": long_length,
                    "seconds": seconds,
                }
                yield row | figures(scores.nll(0, len(scores)), parts)

    def _tokens(self, seed: int, length: int, tokenizer: str | None = None) -> tuple[str, Parts]:
        """Tokens of documents of a length, and which of those of test are asked for."""
        folder, files, parts = self.folder / f"{seed}-{length}", list[str](), Parts()
        folder.mkdir(parents=True, exist_ok=True)
        splits = [("test", max(32, self.task.tested * self.task.lengths[0] // length))]
        if tokenizer is None:
            splits = [
                ("train", self.task.documents),
                ("valid", 64 if self.task.make is not facts else 4096),
                *splits,
            ]
        for at, (split, rows) in enumerate(splits):
            documents, parts = self.task.make(
                rows, length, np.random.default_rng([seed, length, at])
            )
            (folder / f"{split}.txt").write_text("".join(" ".join(one) + "\n" for one in documents))
            files += [f"--{split}", str(folder / f"{split}.txt")]
        kind = ["--tokenizer", tokenizer or "word", "--documents", "line"]
        return self._memlm("tokenize", *kind, *files), parts

    def _memlm(self, *given: str) -> str:
        command = [
            sys.executable,
            "-m",
            "memlm_cli",
            *given,
            "--store",
            str(self.store),
            "--device",
            "cpu",
        ]
        ended = subprocess.run(
            command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True
        )
        if ended.returncode:
            raise RuntimeError(f"{' '.join(command)}: {ended.stderr}")
        return ended.stdout.strip()


def figures(nll: np.ndarray, parts: Parts) -> dict[str, object]:
    """Of each kind of question the share that is answered, and nats an answer; nats of the other
    words.
    """
    found: dict[str, object] = {}
    for part, asked in parts.items():
        own = nll[asked.ravel()]
        found |= {
            f"right, {part}": round(float((own < np.log(2)).mean()), 3),
            f"nats, {part}": round(own.mean(), 3),
        }
    return found | {
        "rest": round(float(nll[~np.any([asked.ravel() for asked in parts.values()], 0)].mean()), 3)
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=list(TASKS))
    parser.add_argument("folder", type=Path, help="for the texts, and the store")
    parser.add_argument(
        "--updates", type=int, default=2000, help="of 2,048 words; of beginnings, of 512"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--models", nargs="+")
    given = parser.parse_args()
    bench = Bench(given.task, given.folder, given.updates)
    for seed in given.seeds:
        for name in given.models or bench.task.models:
            for row in bench.run(name, seed):
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
