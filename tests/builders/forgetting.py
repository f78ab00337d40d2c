"""Datastores and indexes of which something is to be forgotten."""

from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.index import BuildIndex, IndexConfig
from stages.text.config import TokenizeConfig
from stages.tokenize import Tokenize
from tests.builders.limits import limit
from tests.stages.notes import Notes
from tests.stages.small_text import text_model

WORDS = [
    f"{a}{b}"
    for a in ("ka", "lo", "mi", "su", "te", "ro")
    for b in ("ba", "du", "fe", "gi", "ho", "ju", "ny")
]


def story(seed: int, words: int = 60) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, words)) + "\n"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    limit(monkeypatch, shard_bytes=100 * 16, index_part_bytes=3 * 100 * 16)
    return Store(tmp_path / "store")


def tokens_of(store: Store, folder: Path, *seeds: int, of: Artifact | None = None) -> Artifact:
    """Documents, each a file that is called by its seed."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{seed}.txt" for seed in seeds]
    for seed, file in zip(seeds, files, strict=True):
        file.write_text(story(seed), encoding="utf-8")
    references = {"train": [str(file) for file in files], "valid": [str(files[0])]}
    config = TokenizeConfig(tokenizer="word")
    if of is not None:
        config, references = TokenizeConfig(), references | {"tokenizer": of.reference}
    return make(Tokenize(), config, references, store, Execution()).artifact


def made(
    store: Store,
    stage,
    config,
    source: Artifact,
    notes: Notes | None = None,
    **others: Artifact | str,
) -> Artifact:
    references = {
        name: getattr(one, "reference", one) for name, one in {"source": source, **others}.items()
    }
    return make(
        stage, config, references, store, Execution("cpu", reporter=notes or Notes())
    ).artifact


def indexed(
    store: Store,
    datastore: Artifact,
    notes: Notes | None = None,
    update: str | None = None,
    **settings,
):
    config = IndexConfig(**{"index": "ivf-flat", "lists": 8, "probe": 4, "recall": 50, **settings})
    return made(
        store,
        BuildIndex(),
        config,
        datastore,
        notes,
        **({} if update is None else {"update": update}),
    )


def built(store: Store, folder: Path, *, reset: str = "document", seeds=range(1, 9)) -> Artifact:
    learned = tokens_of(store, folder / "public", *range(90, 96))
    model = text_model(store, learned)
    tokens = tokens_of(store, folder / "private", *seeds, of=learned)
    return made(store, BuildDatastore(), DatastoreConfig(reset=reset), model, tokens=tokens)
