"""Own documents on one's own machine: made facts and real pages, asked and continued, then half of
them forgotten.

    python -m tests.endurance.own_documents MODEL [--rooms 240] [--asked 200] [--store STORE] \\
        [--when before after] [--ways closed found knn exact both lora] [--perplexities]

MODEL is a pretrained model: a folder, FILE.gguf, or hf:NAME. A document is a note ("The code of room
14 is 4F2A."), or a page of memlm's own documentation, which is younger than the model. All
artifacts are made by memlm's commands. `found` puts the passage into the window that BM25 finds;
`lora` is the model with factors that learned the documents for as long as kNN-LM's memory took.
Prints a line of JSON for each way to answer: exact match and F1 of questions and of beginnings, by
whether the document is forgotten later; bytes; processor seconds a token. With --perplexities that
of other notes and pages, too. What was made before is not made again, so ways may be asked one by
one.
"""

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from memlm_cli.notebook import open as open_store
from stages.tasks.answers import exact, word_f1
from stages.text.bm25 import SCORINGS, Bm25Index, term_counts

ROOT = Path(__file__).parents[2]
PAGES = ("compare", "evaluate", "recipes", "which-method")
"""Pages among the documents."""
OTHER_PAGES = {"valid": "shell", "test": "harness"}
WINDOWS = ("--context", "256")
KEEPERS = ("Anna Berg", "Jonas Holm", "Mira Lind", "Paul Voss", "Lena Dahl", "Omar Nasser")
MOST_TOKENS = 8
TOGETHER = 20
"""Texts that are written together."""
WHEN = ("before", "after")
WAYS = ("closed", "found", "knn", "exact", "both", "lora")


class Room(NamedTuple):
    """A made fact."""

    number: int
    code: str
    keeper: str

    @property
    def file(self) -> str:
        return f"room-{self.number}.txt"

    @property
    def note(self) -> str:
        return f"{self.keeper} keeps the key of room {self.number}. {self.beginning} {self.code}.\n"

    @property
    def beginning(self) -> str:
        return f"The code of room {self.number} is"

    @property
    def question(self) -> str:
        return f"Question: What is the code of room {self.number}?\nAnswer:"

    @property
    def retold(self) -> str:
        """The fact in another text."""
        return f"I asked {self.keeper} again. {self.beginning} {self.code}, as before.\n"

    @property
    def is_forgotten(self) -> bool:
        """Whether its note is among the half that is forgotten."""
        return self.number % 2 == 1


def rooms(count: int) -> list[Room]:
    draw = random.Random(0)
    return [
        Room(number, f"{draw.randrange(16**4):04X}", draw.choice(KEEPERS))
        for number in range(1, count + 1)
    ]


def write_documents(folder: Path, known: Sequence[Room]) -> list[str]:
    """Write all documents, those that stay, and the texts to tune and to score.

    Returns: names of the documents to forget.
    """
    documents = {room.file: room.note for room in known}
    pages = {f"{name}.md": _page(name) for name in PAGES}
    gone = [room.file for room in known if room.is_forgotten] + list(pages)[1::2]
    for name, text in (documents | pages).items():
        for place in ("all", "left"):
            if place == "all" or name not in gone:
                path = folder / place / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")

    # Rooms behind the asked ones, of both halves alike.
    for number, (split, page) in enumerate(OTHER_PAGES.items(), start=1):
        told = "".join(room.retold for room in known[-20 * number :][:20])
        (folder / f"{split}.txt").write_text(told + _page(page), "utf-8")
    (folder / "gone.txt").write_text("".join(f"{name}\n" for name in gone), "utf-8")
    (folder / "public.txt").write_text((ROOT / "LICENSE").read_text("utf-8"), "utf-8")
    return gone


def _page(name: str) -> str:
    return (ROOT / f"docs/how-to/{name}.md").read_text("utf-8")


