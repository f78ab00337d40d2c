"""Small artifacts made of real text, for tests of what shows text."""

import random
from pathlib import Path
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.index import BuildIndex
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.search.config import IndexConfig
from stages.text.config import TokenizeConfig
from stages.tokenize import Tokenize
from tests.builders.once import make_once
from tests.stages.small_store import ModelConfig, small_model

WORDS = ["the", "cat", "dog", "sees", "and", "runs", "hen", "a", "pig"]
LSTM = {"backbone": "lstm", "layers": 2, "width": 8, "dropout": 0.0}
SRU = {
    "backbone": "sru++",
    "layers": 2,
    "width": 8,
    "dropout": 0.0,
    "segment_length": 8,
    "mem_length": 5,
}
MEMFORMER = {
    **{
        "backbone": "memformer",
        "layers": 1,
        "encoder_layers": 1,
        "width": 8,
        "heads": 2,
        "ffn_width": 8,
    },
    **{"slots": 3, "dropout": 0.0, "segment_length": 8},
}
MEMORY_TOKENS = {
    **{
        "backbone": "memory-transformer",
        "layers": 2,
        "width": 8,
        "heads": 2,
        "ffn_width": 8,
        "dropout": 0.0,
    },
    **{"memory_tokens": 3, "memory_rows": "bottleneck", "segment_length": 8, "mem_length": 5},
}
TRANSFORMER_XL = {
    **{
        "backbone": "transformer-xl",
        "layers": 2,
        "width": 8,
        "heads": 2,
        "ffn_width": 16,
        "dropout": 0.0,
    },
    **{"segment_length": 8, "mem_length": 5},
}


def story(lines: int, seed: int) -> str:
    """Lines of a few words, in documents of three lines with a blank line between them."""
    random_ = random.Random(seed)
    made = [" ".join(random_.choices(WORDS, k=random_.randint(2, 5))) for _ in range(lines)]
    return "".join(line + ("\n\n" if number % 3 == 2 else "\n") for number, line in enumerate(made))


def text_tokens(store: Store, folder: Path, tokenizer: str = "word", **settings: Any) -> Artifact:
    """Tokens of three stories: train of 27 lines, valid and test of 9."""
    paths = {}
    for seed, (split, lines) in enumerate({"train": 27, "valid": 9, "test": 9}.items()):
        path = folder / f"{split}.txt"
        path.write_text(story(lines, seed), encoding="utf-8")
        paths[split] = [str(path)]
    config = TokenizeConfig(tokenizer=tokenizer, documents="blank-line", **settings)
    return make_once(Tokenize(), config, paths, store)


def text_model(
    store: Store, tokens: Artifact, model: dict[str, Any] | None = None, **settings: Any
) -> Artifact:
    """A model with random weights that reads these tokens eight at a time."""
    made = (model or ModelConfig().model) | {"vocab_size": tokens.metrics["vocabulary_size"]}
    return small_model(store, tokens, model=made, **settings)


def built_index(
    store: Store, model: Artifact, datastore: dict[str, Any] | None = None, **settings: Any
) -> Artifact:
    """An exact index of a model's own training text."""
    stored = _made(store, BuildDatastore(), DatastoreConfig(**(datastore or {})), model)
    return _made(store, BuildIndex(), IndexConfig(**{"index": "flat", **settings}), stored)


def found_neighbors(store: Store, index: Artifact, **settings: Any) -> Artifact:
    """Stored neighbours of every split."""
    return _made(store, PrecomputeNeighbors(), NeighborsConfig(**settings), index)


def _made(store: Store, stage: Any, config: Any, source: Artifact) -> Artifact:
    return make(stage, config, {"source": source.reference}, store, Execution()).artifact
