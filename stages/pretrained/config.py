"""Settings of import-model. Importing them does not import torch."""

from typing import Annotated, Literal

from pydantic import Field

from stages.config import Spelling, StageConfig
from stages.models.config import ModelConfig


class ImportConfig(StageConfig):
    """Settings of import-model."""

    not_options = frozenset({"model"})

    segment_length: Annotated[int, Field(gt=0)] | None = None
    """Inputs of a window; None: 1,024, of an encoder 32, or as many as it can read."""
    source_language: Annotated[str | None, Spelling("LANGUAGE")] = None
    """Language that a multilingual translation model reads, as its tokenizer spells it: deu_Latn,
    de_DE, de.
    """
    target_language: Annotated[str | None, Spelling("LANGUAGE")] = None
    """Language that it writes."""
    task: Annotated[str | None, Spelling("TEXT")] = None
    """Words before every source of a translation model: "translate English to German:" (T5)."""
    normalize: bool = False
    """Scale keys of an encoder to length 1; one whose folder ends in Normalize does so anyway."""
    method: Literal["lm"] = "lm"
    """Training objective, as far as later stages are concerned."""
    memory: None = None
    """No memory took part in training."""
    model: ModelConfig | None = None
    """Settings of the model; found in its files."""
