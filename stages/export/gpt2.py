"""A Transformer of memlm as a GPT2LMHeadModel: the same function, with weights that differ by known factors.

memlm multiplies embeddings by √d before the first block, GPT-2 does not. Where input and output share one table, √d is
divided out of all that is added to the residual stream (positions, outputs of attention and of feed-forward), and d out
of the epsilon of the norms, which then see what they saw. Where they have a table each, the input's is multiplied.
"""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError
from stages.export.folder import Form
from stages.models.backbones.transformer import Transformer
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.config import model_of
from stages.models.language_model import LanguageModel
from stages.models.layers.settings import PLACES
from stages.models.layers.sinusoids import sinusoids
from stages.models.vocabulary import FullVocabulary
from stages.models.weights import load_model

EPSILON = 1e-5
"""Epsilon of memlm's layer norms."""
ARCHITECTURE = "GPT2LMHeadModel"


def write_gpt2(model: Artifact, positions: int | None, folder: Path) -> Form:
    """Write `config.json` and `model.safetensors`.

    Args:
        positions: how many sinusoidal positions become a table; None: those of a segment of training. Learned ones
            are as many as they are.
    Raises: UsageError for what GPT-2 does not have.
    """
    config = model_of(model)
    assert isinstance(config, TransformerConfig)
    _require_usual(config, model.reference)
    longest = _positions(config, positions, model)
    settings = gpt2_settings(config, longest, int(model.input("tokens").metrics["eos_id"]))
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
    save_file(gpt2_weights(load_model(model.path, "cpu"), longest), folder / "model.safetensors", {"format": "pt"})
    return Form(ARCHITECTURE, longest)


def gpt2_settings(config: TransformerConfig, positions: int, eos: int) -> dict[str, Any]:
    """The `config.json` of transformers."""
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": positions,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.ffn_width,
        "activation_function": config.activation,
        "layer_norm_epsilon": EPSILON / config.width if config.tied else EPSILON,
        "embd_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "tie_word_embeddings": config.tied,
        "bos_token_id": eos,
        "eos_token_id": eos,
        "dtype": "float32",
    }


def gpt2_weights(model: LanguageModel, positions: int) -> dict[str, Tensor]:
    """The weights by their names in a GPT2LMHeadModel."""
    backbone, vocabulary = model.backbone, model.vocabulary
    assert isinstance(backbone, Transformer) and isinstance(vocabulary, FullVocabulary)
    width = backbone.norm.normalized_shape[0]
    added = width**-0.5 if vocabulary.output is None else 1.0
    table = sinusoids(positions, width) if backbone.positions.learned is None else backbone.positions.learned
    weights = {"transformer.wpe.weight": table * added, **_norm("transformer.ln_f", backbone.norm)}
    if vocabulary.output is None:
        weights["transformer.wte.weight"] = vocabulary.embedding
    else:
        weights["transformer.wte.weight"] = vocabulary.embedding * backbone.scale
        weights["lm_head.weight"] = vocabulary.output
    for number, block in enumerate(backbone.blocks):
        weights |= _block(f"transformer.h.{number}", block, added)
    return {name: weight.detach().contiguous() for name, weight in weights.items()}


def _block(name: str, block: Any, added: float) -> dict[str, Tensor]:
    """Weights of one block; what it adds to the residual stream is multiplied by `added`."""
    return {
        **_norm(f"{name}.ln_1", block.attention_norm),
        **_linear(f"{name}.attn.c_attn", block.attention.qkv, 1.0),
        **_linear(f"{name}.attn.c_proj", block.attention.out, added),
        **_norm(f"{name}.ln_2", block.ffn_norm),
        **_linear(f"{name}.mlp.c_fc", block.ffn.up, 1.0),
        **_linear(f"{name}.mlp.c_proj", block.ffn.down, added),
    }


def _norm(name: str, norm: nn.LayerNorm) -> dict[str, Tensor]:
    return {f"{name}.weight": norm.weight, f"{name}.bias": norm.bias}


def _linear(name: str, layer: nn.Linear, factor: float) -> dict[str, Tensor]:
    """GPT-2 has the weights of its linear layers the other way round, [in, out]."""
    return {f"{name}.weight": layer.weight.T * factor, f"{name}.bias": layer.bias * factor}


def _positions(config: TransformerConfig, asked: int | None, model: Artifact) -> int:
    """Raises: UsageError if others are asked for than a model has learned."""
    if config.positions == "sinusoidal":
        return asked or int(model.config["segment_length"])
    learned = config.max_positions or 0
    if asked not in (None, learned):
        raise UsageError(f"{model.reference} has learned {learned} positions: leave --positions out.")
    return learned


def _require_usual(config: TransformerConfig, name: str) -> None:
    """Raises: UsageError, saying why, for a model that GPT-2 cannot be."""
    if config.cutoffs:
        raise UsageError(
            f"{name} has an adaptive softmax (model.cutoffs), and no model of transformers has: "
            "train one with --set 'model.cutoffs=[]'."
        )
    if config.score_scale != 1 or config.score_bias or config.score_cap is not None:
        raise UsageError(f"{name} scales, shifts or caps its scores (model.score_…), which GPT-2 does not.")
    for place in PLACES:
        for number in range(1, config.layers + 1):
            layer = config.layer_in(place, number)
            if layer.name != type(config).model_fields[place].default.name:
                raise UsageError(f"{name} has {layer.name!r} as model.{place} in block {number}, which GPT-2 has not.")
