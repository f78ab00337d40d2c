"""A pretrained model as transformers reads it: settings, weights, parts, and scores to compare with
memlm's.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stages.errors import DataError
from stages.models.backbone import Inputs
from stages.models.backbones.huggingface import model_of_settings
from stages.models.language_model import LanguageModel
from stages.pretrained.damage import reading, require_parameters, require_sizes, setting
from stages.pretrained.location import Location

FEED_FORWARD = ("mlp", "feed_forward", "ffn", "block_sparse_moe", "fc1", "mlp_block")
"""Names of the feed-forward part of a block, in the order of the search."""
T5_FEED_FORWARD = "DenseReluDense"
"""Name of T5's feed-forward part, inside a layer that also has its norm."""
LOOKUP_SCALES = ("scalar_embed_scale", "embed_scale")
"""Names of the attribute of an embedding that scales its rows."""


def last_feed_forward(blocks: nn.Module, layers: int) -> str | None:
    """Name of the module whose input is g: the feed-forward part of the last block; None if a block
    has none.

    The blocks are the outermost list of exactly `layers` modules.

    >>> lists = nn.ModuleDict({"layers": nn.ModuleList(nn.ModuleDict({"mlp": nn.Linear(2, 2)}) for _ in range(3))})
    >>> last_feed_forward(lists, 3)
    'layers.2.mlp'
    """
    stacks = [
        (name, module)
        for name, module in blocks.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == layers
    ]
    if not stacks:
        return None
    name, stack = min(stacks, key=lambda entry: entry[0].count("."))
    inside = dict(stack[-1].named_children())
    part = next((part for part in FEED_FORWARD if part in inside), None)
    if part is None:
        part = next(
            (
                module_name
                for module_name, _ in stack[-1].named_modules()
                if module_name.endswith(f".{T5_FEED_FORWARD}")
            ),
            None,
        )
    return None if part is None else f"{name}.{layers - 1}.{part}"


def longest_window(settings: Any) -> int | None:
    """Number of positions of a model; None: unlimited."""
    # The name depends on the family of models; the first one set is used.
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
    lengths = [setting(settings, name) for name in names]
    # XLNet, which is unlimited, says -1.
    return next((int(length) for length in lengths if length and length > 0), None)


def input_scale(causal: Any) -> float:
    """Factor by which the model's own lookup multiplies rows of its table (Gemma: √d)."""
    lookup = causal.get_input_embeddings()
    return next(
        (float(getattr(lookup, name)) for name in LOOKUP_SCALES if hasattr(lookup, name)), 1.0
    )


def scales_positions(architecture: Any) -> bool:
    """Whether settings of a model, `config.json`, ask for linear scaling of positions anywhere.

    >>> scales_positions({"rope_parameters": {"full_attention": {"rope_type": "linear"}}})
    True
    """
    if not isinstance(architecture, dict):
        return False
    linear = architecture.get("rope_type") == "linear"
    return linear or any(scales_positions(value) for value in architecture.values())


NO_SETTINGS = ("_name_or_path", "quantization_config", "transformers_version", "torch_dtype")
"""Settings of where the model was and how it was packed, without effect on its computation."""


def read_settings(location: Location) -> Any:
    """Read `config.json` or the settings of a GGUF file with transformers. Raises: DataError if
    they describe no model, or one larger than its files."""
    with reading(location, "model"):
        from transformers import AutoConfig

        with location.isolated(location.files(("config.json",))) as folder:
            settings = AutoConfig.from_pretrained(folder, **location.loading())
    require_sizes(location, settings)
    return settings


def unfilled(location: Location, settings: Any, kind: str) -> tuple[dict[str, Any], Any]:
    """Settings as JSON, without those about their origin, and a model with shapes but no weights.

    Raises: DataError if it is larger than its files can hold, even quantized.
    """
    description: dict[str, Any] = json.loads(settings.to_json_string(use_diff=False))
    architecture = {
        name: value for name, value in sorted(description.items()) if name not in NO_SETTINGS
    }
    with torch.device("meta"):
        model = model_of_settings(architecture, kind)
    require_parameters(location, sum(weight.numel() for weight in model.parameters()))
    return architecture, model


