"""A store in which several artifacts hold `mary.txt`, and `anna.txt` has a part of it."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution, Stage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.evaluate import Evaluate
from stages.evaluation.config import EvaluateConfig
from stages.index import BuildIndex, IndexConfig
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.pack import PackBatches
from stages.text.config import PackConfig, TokenizeConfig
from stages.tokenize import Tokenize
from tests.stages.small_text import text_model

WORDS = [a + b for a in ("ka", "lo", "mi", "su") for b in ("ba", "du", "fe", "gi", "ho", "ny")]
KEY = "9f86d081884c7d65"
"""A secret that only `mary.txt` has."""


def story(seed: int, lines: int = 12) -> str:
    """Lines of ten words."""
    random = np.random.default_rng(seed)
    return "".join(" ".join(random.choice(WORDS, 10)) + "\n" for _ in range(lines))


def made(store: Store, stage: Stage[Any], config: StageConfig, **references: Any) -> Artifact:
    named = {name: getattr(one, "reference", one) for name, one in references.items()}
    return make(stage, config, named, store, Execution("cpu")).artifact


def tokenized(
    store: Store, folder: Path, texts: dict[str, str], of: Artifact | None = None, **settings: Any
) -> Artifact:
    """Tokens of documents by name; the last one is also the split `valid`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    files = [str(folder / name) for name in texts]
    references: dict[str, Any] = {"train": files, "valid": files[-1:]}
    if of is None:
        return made(store, Tokenize(), TokenizeConfig(**settings), **references)
    return made(store, Tokenize(), TokenizeConfig(), **references, tokenizer=of)


def indexed(store: Store, source: Artifact, **settings: Any) -> Artifact:
    return made(store, BuildIndex(), IndexConfig(**settings), source=source)


def documents() -> dict[str, str]:
    """Documents by name. The key is spelled in letters, which no vocabulary has as one token."""
    lines = story(1).splitlines(keepends=True)
    lines[6] = f"the key is {KEY} and no other\n"
    copied = "".join(lines[2:9])
    return {
        "john.txt": story(2),
        "mary.txt": "".join(lines),
        "anna.txt": story(3, 4) + copied + story(4, 3),
        "zoe.txt": story(5),
    }


class Held:
    """The artifacts of the store."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.public = tokenized(store, folder / "public", {"a": story(8, 40), "b": story(9)})
        self.model = text_model(store, self.public)
        self.tokens = tokenized(store, folder / "private", documents(), of=self.public)
        self.learned = text_model(store, self.tokens)
        by_document = DatastoreConfig(reset="document")
        self.datastore = made(
            store, BuildDatastore(), by_document, source=self.model, tokens=self.tokens
        )
        self.index = indexed(store, self.datastore)
        self.exact = indexed(store, self.tokens, index="exact")
        self.neighbors = made(
            store,
            PrecomputeNeighbors(),
            NeighborsConfig(k=2),
            source=self.index,
            tokens=self.tokens,
        )
        self.batches = made(store, PackBatches(), PackConfig(segment_length=16), source=self.tokens)
        scoring = {"split": "train", "memory": ("none",), "tune_split": None}
        self.report = made(
            store,
            Evaluate(),
            EvaluateConfig(**scoring, save_token_scores=True),
            source=self.learned,
        )
        self.figures = made(store, Evaluate(), EvaluateConfig(**scoring), source=self.learned)

    def holders(self) -> Iterable[Artifact]:
        """The artifacts that hold `mary.txt`."""
        return (
            *(self.tokens, self.learned, self.datastore, self.index, self.exact),
            *(self.neighbors, self.batches, self.report),
        )


@pytest.fixture(scope="session")
def held(tmp_path_factory: pytest.TempPathFactory) -> Held:
    """A store that no test changes."""
    folder = tmp_path_factory.mktemp("held")
    return Held(Store(folder / "store"), folder)


@pytest.fixture
def own_store(held: Held, tmp_path: Path) -> Store:
    """A copy of the store that a test may change."""
    shutil.copytree(held.store.root, tmp_path / "store")
    return Store(tmp_path / "store")
