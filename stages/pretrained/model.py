"""A model of transformers, split into the vocabulary and the blocks of a memlm model, and its size."""

from typing import Any, NamedTuple

import torch

from stages.errors import DataError, UsageError
from stages.models.backbones.huggingface import CAUSAL, blocks_of
from stages.models.backbones.window_configs import (
    HuggingFaceConfig,
    HuggingFaceEncoderDecoderConfig,
    TextEncoderConfig,
)
from stages.models.language_model import LanguageModel, unfilled_model
from stages.pretrained.checkpoint import (
    Pretrained,
    as_read,
    input_scale,
    largest_difference,
    last_feed_forward,
    load,
    longest_window,
    probes_of,
    read_settings,
    reads_ahead,
    require_all,
    require_same,
    require_same_buffers,
    scales_positions,
    unfilled,
)
from stages.pretrained.damage import reading, setting
from stages.pretrained.encoder import describe_encoder, is_encoder, read_encoder
from stages.pretrained.encoder_decoder import (
    NO_LANGUAGES,
    Languages,
    describe_encoder_decoder,
    read_encoder_decoder,
)
from stages.pretrained.location import Location

Imported = HuggingFaceConfig | HuggingFaceEncoderDecoderConfig | TextEncoderConfig


def describe(
    location: Location,
    prefix: int | None,
    languages: Languages = NO_LANGUAGES,
    normalize: bool = False,
) -> Imported:
    """The settings of a model, found without reading its weights.

    Args:
        prefix: the token that its tokenizer adds before a text; None: none.
        languages: languages, or task, of a translation.
        normalize: whether keys of an encoder are scaled to length 1 whatever its folder says.
    Raises: DataError if it is no supported causal model, encoder or encoder-decoder; UsageError for
        languages that it does not take.
    """
    settings = read_settings(location)
    translates = getattr(settings, "is_encoder_decoder", False)
    if languages != NO_LANGUAGES and not translates:
        raise UsageError(f"{location.spec} does not translate: leave languages and task out.")
    with reading(location, "model"):
        encodes = not translates and is_encoder(location, settings)
    if normalize and not encodes:
        raise UsageError(
            f"{location.spec} is no encoder, which keys are scaled of: leave --normalize out, and choose the metric "
            "of the index (build-index --metric)."
        )
    if translates:
        return describe_encoder_decoder(location, settings, languages)
    if encodes:
        return describe_encoder(location, settings, normalize)
    return _describe(location, settings, prefix)


def read_pretrained(location: Location, config: Imported, length: int) -> Pretrained:
    """The weights, and a comparison of the model that is loaded from them with transformers'.

    Args:
        length: inputs of a window that will be read.
    Raises: DataError if weights are missing or not finite, or if the model reads tokens ahead.
    """
    if isinstance(config, TextEncoderConfig):
        return read_encoder(location, config, length)
    if isinstance(config, HuggingFaceEncoderDecoderConfig):
        return read_encoder_decoder(location, config)
    causal, dtype, missing, computed = load(location, CAUSAL)
    # Checked by scores, not by settings: a causal class may contain an encoder.
    if reads_ahead(causal):
        raise DataError(
            f"{location.spec} ({causal.config.model_type}) reads tokens behind the one that it scores, so no "
            "perplexity is its own, and memlm does not know it as an encoder, which makes keys alone."
        )
    require_all(location, missing)
    probes = probes_of(causal, length)
    table = causal.get_input_embeddings()
    head = causal.get_output_embeddings()
    weights = as_read(blocks_of(causal).state_dict(), "backbone.model.", dtype)
    if config.tied:
        weights |= as_read({"vocabulary.embedding": table.weight}, dtype=dtype)
    else:  # two tables stay in float32
        weights |= as_read({"vocabulary.embedding": table.weight, "vocabulary.output": head.weight})
    if config.score_bias:
        weights |= as_read({"vocabulary.bias": head.bias}, dtype=dtype)

    def require_same_model(model: LanguageModel) -> None:
        require_same_buffers(location, model, computed)
        require_same(location, "log-probabilities", largest_difference(model, probes))

    return Pretrained(weights, require_same_model)


def _describe(location: Location, settings: Any, prefix: int | None) -> HuggingFaceConfig:
    """The settings of a causal model."""
    with reading(location, "model"):
        description, causal = unfilled(location, settings, CAUSAL)
        head = causal.get_output_embeddings()
        if head is None:
            raise DataError(
                f"{location.spec} scores no vocabulary: it is no causal language model."
            )
        rows, width = head.weight.shape
        larger, smaller = (
            setting(settings, name) or 1 for name in ("logit_scale", "logits_scaling")
        )
        caps = [setting(settings, name) for name in CAPS]
        cap = next((cap for cap in caps if cap), None)
        inside = causal.config.hidden_size
        layers = causal.config.num_hidden_layers
        return HuggingFaceConfig(
            vocab_size=rows,
            width=width,
            dropout=0.0,
            tied=bool(getattr(settings, "tie_word_embeddings", False)),
            architecture=description,
            scaled_positions=scales_positions(description),
            # None if g differs from f in width (OPT-350m)
            last_ffn=last_feed_forward(causal.base_model, layers) if inside == width else None,
            max_positions=longest_window(settings),
            prefix=prefix,
            input_scale=input_scale(causal),
            score_scale=float(larger) / float(smaller),
            score_bias=getattr(head, "bias", None) is not None,
            score_cap=None if cap is None else float(cap),
        )


CAPS = ("final_logit_softcapping", "logits_soft_cap", "final_logit_soft_cap")
"""Settings that cap the scores before the softmax."""
FULL = torch.float32
TABLES = ("vocabulary.embedding", "vocabulary.output")


class ModelSize(NamedTuple):
    """Sizes of a model in the store, and while it is read."""

    parameters: int
    bytes: int
    memory: int
    """Minimum memory for reading it, in bytes: transformers' model in float32, and the stored
    weights. The comparison of scores takes another copy of these in float32."""


def model_size(location: Location, config: Imported) -> ModelSize:
    """Size of the result of `read_pretrained`, computed only from settings and types of weights."""
    # Only shapes: the size is needed to find out whether the model fits into memory.
    with reading(location, "model"):
        weights = unfilled_model(config).state_dict()
    dtype = _stored_type(location, config)
    dtypes = {name: FULL if name in TABLES and not config.tied else dtype for name in weights}
    parameters = sum(weight.numel() for weight in weights.values())
    stored = sum(weight.numel() * dtypes[name].itemsize for name, weight in weights.items())
    compared = sum(
        weight.numel() * FULL.itemsize for name, weight in weights.items() if dtypes[name] != FULL
    )
    return ModelSize(parameters, stored, parameters * FULL.itemsize + stored + compared)


def _stored_type(location: Location, config: Imported) -> torch.dtype:
    """Resolve `dtype="auto"` like transformers: the type in the settings, else that of the first
    weights.
    """
    named = config.architecture.get("dtype")
    if named is None and location.gguf is None:
        from safetensors import safe_open

        file = next(path for path in location.weights() if path.suffix == ".safetensors")
        with reading(location, "model"), safe_open(file, framework="pt") as opened:
            types = (opened.get_slice(name).get_dtype() for name in opened.keys())  # noqa: SIM118
            named = {"F16": "float16", "BF16": "bfloat16"}.get(next(types, ""), "float32")
    dtype = getattr(torch, str(named), FULL)
    return dtype if isinstance(dtype, torch.dtype) else FULL