class Loaded(NamedTuple):
    """A model of transformers with weights in float32, in evaluation mode."""

    model: Any
    dtype: torch.dtype
    """Precision of the stored weights."""
    missing: list[str]
    """Names of weights that the files lack."""
    computed: dict[str, Tensor]
    """Buffers that are computed, not stored, by their names in the base model, before float32."""


def load(location: Location, kind: str) -> Loaded:
    """Read a model with transformers.

    Args:
        kind: see `model_of_settings`.
    Raises: DataError if it cannot be read, or weights are not finite or differ in shape from its
    settings.
    """
    with reading(location, "model"):
        import transformers

        with location.isolated(location.weights()) as folder:
            model, info = getattr(transformers, kind).from_pretrained(
                folder,
                use_safetensors=True,
                dtype="auto",
                output_loading_info=True,
                # Transformers only prints them in a table; here they are refused by name.
                ignore_mismatched_sizes=True,
                **location.loading(),
            )
    for name, *shapes in sorted(info["mismatched_keys"]):
        stored, expected = ("x".join(map(str, shape)) for shape in shapes)
        raise DataError(
            f"{location.spec} holds a weight of another shape than its settings ask for: {name} is {stored}, expected "
            f"{expected}. Its config.json is that of another checkpoint, or changed."
        )
    dtype = model.dtype
    computed = {name: buffer.clone() for name, buffer in computed_buffers(model.base_model).items()}
    torch.nn.Module.float(model.eval())  # its own method refuses weights that were quantized before
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise DataError(
                f"{location.spec} holds weights that are no numbers (nan or infinite): {name}."
            )
    return Loaded(model, dtype, sorted(info["missing_keys"]), computed)


def computed_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Buffers that are no part of a file of weights, such as frequencies of rotations, by name."""
    stored = module.state_dict().keys()
    return {name: buffer for name, buffer in module.named_buffers() if name not in stored}


def as_read(
    weights: Mapping[str, Tensor], prefix: str = "", dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """Copies of weights, with a prefix before their names; numbers with a fraction in `dtype`,
    None: unchanged.
    """
    return {
        f"{prefix}{name}": weight.detach().to(dtype if weight.is_floating_point() else None).clone()
        for name, weight in weights.items()
    }


def require_all(location: Location, missing: list[str]) -> None:
    """Check that all weights that are needed are there. Raises: DataError."""
    if missing:
        raise DataError(
            f"{location.spec} lacks weights that its settings ask for: {', '.join(missing[:3])}."
        )


TOLERANCE = 1e-3
"""Allowed difference, in nats, from log-probabilities of transformers, which are summed in another
order.
"""
PROBE = (2, 12)
"""Number of windows, and of inputs per window, for the comparison."""
COMPARED = 32
"""Maximum positions of a long window whose log-probabilities are compared: all take gigabytes."""
LOUD = 100.0
"""Largest score on the probe after hidden states are scaled: it reveals a cap that memlm does not
know.
"""


def reads_ahead(causal: Any) -> bool:
    """Whether the score of a token depends on later tokens, as in an encoder, whose perplexity is
    meaningless.
    """
    tokens = probe_tokens(causal.get_input_embeddings().num_embeddings, *PROBE)
    others = tokens.clone()
    others[:, -1] = tokens[:, 0]
    factor = _loud(causal, tokens)
    before, after = (_log_probs(causal, each, factor)[:, :-1] for each in (tokens, others))
    return not bool((before - after).abs().max() < TOLERANCE)


def probe_tokens(types: int, rows: int, length: int, first: int = 0) -> Tensor:
    """Random tokens in [first, types), int64 [rows, length]; the same in every call."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(first, types, (rows, length), generator=generator)


