"""A causal model of transformers, taken apart into the vocabulary and the blocks of a model of memlm."""

import json
from typing import Any

import torch
from torch import Tensor

from stages.errors import DataError
from stages.models.backbones.huggingface.config import HuggingFaceConfig
from stages.models.backbones.huggingface.network import blocks_of, causal_model
from stages.models.language_model import LanguageModel
from stages.pretrained.anatomy import head_settings, input_scale, last_feed_forward, longest_window
from stages.pretrained.location import Location
from stages.pretrained.quiet import reading
from stages.pretrained.scores import TOLERANCE, Scored, largest_difference, reads_ahead, scores_of

NO_SETTINGS = ("_name_or_path", "quantization_config", "transformers_version", "torch_dtype")
"""Where the model lay and how it was packed: nothing of what it computes."""


def describe(location: Location, prefix: int | None) -> HuggingFaceConfig:
    """The settings of a model, found without reading its weights.

    Args:
        prefix: the token that its tokenizer puts before a text; None: none.
    Raises: DataError if it is no causal model that can be read here.
    """
    with reading(location, "model"):
        from transformers import AutoConfig

        settings: Any = AutoConfig.from_pretrained(str(location.folder), **location.loading())
        architecture = _architecture(settings)
        with torch.device("meta"):
            causal = causal_model(architecture)
        head = head_settings(causal, location.spec)
        rows, width = causal.get_output_embeddings().weight.shape
        return HuggingFaceConfig(
            vocab_size=rows,
            width=width,
            dropout=0.0,
            tied=bool(getattr(settings, "tie_word_embeddings", False)),
            architecture=architecture,
            last_ffn=_last_ffn(causal, width),
            max_positions=longest_window(settings),
            prefix=prefix,
            input_scale=input_scale(causal),
            **head,
        )


def read_weights(location: Location, config: HuggingFaceConfig) -> dict[str, Tensor]:
    """The weights by the names that a `LanguageModel` has, in the precision in which they lie there.

    Raises: DataError if some are missing, no numbers, or give other scores than transformers'.
    """
    with reading(location, "model"):
        from transformers import AutoModelForCausalLM

        loaded: Any = AutoModelForCausalLM.from_pretrained(
            str(location.folder), use_safetensors=True, dtype="auto", output_loading_info=True, **location.loading()
        )
    causal, info = loaded
    dtype = causal.dtype
    torch.nn.Module.float(causal.eval())  # its own refuses where weights were quantized, though they are not any more
    _require_numbers(location, causal)
    if reads_ahead(causal):
        raise DataError(
            f"{location.spec} ({causal.config.model_type}) reads tokens behind the one that it scores: it is an "
            "encoder, and encoders are not imported, for no perplexity is theirs."
        )
    lacking = sorted(info["missing_keys"])
    if lacking:
        raise DataError(f"{location.spec} lacks weights that its settings ask for: {', '.join(lacking[:3])}.")
    wanted = scores_of(causal)
    weights = {name: weight.to(dtype) for name, weight in _blocks(causal).items()}
    weights |= _tables(causal, config, dtype)
    _require_same(location, config, weights, wanted)
    return weights


def _last_ffn(causal: Any, width: int) -> str | None:
    """The module whose input is g; None where that is of another width than f (OPT-350m)."""
    inside = causal.config.hidden_size
    return last_feed_forward(causal.base_model, causal.config.num_hidden_layers) if inside == width else None


def _architecture(settings: Any) -> dict[str, Any]:
    """Settings of transformers as JSON, less what says where they came from."""
    found: dict[str, Any] = json.loads(settings.to_json_string(use_diff=False))
    return {name: value for name, value in sorted(found.items()) if name not in NO_SETTINGS}


def _tables(causal: Any, config: HuggingFaceConfig, dtype: torch.dtype) -> dict[str, Tensor]:
    """Both sides of the vocabulary; as they come where they are one table, else in float32."""
    table, head = causal.get_input_embeddings().weight.detach(), causal.get_output_embeddings()
    if config.tied:
        tables = {"vocabulary.embedding": table.to(dtype).clone()}
    else:
        tables = {"vocabulary.embedding": table.clone(), "vocabulary.output": head.weight.detach().clone()}
    return tables | ({"vocabulary.bias": head.bias.detach().to(dtype).clone()} if config.score_bias else {})


def _blocks(causal: Any) -> dict[str, Tensor]:
    table = causal.get_input_embeddings()
    blocks = blocks_of(causal)
    found = {f"backbone.model.{name}": weight.detach().clone() for name, weight in blocks.state_dict().items()}
    causal.base_model.set_input_embeddings(table)
    return found


def _require_numbers(location: Location, causal: torch.nn.Module) -> None:
    for name, weight in causal.named_parameters():
        if not weight.isfinite().all():
            raise DataError(f"{location.spec} holds weights that are no numbers (nan or infinite): {name}.")


def _require_same(
    location: Location, config: HuggingFaceConfig, weights: dict[str, Tensor], wanted: list[Scored]
) -> None:
    """What is left out here would change every number after."""
    model = LanguageModel(config)
    model.load_state_dict(weights, assign=True)
    difference = largest_difference(model.float().eval(), wanted)
    if not difference < TOLERANCE:
        raise DataError(
            f"{location.spec} computes scores in a way that memlm does not know: log-probabilities differ by "
            f"{difference:.2g} from those of transformers. It cannot be imported."
        )
