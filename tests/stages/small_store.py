"""Artifacts made in a moment, with the layout that the contract gives them, for tests of the verbs
above.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import zarr
from pydantic import Field

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Inputs, Job, SerialStage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.text.simple_tokenizers import WordTokenizer
from stages.tokenize import TOKENS
from stages.training.config import MODEL
from tests.builders.once import make_once
from tests.stages.small_parts import MODEL_STAGE, TOKENS_STAGE

VOCABULARY = 11
EOS = 0


class TokensConfig(StageConfig):
    tokenizer: str = "small"
    lengths: dict[str, int] = Field({"train": 90, "valid": 40, "test": 35})
    seed: int = 0


class SmallTokens(SerialStage[TokensConfig]):
    """Random ids with one `<eos>` in six; every paragraph is three tokens, a document nine; words
    are their ids.
    """

    name = TOKENS_STAGE
    kind = "tokens"
    Config = TokensConfig
    schema = TOKENS

    def inputs(self, config: TokensConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        return Inputs()

    def run(self, job: Job[TokensConfig]) -> dict[str, Any]:
        words = ("<eos>", "<unk>", *(f"{job.config.tokenizer}-{id}" for id in range(2, VOCABULARY)))
        WordTokenizer({word: id for id, word in enumerate(words)}, lowercase=False).save(
            job.draft.add("tokenizer.json")
        )
        random = np.random.default_rng(job.config.seed)
        for split, length in job.config.lengths.items():
            ids = (random.integers(0, VOCABULARY, length) * (random.random(length) > 0.2)).astype(
                np.uint16
            )
            arrays = {
                "ids": ids,
                "doc_offsets": np.array([*range(0, length, 9), length], np.int64),
                "paragraph_ends": np.array([*range(3, length, 3), length], np.int64),
            }
            ends = arrays["paragraph_ends"]
            arrays["paragraph_hashes"] = np.array(
                [
                    int.from_bytes(p.astype(np.uint8).tobytes()[:8])
                    for p in np.split(ids, ends[:-1])
                ],
                np.uint64,
            )
            for name, values in arrays.items():
                layout = ArrayLayout(
                    f"tokens.zarr/{split}/{name}", values.shape, values.dtype, 1 << 20
                )
                job.draft.write_whole(layout, values)
        return {
            "splits": {
                split: {
                    **{
                        "tokens": n,
                        "characters": 5 * n,
                        "bytes": 6 * n,
                        "words": n // 2,
                        "documents": n // 9,
                    },
                    "unknown_rate": 0.0,
                }
                for split, n in job.config.lengths.items()
            },
            "vocabulary_size": VOCABULARY,
            "eos_id": EOS,
            "eos_after": "never",
            "tokenizer": "word",
        }


REMEMBERING = {
    "compressive": {"long_length": 6},
    "memorizing": {"long_length": 20, "neighbors": 3},
    "infinity": {"basis": 8, "samples": 6},
}
"""Attention whose layers remember more than the segment before: name -> small sizes."""


def remembering(attention: str) -> dict[str, Any]:
    """A Transformer-XL with such attention, that reads segments of eight tokens."""
    sizes = {
        "vocab_size": VOCABULARY,
        "layers": 2,
        "width": 8,
        "heads": 2,
        "ffn_width": 16,
        "dropout": 0.0,
    }
    chosen = {
        "segment_length": 8,
        "mem_length": 8,
        "attention": {"name": attention, **REMEMBERING[attention]},
    }
    return {"backbone": "transformer-xl", **sizes, **chosen}


class ModelConfig(StageConfig):
    segment_length: int = 8
    model: dict[str, Any] = Field(
        {
            "backbone": "transformer",
            "vocab_size": VOCABULARY,
            "layers": 1,
            "width": 8,
            "heads": 2,
            "ffn_width": 16,
            "max_positions": 16,
            "positions": "learned",
            "dropout": 0.0,
        }
    )
    method: str = "lm"
    memory: dict[str, Any] | None = None
    scale: float = 1.0
    poison: bool = False
    seed: int = 0


class SmallModel(SerialStage[ModelConfig]):
    """A Transformer with random weights; `scale` makes keys too large, `poison` all that is
    computed no numbers.
    """

    name = MODEL_STAGE
    kind = "model"
    Config = ModelConfig
    schema = MODEL

    def inputs(self, config: ModelConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        tokens = store.get(references["source"], "tokens")
        if "neighbors" not in references:
            return Inputs({"tokens": tokens})
        return Inputs(
            {"tokens": tokens, "neighbors": store.get(references["neighbors"], "neighbors")}
        )

    def run(self, job: Job[ModelConfig]) -> dict[str, Any]:
        from pydantic import TypeAdapter

        from stages.models import config as models
        from stages.models.language_model import LanguageModel
        from stages.models.weights import save_weights

        torch.manual_seed(job.config.seed)
        model = LanguageModel(TypeAdapter(models.ModelConfig).validate_python(job.config.model))
        with torch.no_grad():
            for name, weights in model.named_parameters():
                weights.mul_(job.config.scale if "norm" in name else 3.0)
            if model.gate is not None:
                model.gate.weight.normal_()
        if job.config.poison:
            next(model.parameters()).data.fill_(torch.finfo(torch.float32).max)
        save_weights(model.state_dict(), job.draft.add("model.safetensors"))
        job.draft.add("config.json").write_text(json.dumps({"model": job.config.model}))
        return {"parameters": sum(weights.numel() for weights in model.parameters())}


def small_tokens(store: Store, **settings: Any) -> Artifact:
    return make_once(SmallTokens(), TokensConfig(**settings), {}, store)


def small_model(
    store: Store, tokens: Artifact, *, neighbors: Artifact | None = None, **settings: Any
) -> Artifact:
    references = {"source": tokens.reference} | (
        {} if neighbors is None else {"neighbors": neighbors.reference}
    )
    return make_once(SmallModel(), ModelConfig(**settings), references, store)


def array(artifact: Artifact, group: str, name: str) -> np.ndarray:
    """A whole array of an artifact, read by the Zarr library alone."""
    return np.asarray(zarr.open_array(artifact.path / group / name, mode="r")[:])