class Store:
    """memlm's commands on one store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: object) -> str:
        """The last line that a command writes, a reference where it makes something."""
        words = [str(word) for word in arguments]
        command = [sys.executable, "-m", "memlm_cli", *words, "--store", str(self.folder)]
        finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        return finished.stdout.splitlines()[-1]

    def bytes(self, *references: str) -> int:
        """Size of some artifacts."""
        folders = (self.folder / reference for reference in references)
        files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files)


class Way(NamedTuple):
    """A way to answer: the artifact that is read, the report whose numbers are taken, and the index
    of exact matches. The model alone has neither.
    """

    name: str
    source: str
    report: str | None = None
    exact: str | None = None
    parts: tuple[str, ...] = ()
    """Artifacts of its memory."""
    passages: tuple[str, ...] = ()
    """Texts of which the best stands before a question."""


class Corpus(NamedTuple):
    """Tokens of documents, and what was made of them."""

    tokens: str
    datastore: str
    keys: str
    """Index of the datastore."""
    exact: str
    """Index of exact matches."""

    def ways(self, model: str, reports: Sequence[str], folder: Path) -> list[Way]:
        """A passage in the window, kNN-LM, exact memory, and both, with the numbers of reports."""
        knn, matches, both = reports
        vectors = (self.datastore, self.keys)
        return [
            Way("found", model, passages=passages(folder)),
            Way("knn", self.keys, knn, None, vectors),
            Way("exact", model, matches, self.exact, (self.exact,)),
            Way("both", self.keys, both, self.exact, (*vectors, self.exact)),
        ]


def passages(folder: Path) -> tuple[str, ...]:
    """Paragraphs of the documents of a folder."""
    texts = (path.read_text("utf-8") for path in sorted(folder.iterdir()))
    return tuple(
        part.strip() + "\n" for text in texts for part in text.split("\n\n") if part.strip()
    )


def best_passages(texts: Sequence[str], questions: Sequence[str]) -> list[str]:
    """The passage that BM25 ranks first for each question."""
    words = [re.findall(r"\w+", text.lower()) for text in (*texts, *questions)]
    numbers = {
        word: number for number, word in enumerate(sorted({w for own in words for w in own}))
    }

    def counted(part: Sequence[list[str]]) -> Any:
        ids = np.array([numbers[word] for own in part for word in own])
        offsets = np.cumsum([0, *map(len, part)])
        return term_counts(ids, offsets, len(numbers))

    index = Bm25Index(counted(words[: len(texts)]), SCORINGS["lucene"])
    nothing = np.zeros((len(questions), 2), np.int64)
    ids, _ = index.find(counted(words[len(texts) :]), 1, nothing)
    return [texts[row] if row >= 0 else "" for row in ids[:, 0]]


def evaluated(store: Store, corpus: Corpus, model: str) -> tuple[str, str, str]:
    """Reports of kNN-LM, exact memory and both, each tuned on the valid split."""
    scoring = ("evaluate", "--tokens", corpus.tokens, *WINDOWS)
    matches = ("--memory", "exact", "--index", corpus.exact)
    return (
        store.run(*scoring, corpus.keys, "--memory", "knn-lm"),
        store.run(*scoring, model, *matches),
        store.run(*scoring, corpus.keys, "--memory", "knn-lm", *matches),
    )


def answered(reader: Any, prompts: Sequence[str]) -> tuple[list[str], float]:
    """The likeliest text behind each prompt, up to the end of a sentence; and seconds a token."""
    options = {"max_tokens": MOST_TOKENS, "temperature": 0, "stop_at_eos": True}
    began = time.process_time()
    written = reader.generate(prompts, **options, stop=[".", "\n", ","], batch_size=TOGETHER)
    seconds = time.process_time() - began
    tokens = sum(len(reader.loaded.text.ids(text)) + 1 for text in written)
    return [text.strip() for text in written], seconds / tokens


def scores(reader: Any, prompts: Sequence[str], asked: Sequence[Room]) -> dict[str, Any]:
    """Exact match and F1 of notes that stay, and of those that are forgotten."""
    answers, seconds = answered(reader, prompts)
    found: dict[str, Any] = {"seconds_a_token": round(seconds, 3)}
    for name, forgotten in (("stays", False), ("forgotten", True)):
        own = [
            (answer, room)
            for answer, room in zip(answers, asked, strict=True)
            if room.is_forgotten == forgotten
        ]
        found[name] = {
            "rooms": len(own),
            "right": sum(exact(answer, [room.code]) for answer, room in own),
            "f1": round(fmean(word_f1(answer, [room.code]) for answer, room in own), 3),
        }
    found["examples"] = answers[:2]
    return found


def answers(
    store: Store, when: str, ways: Sequence[Way], asked: Sequence[Room]
) -> Iterator[dict[str, Any]]:
    """A line for each way to answer."""
    opened = open_store(store.folder)
    for way in ways:
        memory = None if way.report else "none"
        reader = opened.read(way.source, report=way.report, memory=memory, index=way.exact)
        line = {"when": when, "way": way.name, "bytes": store.bytes(*way.parts)}
        questions = [room.question for room in asked]
        if way.passages:
            best = best_passages(way.passages, questions)
            hits = sum(room.code in text for room, text in zip(asked, best, strict=True))
            prompts = [text + question for text, question in zip(best, questions, strict=True)]
            yield line | {"found": hits, "questions": scores(reader, prompts, asked)}
            continue
        line["questions"] = scores(reader, questions, asked)
        line["beginnings"] = scores(reader, [room.beginning for room in asked], asked)
        yield line


def perplexities(store: Store, when: str, reports: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A line for each report: perplexity of the test split, row by row."""
    for report in reports:
        metrics = json.loads((store.folder / report / "metrics.json").read_text())
        rows = {row["row"]: round(row["perplexity"], 2) for row in metrics["rows"]}
        yield {"when": when, "tokens": metrics["tokens"], "perplexity": rows}


