"""A tiny pipeline, made once and undisturbed: what every attack begins from, and what its results
must equal.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.endurance.campaign.process import Child
from tests.stages.small_text import story

LINES = {"train": 60, "valid": 15, "test": 15}
MORE_LINES = 24
"""Of `more.txt`, which a datastore grows by."""
BY_PARAGRAPH = ["--documents", "blank-line"]
FILES = [part for split in LINES for part in (f"--{split}", f"{split}.txt")]
TINY = [
    *(
        "--steps",
        "12",
        "--segment-length",
        "8",
        "--batch-tokens",
        "32",
        "--checkpoint-seconds",
        "0.01",
    ),
    *(f"--set=model.{name}" for name in ("layers=1", "width=8")),
]
TRANSFORMER = [f"--set=model.{name}" for name in ("heads=2", "ffn_width=16")]
STAGES = {
    "tokens": ["tokenize", *FILES, *BY_PARAGRAPH],
    "model": ["train", "{tokens}", *TINY, *TRANSFORMER],
    "datastore": ["build-datastore", "{model}"],
    "index": ["build-index", "{datastore}"],
    "neighbors": ["precompute-neighbors", "{index}"],
    "batches": ["pack-batches", "{tokens}", "--segment-length", "8"],
    "report": ["evaluate", "{neighbors}", "--save-token-scores"],
    "bpe": [
        "tokenize",
        "train.txt",
        "--documents",
        "line",
        "--tokenizer",
        "bpe",
        "--vocab-size",
        "280",
    ],
    "lstm": ["train", "{tokens}", "--backbone", "lstm", *TINY],
    "xl": ["train", "{tokens}", "--backbone", "transformer-xl", *TINY, *TRANSFORMER],
    "states": ["build-datastore", "{lstm}"],
    "ivf": ["build-index", "{states}", "--index", "IVF4,Flat"],
    "spalm": ["train", "{neighbors}", "--method", "spalm", *TINY, *TRANSFORMER],
    "trime": ["train", "{batches}", "--method", "trime-ext", *TINY, *TRANSFORMER],
    "gated": ["evaluate", "{spalm}"],
    "recent": ["evaluate", "{lstm}", "--memory", "neural-cache", "--save-token-scores"],
    "more": ["tokenize", "--train", "more.txt", *BY_PARAGRAPH, "--tokenizer", "{tokens}"],
    "grown": ["update-datastore", "{states}", "--add", "{more}"],
    "grown-ivf": ["build-index", "{grown}", "--index", "IVF4,Flat", "--update", "{ivf}"],
    "cut": ["update-datastore", "{grown}", "--forget", "1", "--forget", "3-5"],
    "cut-ivf": ["build-index", "{cut}", "--index", "IVF4,Flat", "--update", "{grown-ivf}"],
    "exchanged": ["update-datastore", "{datastore}", "--add", "{more}", "--forget", "2-4"],
    "merged": ["build-index", "{datastore}", "--merge", "{neighbors}", "--index", "IVF4,Flat"],
    "few": ["build-index", "{cut}", "--keep", "0.5", "--index", "IVF4,SQ8"],
    "contexts": ["build-index", "{tokens}", "--index", "exact"],
    "more-contexts": ["build-index", "{more}", "--index", "exact", "--update", "{contexts}"],
    "matched": ["evaluate", "{model}", "--memory", "exact:lambda=0.3", "--save-token-scores"],
}
"""The pipeline's commands by the name of what they make; `{name}` stands for an earlier reference.
"""
CHANGES = ["grown", "grown-ivf", "cut", "cut-ivf", "exchanged", "few", "more-contexts"]
"""Stages that make a datastore, or an index, out of the one before."""


@dataclass(frozen=True)
class Made:
    """A stage as it ran undisturbed."""

    reference: str
    seconds: float
    events: int


class World:
    """A store with everything in it."""

    def __init__(self, folder: Path) -> None:
        """Make the whole pipeline in `folder`. Raises RuntimeError if a stage fails."""
        self.folder = folder
        self.store = folder / "store"
        write_texts(folder)
        self.made: dict[str, Made] = {}
        for name in STAGES:
            ended = Child(self.arguments(name), folder).wait()
            if ended.code != 0:
                raise RuntimeError(f"{name}, undisturbed, ended with {ended.code}:\n{ended.err}")
            self.made[name] = Made(ended.reference, ended.seconds, ended.events)

    def arguments(self, name: str) -> list[str]:
        """The command of a stage."""
        return [self.filled(part) for part in STAGES[name]]

    def filled(self, text: str) -> str:
        """The reference of a stage for `{name}`, any other text as it is."""
        return (
            self.made[text[1:-1]].reference if text[:1] == "{" and text[1:-1] in self.made else text
        )

    def manifest(self, reference: str) -> dict[str, object]:
        content: dict[str, object] = json.loads(
            (self.store / reference / "manifest.json").read_text()
        )
        return content

    def ancestors(self, reference: str) -> set[str]:
        """All that an artifact was made from."""
        inputs = self.manifest(reference)["inputs"]
        assert isinstance(inputs, dict)
        direct = {f"{record['kind']}/{record['id']}" for record in inputs.values()}
        return direct.union(*map(self.ancestors, direct))

    def copy(self, store: Path, references: set[str] | None = None) -> None:
        """A copy of the store, or of these artifacts alone."""
        if references is None:
            shutil.copytree(self.store, store)
        for reference in references or ():
            shutil.copytree(self.store / reference, store / reference)


def write_texts(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, lines) in enumerate((LINES | {"more": MORE_LINES}).items()):
        (folder / f"{name}.txt").write_text(story(lines, seed))
