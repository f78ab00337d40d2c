"""An encoder-decoder of transformers, split into the vocabulary and the two sides of a translation
model.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stages.errors import DataError, UsageError, did_you_mean
from stages.models.backbones.huggingface import TRANSLATES, sides_of
from stages.models.backbones.window_configs import HuggingFaceEncoderDecoderConfig
from stages.models.language_model import LanguageModel
from stages.pretrained.checkpoint import (
    Pretrained,
    as_read,
    input_scale,
    last_feed_forward,
    load,
    longest_window,
    require_all,
    require_same,
    require_same_buffers,
    unfilled,
)
from stages.pretrained.damage import reading
from stages.pretrained.location import Location
from stages.pretrained.tokenizer import load_pretrained

MULTILINGUAL = ("m2m_100", "mbart", "nllb-moe")
"""Model types that take the languages of both sides as tokens."""
SHORT_SOURCE = 4
"""Tokens of the shorter source for comparing scores, which is padded."""
SENTENCE = 64
"""Tokens of the longer one, unless the model reads fewer."""


class Languages(NamedTuple):
    """Languages, or task prefix, that a pretrained model needs for a translation."""

    source: str | None = None
    """The source's language, as the tokenizer spells it (deu_Latn, de_DE, or de for __de__)."""
    target: str | None = None
    task: str | None = None
    """Words before every source ("translate English to German:")."""


NO_LANGUAGES = Languages()


def describe_encoder_decoder(
    location: Location, settings: Any, languages: Languages
) -> HuggingFaceEncoderDecoderConfig:
    """The settings of an encoder-decoder, found without reading its weights.

    Raises: DataError if it is not supported; UsageError for unknown or missing languages.
    """
    prefix, target = _prompts(location, settings, languages)
    with reading(location, "model"):
        description, model = unfilled(location, settings, TRANSLATES)
        starts = (
            getattr(part, "decoder_start_token_id", None)
            for part in (model.config, model.generation_config)
        )
        start = next((start for start in starts if start is not None), None)
        if start is None:
            raise DataError(
                f"{location.spec} does not say which token begins a target (decoder_start_token_id)."
            )
        tables = [
            side.get_input_embeddings().num_embeddings for side in (model.base_model.encoder, model)
        ]
        rows, width = model.get_output_embeddings().weight.shape
        if tables != [rows, rows] or not getattr(
            settings, "share_encoder_decoder_embeddings", True
        ):
            raise DataError(
                f"{location.spec} has a vocabulary of its own on each side ({tables[0]:,} and {rows:,} types); memlm "
                "reads models that share one."
            )
        layers = getattr(settings, "decoder_layers", None) or getattr(
            settings, "num_decoder_layers", None
        )
        return HuggingFaceEncoderDecoderConfig(
            vocab_size=rows,
            width=width,
            dropout=0.0,
            tied=bool(getattr(settings, "tie_word_embeddings", False)),
            score_bias=hasattr(model, "final_logits_bias"),
            score_scale=width**-0.5 if getattr(settings, "scale_decoder_outputs", False) else 1.0,
            architecture=description,
            last_ffn=last_feed_forward(
                model.base_model.decoder, layers or settings.num_hidden_layers
            ),
            max_positions=longest_window(settings),
            prompt=(int(start), *target),
            source_prefix=prefix,
            input_scale=input_scale(model),
        )


def read_encoder_decoder(location: Location, config: HuggingFaceEncoderDecoderConfig) -> Pretrained:
    """The weights, and a comparison; see `stages.pretrained.model.read_pretrained`.

    Raises: DataError if weights are missing or not finite.
    """
    model, dtype, missing, computed = load(location, TRANSLATES)
    require_all(location, missing)
    longest = min(SENTENCE, config.max_positions or SENTENCE)
    inputs, expected = _scores(model, config, longest)
    head = {"embedding": model.get_input_embeddings().weight}
    if not config.tied:
        head["output"] = model.get_output_embeddings().weight
    if config.score_bias:
        head["bias"] = model.final_logits_bias[0]
    weights = as_read(head, "vocabulary.", dtype) | as_read(
        sides_of(model).state_dict(), "backbone.model.", dtype
    )

    @torch.no_grad()
    def require_same_model(model: LanguageModel) -> None:
        require_same_buffers(location, model, computed)
        log_probs = model.log_probs(model.encode(**inputs).hidden.flatten(0, 1))
        require_same(location, "log-probabilities", float((log_probs - expected).abs().max()))

    return Pretrained(weights, require_same_model)


def _prompts(
    location: Location, settings: Any, languages: Languages
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Tokens before every source, and tokens after the first input of every target."""
    if settings.model_type in MULTILINGUAL and None in (languages.source, languages.target):
        raise UsageError(
            f"{location.spec} translates between many languages: name both with --source-language and "
            "--target-language, as its tokenizer spells them (deu_Latn eng_Latn)."
        )
    names = (languages.source, languages.target)
    if names == (None, None) and languages.task is None:
        return (), ()
    with reading(location, "tokenizer"):
        tokenizer = load_pretrained(location)
        source, target = (
            () if name is None else (_language(location, name, tokenizer.get_vocab()),)
            for name in names
        )
        if languages.task is None:
            return source, target
        return (
            *source,
            *tokenizer(languages.task.rstrip(), add_special_tokens=False).input_ids,
        ), target


def _language(location: Location, name: str, vocabulary: Mapping[str, int]) -> int:
    id = next((vocabulary[token] for token in (name, f"__{name}__") if token in vocabulary), None)
    if id is None:
        codes = [token for token in vocabulary if "_" in token and not token.startswith("▁")]
        raise UsageError(
            f"The tokenizer of {location.spec} knows no language {name!r}; {did_you_mean(name, codes)}."
        )
    return id


@torch.no_grad()
def _scores(
    model: Any, config: HuggingFaceEncoderDecoderConfig, length: int
) -> tuple[dict[str, Any], Tensor]:
    """Arguments of `LanguageModel.encode` for a few pairs, and log-probabilities by transformers,
    [B x L, V].

    Args:
        length: tokens of the longest source, with its prefix, and of the targets, with the prompt.
    """
    types = model.get_input_embeddings().num_embeddings
    random = torch.Generator().manual_seed(0)
    sources = (length - len(config.source_prefix), SHORT_SOURCE)
    rows = len(sources)
    source = torch.randint(types, (rows, max(sources)), generator=random)
    target = torch.randint(types, (rows, length - len(config.prompt)), generator=random)
    # One sentence is padded, to reveal errors in reading the mask.
    mask = torch.arange(max(sources)) < torch.tensor(sources)[:, None]
    prefixes = (config.source_prefix, config.prompt)
    before, prompt = (
        torch.tensor(prefix, dtype=torch.long).expand(rows, -1) for prefix in prefixes
    )
    logits = model(
        input_ids=torch.cat((before, source), 1),
        attention_mask=torch.cat((torch.ones_like(before), mask.long()), 1),
        decoder_input_ids=torch.cat((prompt, target), 1),
    ).logits
    first = torch.zeros_like(target[:, :1])  # any token: the prompt replaces it
    inputs = {"tokens": torch.cat((first, target), 1), "source": source, "source_mask": mask}
    return inputs, logits[:, len(config.prompt) - 1 :].log_softmax(-1).flatten(0, 1)