def table(store: Store, checkpoint: str, folder: Path, options: argparse.Namespace) -> None:
    known = rooms(options.rooms)
    write_documents(folder, known)
    public = store.run("tokenize", "--tokenizer", checkpoint, "--train", folder / "public.txt")
    model = store.run("import-model", checkpoint, public)
    splits = ("--valid", folder / "valid.txt", "--test", folder / "test.txt")

    def tokenized(place: str) -> str:
        return store.run("tokenize", "--tokenizer", public, "--train", folder / place, *splits)

    tokens = tokenized("all")
    building = ("build-datastore", model, "--tokens", tokens, "--reset", "document", *WINDOWS)
    datastore = store.run(*building)
    contexts = store.run("build-index", tokens, "--index", "exact")
    before = Corpus(tokens, datastore, store.run("build-index", datastore), contexts)
    reports = evaluated(store, before, model)
    asked = known[: options.asked]
    if "before" in options.when:
        ways = [Way("closed", model), *before.ways(model, reports, folder / "all")]
        if "lora" in options.ways:
            ways.append(Way("lora", learned(store, tokens, model, reports[0])))
        show(answers(store, "before", chosen(ways, options.ways), asked))
    if "before" in options.when and options.perplexities:
        show(perplexities(store, "before", reports))
        if "lora" in options.ways:
            taught = learned(store, tokens, model, reports[0])
            report = store.run("evaluate", taught, "--memory", "none", *WINDOWS)
            show(perplexities(store, "before", [report]))
    if "after" not in options.when:
        return

    forgetting = ("--forget", f"@{folder / 'gone.txt'}", "--receipt", folder / "receipt.json")
    left = store.run("update-datastore", datastore, *forgetting)
    tokens = tokenized("left")
    contexts = store.run("build-index", tokens, "--index", "exact", "--update", contexts)
    after = Corpus(tokens, left, store.run("build-index", left), contexts)
    # The numbers stay: what is asked is whether a memory still answers.
    ways = after.ways(model, reports, folder / "left")
    show(answers(store, "after", chosen(ways, options.ways), asked))
    if options.perplexities:
        show(perplexities(store, "after", evaluated(store, after, model)))


def learned(store: Store, tokens: str, model: str, report: str) -> str:
    """The model with factors that learned the documents, for as long as a report's memory took."""
    factors = ("--lora", 8, "--lr", "1e-3", "--segment-length", 256, "--batch-tokens", 256)
    return store.run("train", tokens, "--init-from", model, *factors, "--time-of", report)


def chosen(ways: Sequence[Way], names: Sequence[str]) -> list[Way]:
    return [way for way in ways if way.name in names]


def show(found: Iterator[dict[str, Any]]) -> None:
    for line in found:
        print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--rooms", type=int, default=240)
    parser.add_argument("--asked", type=int, default=200)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--when", nargs="+", choices=WHEN, default=WHEN)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--perplexities", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(options.store or Path(folder) / "store")
        documents = store.folder.parent / "documents"
        shutil.rmtree(documents, ignore_errors=True)
        table(store, options.model, documents, options)


if __name__ == "__main__":
    main()
