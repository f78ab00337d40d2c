"""Forms of models in transformers: a Transformer as a GPT2LMHeadModel, and an imported model in its
own class.

A Transformer of memlm is the same function as a GPT-2, with weights that differ by known factors:
memlm multiplies embeddings by √d before the first block, GPT-2 does not. If input and output share
one table, all terms of the residual stream are divided by √d: positions, outputs of attention and
of feed-forward. The epsilon of the norms is divided by d, so that their outputs stay the same. With
separate tables, that of the input is multiplied by √d.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError, UsageError
from stages.export import Form
from stages.models.backbones.huggingface import CAUSAL, model_of_settings
from stages.models.backbones.transformer import Transformer
from stages.models.backbones.window_configs import HuggingFaceConfig, TransformerConfig
from stages.models.config import model_of
from stages.models.language_model import LanguageModel
from stages.models.layers.settings import PLACES
from stages.models.layers.sinusoids import sinusoids
from stages.models.vocabulary import FullVocabulary
from stages.models.weights import load_model
from stages.pretrained.checkpoint import TOLERANCE, largest_difference, probes_of
from stages.pretrained.damage import quiet

EPSILON = 1e-5
"""Epsilon of memlm's layer norms."""
ARCHITECTURE = "GPT2LMHeadModel"


def write_gpt2(model: Artifact, positions: int | None, folder: Path) -> Form:
    """Write `config.json` and `model.safetensors`.

    Args:
        positions: number of sinusoidal positions in the table; None: those of a training segment.
            Learned positions keep their number.
    Raises: UsageError for parts that GPT-2 does not have.
    """
    config = model_of(model)
    assert isinstance(config, TransformerConfig)
    _require_usual(config, model.reference)
    longest = _positions(config, positions, model)
    settings = gpt2_settings(config, longest, int(model.input("tokens").metrics["eos_id"]))
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
    save_file(
        gpt2_weights(load_model(model.path, "cpu"), longest),
        folder / "model.safetensors",
        {"format": "pt"},
    )
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
    backbone = model.backbone
    vocabulary = model.vocabulary
    assert isinstance(backbone, Transformer) and isinstance(vocabulary, FullVocabulary)
    width = backbone.norm.normalized_shape[0]
    added = width**-0.5 if vocabulary.output is None else 1.0
    table = (
        sinusoids(positions, width)
        if backbone.positions.learned is None
        else backbone.positions.learned
    )
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
    """Weights of a linear layer, times `factor`, transposed for GPT-2: [in, out]."""
    return {f"{name}.weight": layer.weight.T * factor, f"{name}.bias": layer.bias * factor}


def _positions(config: TransformerConfig, requested: int | None, model: Artifact) -> int:
    """Number of positions to export. Raises: UsageError if it differs from that of learned
    positions.
    """
    if config.positions == "sinusoidal":
        return requested or int(model.config["segment_length"])
    learned = config.max_positions or 0
    if requested not in (None, learned):
        raise UsageError(
            f"{model.reference} has learned {learned} positions: leave --positions out."
        )
    return learned


def _require_usual(config: TransformerConfig, name: str) -> None:
    """Check that GPT-2 can represent a model. Raises: UsageError, with the reason."""
    if config.cutoffs:
        raise UsageError(
            f"{name} has an adaptive softmax (model.cutoffs), and no model of transformers has: "
            "train one with --set 'model.cutoffs=[]'."
        )
    if config.score_scale != 1 or config.score_bias or config.score_cap is not None:
        raise UsageError(
            f"{name} scales, shifts or caps its scores (model.score_…), which GPT-2 does not."
        )
    for place in PLACES:
        for number in range(1, config.layers + 1):
            layer = config.layer_in(place, number)
            if (
                layer.name
                != type(config).model_fields[place].get_default(call_default_factory=True).name
            ):
                raise UsageError(
                    f"{name} has {layer.name!r} as model.{place} in block {number}, which GPT-2 has not."
                )


BLOCKS = "backbone.model."
"""Prefix of the names of all weights between the embeddings and the softmax."""


def write_imported(model: Artifact, positions: int | None, folder: Path) -> Form:
    """Write the model with `save_pretrained` of transformers, in the precision of the stored
    weights.

    Raises: UsageError if positions are asked for; ArtifactError if transformers would compute other
    scores.
    """
    config = model_of(model)
    assert isinstance(config, HuggingFaceConfig)
    if positions is not None:
        raise UsageError(f"{model.reference} has positions of its own: leave --positions out.")
    ours = load_model(model.path, "cpu")
    with quiet():
        causal = model_of_settings(config.architecture, CAUSAL).eval()
        causal.load_state_dict(_weights(causal, ours), assign=True)
        # Loading by assignment replaced the table that input and output share.
        causal.tie_weights()
        length = int(model.config["segment_length"])
        difference = largest_difference(ours, probes_of(causal, length))
        if not difference < TOLERANCE:
            raise ArtifactError(
                f"transformers would make other scores of {model.reference} (by {difference:.2g} nats): it was "
                "imported by another version of memlm or transformers; import the model again."
            )
        with safe_open(model.file("model.safetensors"), "pt") as weights:
            first = next(name for name in weights.keys() if name.startswith(BLOCKS))  # noqa: SIM118
            causal.to(weights.get_tensor(first).dtype).save_pretrained(folder)
    return Form(type(causal).__name__, config.reads.longest_context)


def _weights(causal: Any, ours: LanguageModel) -> dict[str, Tensor]:
    """The weights of a memlm model, by their names in a causal model of transformers."""
    vocabulary = ours.vocabulary
    assert isinstance(vocabulary, FullVocabulary)
    named = {id(module): name for name, module in causal.named_modules()}
    lookup, head = (
        named[id(side)] for side in (causal.get_input_embeddings(), causal.get_output_embeddings())
    )
    weights = {
        f"{causal.base_model_prefix}.{name.removeprefix(BLOCKS)}": tensor
        for name, tensor in ours.state_dict().items()
        if name.startswith(BLOCKS)
    }
    weights |= {
        f"{lookup}.weight": vocabulary.embedding,
        f"{head}.weight": vocabulary.output_weight,
    }
    return weights if vocabulary.bias is None else weights | {f"{head}.bias": vocabulary.bias}
