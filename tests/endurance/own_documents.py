"""Own documents on one's own machine: made facts and real pages, asked and continued, then half of
them forgotten.

    python -m tests.endurance.own_documents MODEL [--rooms 240] [--asked 200] [--store STORE] \\
        [--when before after] [--ways closed found knn exact both lora] \\
        [--kinds questions beginnings] [--perplexities]

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
from collections.abc import Sequence
from functools import cached_property
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
KINDS = ("questions", "beginnings")
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


class Corpus:
    """Tokens of documents, and what is made of them when it is first asked for."""

    def __init__(self, store: Store, model: str, tokens: str, folder: Path) -> None:
        self.store = store
        self.model = model
        self.tokens = tokens
        self.folder = folder

    @cached_property
    def datastore(self) -> str:
        own = ("--tokens", self.tokens, "--reset", "document")
        return self.store.run("build-datastore", self.model, *own, *WINDOWS)

    @cached_property
    def keys(self) -> str:
        """Index of the datastore."""
        return self.store.run("build-index", self.datastore)

    @cached_property
    def exact(self) -> str:
        """Index of exact matches."""
        return self.store.run("build-index", self.tokens, "--index", "exact")

    def report(self, way: str) -> str:
        """An evaluation whose numbers are tuned on the valid split."""
        words = ["evaluate", self.model if way == "exact" else self.keys]
        if way in ("knn", "both"):
            words += ["--memory", "knn-lm"]
        if way in ("exact", "both"):
            words += ["--memory", "exact", "--index", self.exact]
        return self.store.run(*words, "--tokens", self.tokens, *WINDOWS)

    def way(self, name: str, tuned: "Corpus") -> Way:
        """A way to answer from these documents, with the numbers that were tuned for others."""
        if name in ("closed", "found"):
            texts = passages(self.folder) if name == "found" else ()
            return Way(name, self.model, passages=texts)
        if name == "lora":
            return Way(name, self.learned)
        vectors = () if name == "exact" else (self.datastore, self.keys)
        matches = None if name == "knn" else self.exact
        source = self.model if name == "exact" else self.keys
        parts = (*vectors, *([] if matches is None else [matches]))
        return Way(name, source, tuned.report(name), matches, parts)

    @cached_property
    def learned(self) -> str:
        """The model with factors that learned the documents, for as long as kNN-LM's memory took."""
        sizes = ("--lora", 8, "--lr", "1e-3", "--segment-length", 256, "--batch-tokens", 256)
        begun = ("--init-from", self.model, "--time-of", self.report("knn"))
        return self.store.run("train", self.tokens, *begun, *sizes)

    def perplexity(self, way: str) -> str:
        """A report of the test split."""
        if way in ("knn", "exact", "both"):
            return self.report(way)
        model = self.learned if way == "lora" else self.model
        reading = ("--memory", "none", "--tokens", self.tokens)
        return self.store.run("evaluate", model, *reading, *WINDOWS)


class Left(Corpus):
    """What is left when some documents are forgotten."""

    def __init__(self, before: Corpus, tokens: str, folder: Path) -> None:
        super().__init__(before.store, before.model, tokens, folder)
        self.before = before

    @cached_property
    def datastore(self) -> str:
        beside = self.folder.parent
        forgetting = ("--forget", f"@{beside / 'gone.txt'}", "--receipt", beside / "receipt.json")
        return self.store.run("update-datastore", self.before.datastore, *forgetting)

    @cached_property
    def exact(self) -> str:
        changing = ("--index", "exact", "--update", self.before.exact)
        return self.store.run("build-index", self.tokens, *changing)


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


def answers(store: Store, way: Way, asked: Sequence[Room], kinds: Sequence[str]) -> dict[str, Any]:
    """Scores of a way to answer, and its bytes."""
    memory = None if way.report else "none"
    opened = open_store(store.folder)
    reader = opened.read(way.source, report=way.report, memory=memory, index=way.exact)
    line: dict[str, Any] = {"bytes": store.bytes(*way.parts)}
    questions = [room.question for room in asked]
    if way.passages:
        best = best_passages(way.passages, questions)
        line["found"] = sum(room.code in text for room, text in zip(asked, best, strict=True))
        questions = [text + question for text, question in zip(best, questions, strict=True)]
    if "questions" in kinds:
        line["questions"] = scores(reader, questions, asked)
    if "beginnings" in kinds and not way.passages:
        line["beginnings"] = scores(reader, [room.beginning for room in asked], asked)
    return line


def perplexities(store: Store, report: str) -> dict[str, Any]:
    """Perplexity of the test split, row by row."""
    metrics = json.loads((store.folder / report / "metrics.json").read_text())
    rows = {row["row"]: round(row["perplexity"], 2) for row in metrics["rows"]}
    return {"tokens": metrics["tokens"], "perplexity": rows}


def table(store: Store, checkpoint: str, folder: Path, options: argparse.Namespace) -> None:
    known = rooms(options.rooms)
    write_documents(folder, known)
    public = store.run("tokenize", "--tokenizer", checkpoint, "--train", folder / "public.txt")
    model = store.run("import-model", checkpoint, public)
    splits = ("--valid", folder / "valid.txt", "--test", folder / "test.txt")

    def tokenized(place: str) -> str:
        return store.run("tokenize", "--tokenizer", public, "--train", folder / place, *splits)

    before = Corpus(store, model, tokenized("all"), folder / "all")
    corpora = {"before": before}
    if "after" in options.when:
        corpora["after"] = Left(before, tokenized("left"), folder / "left")
    for when in options.when:
        for name in options.ways:
            line = {"when": when, "way": name}
            if options.kinds:
                # The numbers stay: what is asked is whether a memory still answers.
                way = corpora[when].way(name, before)
                line |= answers(store, way, known[: options.asked], options.kinds)
            if options.perplexities and name != "found":
                line |= perplexities(store, corpora[when].perplexity(name))
            show(line)


def show(line: dict[str, Any]) -> None:
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
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--perplexities", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(options.store or Path(folder) / "store")
        documents = store.folder.parent / "documents"
        shutil.rmtree(documents, ignore_errors=True)
        table(store, options.model, documents, options)


if __name__ == "__main__":
    main()
