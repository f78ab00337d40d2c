"""A pretrained model on novels, Python's documentation and captions, with the datastore of each.

    python -m tests.endurance.domains MODEL DATA [--store STORE]     MODEL: a folder, FILE.gguf, or hf:NAME

DATA holds `novels/novels.jsonl.xz` (fields `split`, `text`) and
`multi30k/{train,val,test_2016_flickr}.en.gz`; the documentation is Python's own help on the
language. Nothing is trained: kNN-LM reads each text through a datastore of each domain, made by the
same commands. Prints one table; takes half an hour for a model of 135M weights on two cores.
"""

import argparse
import gzip
import json
import lzma
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

CHARACTERS = {"train": 150_000, "valid": 40_000, "test": 30_000}
CONTEXT = ["--context", "512"]


def novels(data: Path) -> dict[str, list[str]]:
    """Of each split all books, as much of every one."""
    with lzma.open(data / "novels/novels.jsonl.xz", "rt", encoding="utf-8") as file:
        books = [json.loads(line) for line in file]
    texts = {
        split: [book["text"] for book in books if book["split"] == split] for split in CHARACTERS
    }
    return {
        split: [text[: CHARACTERS[split] // len(own)] for text in own]
        for split, own in texts.items()
    }


def documentation(data: Path) -> dict[str, list[str]]:
    """Pages by name: of every ten two are valid and two are test; no paragraph stands there twice."""
    splits = ["train"] * 6 + ["valid"] * 2 + ["test"] * 2
    pages: dict[str, list[str]] = {split: [] for split in CHARACTERS}
    seen = set[str]()
    for number, name in enumerate(sorted(topics)):
        paragraphs = [one for one in topics[name].split("\n\n") if one not in seen]
        seen.update(paragraphs)
        pages[splits[number % len(splits)]].append("\n\n".join(paragraphs))
    return pages


def captions(data: Path) -> dict[str, list[str]]:
    files = {"train": "train.en.gz", "valid": "val.en.gz", "test": "test_2016_flickr.en.gz"}
    return {
        split: gzip.open(data / "multi30k" / name, "rt", encoding="utf-8").read().splitlines()
        for split, name in files.items()
    }


DOMAINS = {"novels": novels, "documentation": documentation, "captions": captions}


def records(texts: Iterable[str], most: int) -> Iterator[str]:
    """One JSON object a text, as many as make up `most` characters."""
    for text in texts:
        if most <= 0:
            return
        yield json.dumps({"text": text[:most]}) + "\n"
        most -= len(text)


class Store:
    """memlm's commands on one store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: str) -> str:
        """The last line that a command writes, a reference where it makes something."""
        command = [sys.executable, "-m", "memlm_cli", *arguments, "--store", str(self.folder)]
        lines = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.splitlines()
        return lines[-1]

    def metrics(self, reference: str) -> Any:
        """Those of a report."""
        return json.loads((self.folder / reference / "metrics.json").read_text())


def tokenize(store: Store, model: str, name: str, data: Path) -> str:
    texts = DOMAINS[name](data)
    arguments = ["tokenize", "--tokenizer", model, "--name", name]
    with tempfile.TemporaryDirectory() as folder:
        for split, most in CHARACTERS.items():
            file = Path(folder, f"{split}.jsonl")
            file.write_text("".join(records(texts[split], most)), encoding="utf-8")
            arguments += [f"--{split}", str(file)]
        return store.run(*arguments)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table(Store(options.store or Path(folder)), options.model, options.data)


def table(store: Store, checkpoint: str, data: Path) -> None:
    tokens = {name: tokenize(store, checkpoint, name, data) for name in DOMAINS}
    model = store.run("import-model", checkpoint, tokens["novels"])
    indexes = {}
    for name in DOMAINS:
        datastore = store.run("build-datastore", model, "--tokens", tokens[name], *CONTEXT)
        indexes[name] = store.run("build-index", datastore)
    for text in DOMAINS:
        for name, index in indexes.items():
            memory = ["--memory", "knn-lm"] + (["--memory", "neural-cache"] if name == text else [])
            given = ["--tokens", tokens[text], "--split", "test", *CONTEXT, *memory]
            report = store.run("evaluate", index, *given, "--save-token-scores")
            metrics = store.metrics(report)
            rows = {row["row"]: round(row["perplexity"], 2) for row in metrics["rows"]}
            repeated = metrics["outside_repeated_paragraphs"]["repeated_share"]
            told = {
                "text": text,
                "tokens": metrics["tokens"],
                "also in a datastore": round(repeated, 3),
            }
            print(json.dumps({**told, "datastore": name, "report": report, **rows}), flush=True)


if __name__ == "__main__":
    main()
