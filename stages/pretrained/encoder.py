"""An encoder of transformers, split into the embeddings and the blocks of a model that only makes
keys.
"""

from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from stages.errors import DataError
from stages.models.backbones.huggingface import ENCODES, TextEncoder, encoder_blocks
from stages.models.backbones.window_configs import DenseLayer, TextEncoderConfig
from stages.models.language_model import LanguageModel
from stages.pretrained.checkpoint import (
    PROBE,
    Pretrained,
    as_read,
    input_scale,
    load,
    longest_window,
    probe_tokens,
    require_all,
    require_same,
    require_same_buffers,
    scales_positions,
    unfilled,
)
from stages.pretrained.damage import reading
from stages.pretrained.location import Location
from stages.pretrained.sentence import dense_files, is_sentence_encoder, sentence_settings
from stages.pretrained.tokenizer import tokens_around

HEAD = "pooler."
"""Prefix of weights above the hidden states, which keys do not use; a checkpoint may lack them."""


def is_encoder(location: Location, settings: Any) -> bool:
    """Whether a model makes vectors of texts: it predicts masked tokens (BERT), or its folder pools
    hidden states.
    """
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    decodes = getattr(settings, "is_encoder_decoder", False) or getattr(
        settings, "is_decoder", False
    )
    masked = type(settings) in MODEL_FOR_MASKED_LM_MAPPING and not decodes
    return masked or is_sentence_encoder(location)


def describe_encoder(
    location: Location, settings: Any, normalize: bool = False
) -> TextEncoderConfig:
    """The settings of an encoder, found without reading its weights.

    Args:
        normalize: whether its vectors are scaled to length 1, also if its folder does not say so.
    Raises: DataError if the encoder, or the pooling that its folder specifies, is not supported.
    """
    before, after = tokens_around(location)
    with reading(location, "model"):
        description, model = unfilled(location, settings, ENCODES)
        rows, width = model.get_input_embeddings().weight.shape
        if width != settings.hidden_size:
            raise DataError(
                f"{location.spec} has embeddings of width {width} and hidden states of {settings.hidden_size}; only "
                "encoders with both of one width are read."
            )
        sentence = sentence_settings(location)
        return TextEncoderConfig(
            vocab_size=rows,
            width=width,
            dropout=0.0,
            architecture=description,
            scaled_positions=scales_positions(description),
            pooling=sentence.pooling,
            vector_layers=sentence.layers,
            normalize=normalize or sentence.normalize,
            before=before,
            after=after,
            longest=_longest(model, sentence.longest, len(before) + len(after)),
            input_scale=input_scale(model),
        )


def read_encoder(location: Location, config: TextEncoderConfig, length: int) -> Pretrained:
    """The weights, and a comparison; see `stages.pretrained.model.read_pretrained`.

    Raises: DataError if weights are missing or not finite.
    """
    model, dtype, missing, computed = load(location, ENCODES)
    require_all(location, [name for name in missing if not name.startswith(HEAD)])
    probes = [(tokens, _hidden_states(model, config, tokens)) for tokens in _probes(config, length)]
    table = model.get_input_embeddings().weight.detach()
    weights = as_read(encoder_blocks(model).state_dict(), "backbone.model.", dtype)
    around = {
        f"backbone.{side}": table[list(getattr(config, side))] for side in ("before", "after")
    }
    weights |= as_read({"vocabulary.embedding": table, **around}, dtype=dtype)
    weights |= as_read(dense_weights(location, config), "backbone.vector.")

    def require_same_model(model: LanguageModel) -> None:
        require_same_buffers(location, model, computed)
        for tokens, hidden in probes:
            # Embeddings come from outside here, which some models may treat differently.
            require_same(location, "keys", _largest_difference(model, hidden, tokens))

    return Pretrained(weights, require_same_model)


@torch.no_grad()
def _hidden_states(model: Any, config: TextEncoderConfig, tokens: Tensor) -> Tensor:
    """Hidden states by transformers of windows and the tokens around them, [B, L, d]."""
    rows = len(tokens)
    before = torch.tensor(config.before, dtype=torch.int64).expand(rows, -1)
    after = torch.tensor(config.after, dtype=torch.int64).expand(rows, -1)
    hidden: Tensor = model(input_ids=torch.cat((before, tokens, after), 1)).last_hidden_state
    return hidden


@torch.no_grad()
def _largest_difference(model: LanguageModel, hidden: Tensor, tokens: Tensor) -> float:
    """Largest relative difference of a key from that of hidden states by transformers; may be nan."""
    assert isinstance(model.backbone, TextEncoder)
    whole = hidden.new_ones(hidden.shape[:2], dtype=torch.bool)
    expected = model.backbone.vector(hidden, whole)
    keys = model.encode(tokens).hidden[:, 0]
    return float(((keys - expected).abs() / (1 + expected.abs())).max())


def _probes(config: TextEncoderConfig, length: int) -> list[Tensor]:
    """Tokens of a few short windows and of one of `length`, int64 [B, L] each.

    They are from the upper half of the ids: low ids include padding, which no text has.
    """
    types = config.vocab_size or 1
    rows, shorter = PROBE
    first = types // 2
    windows = [probe_tokens(types, rows, min(shorter, config.longest or shorter), first)]
    if length > shorter:
        windows.append(probe_tokens(types, 1, length, first))
    return windows


def _longest(model: nn.Module, requested: int | None, around: int) -> int | None:
    """Maximum tokens of a text: the model's positions, or fewer if requested, minus the special
    tokens around a text."""
    positions = longest_window(model.config)
    if positions is not None:
        tables = (
            table for name, table in model.named_modules() if name.endswith("position_embeddings")
        )
        first = next(
            (table.padding_idx for table in tables if isinstance(table, nn.Embedding)), None
        )
        # Rows up to padding's are of no input (RoBERTa).
        positions -= 0 if first is None else first + 1
    limits = [length for length in (positions, requested) if length is not None]
    return min(limits) - around if limits else None


def dense_weights(location: Location, config: TextEncoderConfig) -> dict[str, Tensor]:
    """Weights of Dense layers by their names in a `SentenceVector`, in their stored precision.

    Raises: DataError if they do not fit their settings, or are not finite.
    """
    weights = dict[str, Tensor]()
    files = iter(dense_files(location))
    width = config.width * len(config.pooling_modes)
    for number, layer in enumerate(config.vector_layers):
        if not isinstance(layer, DenseLayer):
            continue
        file = next(files)
        with reading(location, "model"):
            stored = load_file(file)
        shapes: dict[str, tuple[int, ...]] = {"linear.weight": (layer.width, width)}
        if layer.bias:
            shapes["linear.bias"] = (layer.width,)
        if {name: tuple(tensor.shape) for name, tensor in stored.items()} != shapes:
            raise DataError(
                f"{file} does not hold the weights of a Dense layer from {width} to {layer.width} numbers, as its "
                "config.json and the layers before it say."
            )
        for name, tensor in stored.items():
            if not tensor.isfinite().all():
                raise DataError(
                    f"{file} holds weights that are no numbers (nan or infinite): {name}."
                )
            weights[f"layers.{number}.{name.removeprefix('linear.')}"] = tensor
        width = layer.width
    return weights
