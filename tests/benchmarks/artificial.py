"""Artifacts of realistic size with random content, for benchmarks of the stages that read them."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from pydantic import Field, TypeAdapter
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import STAGES
from stages.artifacts.make import make
from stages.artifacts.stage import Execution, Inputs, Job, SerialStage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.encoding.stored_rows import BUILT
from stages.index import BuildIndex
from stages.neighbors import PrecomputeNeighbors
from stages.tokenize import TOKENS
from stages.training.config import MODEL

VOCABULARY = 33_278


class ArtificialConfig(StageConfig):
    splits: dict[str, int] = Field(default_factory=dict)
    rows: int = 0
    k: int = 0
    segment_length: int = 256
    context: int = 256
    stride: int = 256
    split: str = "train"
    key: str = "ffn-input"
    dtype: str = "float16"
    metric: str = "l2"
    exact: bool = True
    index: str = "flat"
    probe: int | None = None
    candidates: int | None = None
    queries: list[str] = Field(["valid", "test"])
    method: str = "lm"
    model: dict[str, Any] = Field(
        {
            **{"backbone": "transformer", "vocab_size": VOCABULARY, "layers": 4, "width": 256},
            **{"heads": 4, "ffn_width": 1024, "max_positions": 256, "positions": "learned"},
            **{"cutoffs": [2000, 10000], "factor": 4},
        }
    )
    exclude: str = "self"
    """What neighbours leave out."""


class Artificial(SerialStage[ArtificialConfig]):
    """Common to all kinds: inputs by role."""

    Config = ArtificialConfig

    def inputs(
        self, config: ArtificialConfig, references: Mapping[str, Any], store: Store
    ) -> Inputs:
        return Inputs({role: store.get(reference) for role, reference in references.items()})


class Tokens(Artificial):
    """Ids drawn from Zipf's law, as words are."""

    name = "artificial-tokens"
    kind = "tokens"
    schema = TOKENS

    def run(self, job: Job[ArtificialConfig]) -> dict[str, Any]:
        # an evaluation asks the tokenizer for the text of every token
        words = {f"w{number}": number for number in range(VOCABULARY)}
        tokenizer = Tokenizer(WordLevel(words, unk_token="w0"))
        job.draft.add("tokenizer.json").write_text(tokenizer.to_str())
        for split, length in job.config.splits.items():
            arrays = {
                "ids": zipf(length).astype(np.uint16),
                "doc_offsets": np.array([0, length], np.int64),
                "paragraph_ends": np.array([length], np.int64),
                "paragraph_hashes": np.array([len(split)], np.uint64),
            }
            for name, block in arrays.items():
                layout = ArrayLayout(
                    f"tokens.zarr/{split}/{name}", block.shape, block.dtype, 1 << 24
                )
                job.draft.write_whole(layout, block)
        units = ("tokens", "characters", "bytes", "words")
        splits = {
            s: {**dict.fromkeys(units, n), "documents": 1, "unknown_rate": 0.0}
            for s, n in job.config.splits.items()
        }
        same = {
            "tokenizer": "word",
            "eos_id": 0,
            "eos_after": "line",
            "vocabulary_size": VOCABULARY,
        }
        return {"splits": splits, **same}


class Model(Artificial):
    """A Transformer of the shape of `wikitext2-small` with random weights."""

    name = "artificial-model"
    kind = "model"
    schema = MODEL

    def run(self, job: Job[ArtificialConfig]) -> dict[str, Any]:
        from stages.models.config import ModelConfig
        from stages.models.language_model import LanguageModel
        from stages.models.weights import save_weights

        torch.manual_seed(0)
        model = LanguageModel(TypeAdapter(ModelConfig).validate_python(job.config.model))
        save_weights(model.state_dict(), job.draft.add("model.safetensors"))
        job.draft.add("config.json").write_text(json.dumps({"model": job.config.model}))
        return {"parameters": sum(weight.numel() for weight in model.parameters())}


class Datastore(Artificial):
    """Values only: its keys are never read, and narrow."""

    name = "artificial-datastore"
    kind = "datastore"
    schema = BUILT

    def run(self, job: Job[ArtificialConfig]) -> dict[str, Any]:
        rows = job.config.rows
        keys, values = np.zeros((rows, 1), np.float16), zipf(rows).astype(np.int32)
        job.draft.write_whole(
            ArrayLayout("datastore.zarr/keys", keys.shape, keys.dtype, rows), keys
        )
        job.draft.write_whole(
            ArrayLayout("datastore.zarr/values", values.shape, values.dtype, rows), values
        )
        return {"rows": rows, "dim": 1, "dtype": "float16"}


class Index(Artificial):
    """Nothing but its place in the lineage."""

    name = "artificial-index"
    kind = "index"
    schema = BuildIndex.schema

    def run(self, job: Job[ArtificialConfig]) -> dict[str, Any]:
        return {"rows": job.config.rows, "dim": 1, "lossless": True, "bytes": 0}


class Neighbors(Artificial):
    """Random rows at rising distances."""

    name = "artificial-neighbors"
    kind = "neighbors"
    schema = PrecomputeNeighbors.schema

    def run(self, job: Job[ArtificialConfig]) -> dict[str, Any]:
        random, k, config = np.random.default_rng(1), job.config.k, job.config
        per_shard = (16 << 20) // (8 * k)
        for split, length in config.splits.items():
            ids = ArrayLayout(f"neighbors.zarr/{split}/ids", (length, k), np.int64, per_shard)
            distances = ArrayLayout(
                f"neighbors.zarr/{split}/distances", (length, k), np.float32, per_shard
            )
            job.draft.create(ids)
            job.draft.create(distances)
            for shard in range(ids.shards):
                rows = ids.rows(shard)
                shape = (rows.stop - rows.start, k)
                job.draft.write(ids, shard, random.integers(0, config.rows, shape))
                job.draft.write(
                    distances, shard, np.sort(random.random(shape, np.float32), axis=1) + 10
                )
                job.draft.commit(f"{split}-{shard}")
        return {
            "splits": {
                split: {"missing": 0.0, "queries": length}
                for split, length in config.splits.items()
            }
        }


STAGES.targets |= {
    one.name: f"{__name__}:{one.__name__}" for one in (Tokens, Model, Datastore, Index, Neighbors)
}


def zipf(length: int) -> np.ndarray:
    """Ids of a vocabulary by Zipf's law, int64 [length]."""
    weights = 1 / np.arange(1, VOCABULARY + 1)
    steps = np.cumsum(weights / weights.sum())
    return np.searchsorted(steps, np.random.default_rng(0).random(length)).clip(max=VOCABULARY - 1)


def artificial(
    store: Store, stage: Artificial, inputs: Mapping[str, Artifact], **settings: Any
) -> Artifact:
    """Make one artifact."""
    references = {role: artifact.reference for role, artifact in inputs.items()}
    return make(stage, ArtificialConfig(**settings), references, store, Execution()).artifact
