"""A stream of tasks that a word decides: each label has words of its own, and tasks share no label
but one.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.episodes import BuildEpisodes
from stages.methods import METHODS
from stages.tasks.episodes import EpisodesConfig
from stages.text.config import TokenizeConfig
from stages.tokenize import Tokenize
from stages.train import Train
from stages.training.config import TrainConfig

TASKS = {"colours": ("red", "blue"), "beasts": ("cat", "dog", "owl"), "moods": ("glad", "blue")}
SMALL: dict[str, Any] = {"layers": 1, "width": 16, "heads": 2, "ffn_width": 16, "dropout": 0.0}


def write_task(folder: Path, labels: tuple[str, ...], counts: dict[str, int]) -> Path:
    """A folder of records `the X of Y is …`, of which the label is a word."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(len(folder.name))
    for split, count in counts.items():
        chosen = random.integers(len(labels), size=count)
        texts = [f"a {folder.name} {labels[one]} {' x' * random.integers(1, 5)}" for one in chosen]
        records = [
            {"label": labels[one], "text": text} for one, text in zip(chosen, texts, strict=True)
        ]
        (folder / f"{split}.jsonl").write_text(
            "".join(json.dumps(record) + "\n" for record in records)
        )
    return folder


def small_stream(store: Store, folder: Path, **settings: Any) -> Artifact:
    """Tokens of all three tasks: 40, 44 and 48 documents to learn from, 20 a test."""
    folders = [
        str(write_task(folder / name, labels, {"train": 40 + 4 * number, "test": 20}))
        for number, (name, labels) in enumerate(TASKS.items())
    ]
    config = TokenizeConfig(tasks=True, tokenizer="word", min_count=1, **settings)
    return make(Tokenize(), config, {"source": folders}, store, Execution()).artifact


def stream_model(store: Store, tokens: Artifact, method: str, **settings: Any) -> Artifact:
    """A model of a method; 8 documents of at most 12 tokens a batch, 5, 5 and 6 updates an epoch."""
    return make(
        Train(), stream_config(method, **settings), {"source": tokens.reference}, store, Execution()
    ).artifact


def stream_config(method: str, **settings: Any) -> TrainConfig:
    small = {"model": SMALL, "segment_length": 12, "batch_tokens": 96, "optimizer": {"lr": 0.005}}
    return TrainConfig.model_validate(
        small | {"method": method, "schedule": {"name": "constant"}} | settings
    )


def keys_of(tokens: Artifact) -> Artifact:
    """Keys by a model of the text alone."""
    store, config = tokens.store, stream_config("lm", epochs=2)
    encoder = make(Train(), config, {"source": tokens.reference}, store, Execution()).artifact
    return make(
        BuildEpisodes(), EpisodesConfig(), {"source": encoder.reference}, store, Execution()
    ).artifact


def learnt_by(method: str, tokens: Artifact) -> Artifact:
    """What a method learns from: tokens, or the keys of their documents."""
    return tokens if "tokens" in METHODS.settings(method).takes else keys_of(tokens)


def bytes_of(artifact: Artifact) -> dict[str, str]:
    """Digests of an artifact's files, but for its journal, which has times."""
    return {
        name: entry["blake2b"]
        for name, entry in artifact.manifest.files.items()
        if name != "training.jsonl" and "log" not in name
    }
