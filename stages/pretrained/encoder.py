"""An encoder of transformers, split into the embeddings and the blocks of a model that only makes
keys.
"""

import json
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stages.errors import DataError
from stages.models.backbones.huggingface import ENCODES, encoder_blocks, pooled
from stages.models.backbones.window_configs import TextEncoderConfig
from stages.pretrained.checkpoint import (
    PROBE,
    as_read,
    as_stored,
    load,
    longest_window,
    require_all,
    require_same,
    unfilled,
)
from stages.pretrained.damage import reading
from stages.pretrained.location import MODULES, SENTENCE_SETTINGS, Location
from stages.pretrained.tokenizer import tokens_around

HEAD = "pooler."
"""Prefix of weights above the hidden states, which keys do not use; a checkpoint may lack them."""
POOLING: dict[str, Literal["mean", "cls", "max"]] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}
"""Ways of pooling, by their names in sentence-transformers."""


def is_encoder(settings: Any) -> bool:
    """Whether a model predicts masked tokens (BERT), not the next one, by its settings in
    transformers.
    """
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    decodes = getattr(settings, "is_encoder_decoder", False) or getattr(
        settings, "is_decoder", False
    )
    return type(settings) in MODEL_FOR_MASKED_LM_MAPPING and not decodes


def describe_encoder(location: Location, settings: Any) -> TextEncoderConfig:
    """The settings of an encoder, found without reading its weights.

    Raises: DataError if the encoder, or the pooling that its folder specifies, is not supported.
    """
    before, after = tokens_around(location)
    with reading(location, "model"):
        found, model = unfilled(location, settings, ENCODES)
        rows, width = model.get_input_embeddings().weight.shape
        if width != settings.hidden_size:
            raise DataError(
                f"{location.spec} has embeddings of width {width} and hidden states of {settings.hidden_size}; only "
                "encoders with both of one width are read."
            )
        how, normalize, longest = _pooling(location)
        return TextEncoderConfig(
            vocab_size=rows,
            width=width,
            dropout=0.0,
            architecture=found,
            pooling=how,
            normalize=normalize,
            before=before,
            after=after,
            longest=_longest(model, longest, len(before) + len(after)),
        )


def encoder_weights(location: Location, config: TextEncoderConfig) -> dict[str, Tensor]:
    """The weights by their names in a `LanguageModel`; see `stages.pretrained.model.read_weights`.

    Raises: DataError also if keys made with them differ from those of transformers.
    """
    model, dtype, missing = load(location, ENCODES)
    require_all(location, [name for name in missing if not name.startswith(HEAD)])
    wanted = _keys(model, config)
    table = model.get_input_embeddings().weight.detach()
    weights = as_read(encoder_blocks(model).state_dict(), "backbone.model.", dtype)
    around = {
        f"backbone.{side}": table[list(getattr(config, side))] for side in ("before", "after")
    }
    weights |= as_read({"vocabulary.embedding": table, **around}, dtype=dtype)
    with (
        torch.no_grad()
    ):  # compare: embeddings come from outside here, which some models may treat differently
        found = as_stored(config, weights).encode(_probe(config)).hidden[:, 0]
    require_same(location, "keys", float(((found - wanted).abs() / (1 + wanted.abs())).max()))
    return weights


@torch.no_grad()
def _keys(model: Any, config: TextEncoderConfig) -> Tensor:
    """Keys computed by transformers for the probe's windows, [B, d]."""
    tokens = _probe(config)
    around = (
        torch.tensor(side, dtype=torch.int64).expand(len(tokens), -1)
        for side in (config.before, config.after)
    )
    before, after = around
    hidden = model(input_ids=torch.cat((before, tokens, after), 1)).last_hidden_state
    return pooled(hidden, config.pooling, config.normalize)


def _probe(config: TextEncoderConfig) -> Tensor:
    """Tokens of a few windows, int64 [B, L], from the upper half of the ids: low ids include
    padding, which no text has."""
    types, length = config.vocab_size or 1, min(PROBE[1], config.longest or PROBE[1])
    generator = torch.Generator().manual_seed(0)
    return torch.randint(types // 2, types, (PROBE[0], length), generator=generator)


def _longest(model: nn.Module, asked: int | None, around: int) -> int | None:
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
    known = [length for length in (positions, asked) if length is not None]
    return min(known) - around if known else None


def _pooling(location: Location) -> tuple[Literal["mean", "cls", "max"], bool, int | None]:
    """Pooling in the settings of sentence-transformers; without any, the mean.

    Returns: how a window becomes one vector, whether that is normalized, and the maximum number of
        tokens of a window; None: the model's limit.

    Raises: DataError if they name an unknown way of pooling.
    """
    sentences = _read(location, SENTENCE_SETTINGS)
    longest = sentences.get("max_seq_length")
    if sentences.get("do_lower_case"):
        raise DataError(
            f"{location.spec} is given texts in lower case ({SENTENCE_SETTINGS}: do_lower_case), which its tokenizer "
            "does not do: memlm tokenize --lowercase does; leave the setting out of a copy of that file."
        )
    how: Literal["mean", "cls", "max"] = "mean"
    normalize = False
    for module in _read(location, MODULES):
        match module["type"].rpartition(".")[2]:
            case "Transformer":
                continue
            case "Pooling":
                how = _how(location, _read(location, f"{module['path']}/config.json"))
            case "Normalize":
                normalize = True
            case other:
                raise DataError(
                    f"{location.spec} has a layer {other} above its hidden states, unknown here ({MODULES})."
                )
    return how, normalize, longest


def _how(location: Location, settings: dict[str, Any]) -> Literal["mean", "cls", "max"]:
    chosen = [name for name, used in settings.items() if name.startswith("pooling_mode_") and used]
    if "pooling_mode" in settings:
        chosen = [name for name, known in POOLING.items() if known == settings["pooling_mode"]]
    if len(chosen) != 1 or chosen[0] not in POOLING:
        raise DataError(
            f"{location.spec} pools hidden states in a way that is unknown here (its Pooling settings); known are: "
            f"{', '.join(POOLING.values())}, one of them."
        )
    return POOLING[chosen[0]]


def _read(location: Location, name: str) -> Any:
    """Settings in a file of the folder; empty if it is missing."""
    path = Path(location.folder, name)
    if not path.parent.resolve().is_relative_to(location.folder.resolve()):
        raise DataError(
            f"{location.spec} names settings that lie outside of it ({name}, in {MODULES})."
        )
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}