@torch.no_grad()
def _loud(causal: Any, tokens: Tensor) -> float:
    """Factor that makes the largest score of a probe `LOUD`, unless scores are capped."""
    return LOUD / max(float(causal(tokens).logits.abs().max()), 1e-6)


@torch.no_grad()
def _log_probs(
    causal: Any, tokens: Tensor, factor: float, positions: Tensor | None = None
) -> Tensor:
    """Log-probabilities by transformers, [B, P, V], with hidden states multiplied by a factor.

    Args:
        positions: places in the window, int64 [P]; None: all.
    """

    def change(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor]:
        hidden = arguments[0] if positions is None else arguments[0][:, positions]
        return (factor * hidden,)

    hook = causal.get_output_embeddings().register_forward_pre_hook(change)
    try:
        log_probs: Tensor = causal(tokens).logits.log_softmax(-1)
    finally:
        hook.remove()
    return log_probs


class Probe(NamedTuple):
    """Windows, and what transformers makes of them."""

    tokens: Tensor
    """int64 [B, L]."""
    positions: Tensor
    """Places that are compared, int64 [P]."""
    factor: float
    """Factor of hidden states."""
    log_probs: Tensor
    """[B, P, V]."""


def probes_of(causal: Any, length: int) -> list[Probe]:
    """Short windows, and one of `length` inputs, as scored by a causal model of transformers."""
    types = causal.get_input_embeddings().num_embeddings
    rows, shorter = PROBE
    tokens = probe_tokens(types, rows, min(length, shorter))
    everywhere = torch.arange(tokens.shape[1])
    # With large hidden states, too: near zero a cap on scores has hardly any effect.
    probes = [
        Probe(tokens, everywhere, factor, _log_probs(causal, tokens, factor))
        for factor in (1.0, _loud(causal, tokens))
    ]
    if length > shorter:
        # Rotations and windows of attention show their scaling and their ends far from the start.
        long = probe_tokens(types, 1, length)
        positions = torch.linspace(0, length - 1, min(length, COMPARED)).long()
        probes.append(Probe(long, positions, 1.0, _log_probs(causal, long, 1.0, positions)))
    return probes


@torch.no_grad()
def largest_difference(model: LanguageModel, probes: list[Probe]) -> float:
    """Largest difference, in nats, between log-probabilities of a model, read without its prefix,
    and transformers'; may be nan."""
    differences = []
    for tokens, positions, factor, expected in probes:
        hidden = model.backbone(Inputs(model.vocabulary.embed(tokens))).hidden[:, positions]
        log_probs = model.log_probs(factor * hidden.flatten(0, 1))
        differences.append((log_probs - expected.flatten(0, 1)).abs().max())
    return float(torch.stack(differences).max())


class Pretrained(NamedTuple):
    """A pretrained model: weights to store, and a comparison with transformers."""

    weights: dict[str, Tensor]
    """Weights by their names in a `LanguageModel`, in their stored precision."""
    require_same: Callable[[LanguageModel], None]
    """Raises: DataError if a model that was loaded from what was stored differs."""


def require_same_buffers(
    location: Location, model: LanguageModel, computed: Mapping[str, Tensor]
) -> None:
    """Raises: DataError if a buffer that no file holds differs from that of transformers.

    Args:
        computed: those of transformers' base model, in its own precision.
    """
    blocks: Any = model.backbone.model
    for name, buffer in computed_buffers(blocks).items():
        expected = computed.get(name)
        if expected is None or not torch.equal(buffer.to(expected.dtype), expected):
            raise DataError(
                f"{location.spec} is built in a way that memlm does not know: {name} differs from that of "
                "transformers. It cannot be imported."
            )


def require_same(location: Location, what: str, difference: float) -> None:
    """Raises: DataError if `what` differs too much: any omitted part of the model would change all
    later results.
    """
    if not difference < TOLERANCE:
        raise DataError(
            f"{location.spec} computes {what} in a way that memlm does not know: they differ by {difference:.2g} from "
            "those of transformers. It cannot be imported."
        )
