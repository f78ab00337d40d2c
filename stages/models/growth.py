"""Growth of a trained Transformer in width and depth, for further training with more capacity
(ELLE).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from stages.config import LARGEST
from stages.errors import UsageError
from stages.models.config import BackboneConfig

NOISE = 0.01
"""Standard deviation of the noise added to weights that read copies, so that copies learn to differ
(ELLE).
"""


def grown_config(config: BackboneConfig, wider: int, deeper: int) -> BackboneConfig:
    """Settings of a grown model: width, heads and feed-forward width times `wider`, layers times
    `deeper`.

    Raises: UsageError if the model cannot grow, or a size would be too large. Only a Transformer
    with learned positions, softmax attention, dense feed-forward layers and a full softmax can
    grow.
    """
    sizes: Any = config
    plain = (
        config.backbone == "transformer"
        and config.head is None
        and not config.reads_neighbors
        and not config.cutoffs
    )
    layers = (
        (getattr(sizes, place).name for place in ("lookup", "attention", "feed_forward"))
        if plain
        else ()
    )
    if tuple(layers) != ("none", "softmax", "dense") or sizes.positions != "learned":
        raise UsageError(
            "wider and deeper are for a transformer with learned positions, softmax attention, dense feed-forward "
            "layers and one softmax over its tokens: leave them out."
        )
    larger = {name: getattr(sizes, name) * wider for name in ("width", "heads", "ffn_width")}
    larger["layers"] = sizes.layers * deeper
    for name, value in larger.items():
        if value >= LARGEST:
            raise UsageError(
                f"wider and deeper: model.{name} would be {value:,}; it is at most {LARGEST - 1:,}."
            )
    return config.model_copy(update=larger)


def grown(
    weights: Mapping[str, Tensor],
    config: BackboneConfig,
    wider: int,
    deeper: int,
    noise: float,
    seed: int,
) -> dict[str, Tensor]:
    """Weights of the grown model; growth in width, without noise, preserves the probability of
    every token.

    Each unit and each head has `wider` copies. Weights that read a unit are divided among its
    copies. Those that read the second and later copies get noise. Each block has `deeper`
    consecutive copies. This changes the function, and training must recover it.

    Args:
        weights, config: those of the smaller model.
        wider, deeper: factors of width and depth.
        noise: standard deviation of the noise.
        seed: seed of the noise.
    Source: Qin et al. 2022 (ELLE, arXiv:2203.06311), section 3.2; function-preserving as Chen et
    al. 2015 (Net2Net).
    """
    random = torch.Generator().manual_seed(seed)
    result = dict[str, Tensor]()
    for name, tensor in weights.items():
        wide = _wide(name, tensor, wider, config, noise, random)
        parts = name.split(".")
        if parts[:2] != ["backbone", "blocks"]:
            result[name] = wide
            continue
        block = int(parts[2])
        for copy in range(deeper):
            number = str(block * deeper + copy)
            result[".".join([*parts[:2], number, *parts[3:]])] = wide.clone()
    return result


def _wide(
    name: str,
    tensor: Tensor,
    times: int,
    config: BackboneConfig,
    noise: float,
    random: torch.Generator,
) -> Tensor:
    """A weight of a model that is `times` as wide, and computes the same but for the noise.

    Units are copied; a unit of the next layer reads the mean of the copies.
    """
    if times == 1 or name == "vocabulary.bias":
        return tensor
    if name == "vocabulary.embedding":  # the backbone multiplies it by the root of the width
        return tensor.repeat(1, times) * times**-0.5
    if name == "vocabulary.output":
        # The copies of a unit share its part of the score.
        return tensor.repeat(1, times) / times
    if name.startswith("backbone.norm."):
        # If tied, a score sums `times` terms with embeddings divided by the root of `times`: here
        # is the other root.
        return tensor.repeat(times) * (times**-0.5 if config.tied else 1)
    if name.endswith("positions.learned"):
        return tensor.repeat(1, times)

    if ".qkv." in name:
        # separately for queries, keys and values, so that heads are copied
        parts = tensor.unflatten(0, (3, -1))
        other_dims = [1] * (tensor.dim() - 1)
        rows = parts.repeat(1, times, *other_dims).flatten(0, 1)
    elif tensor.dim() == 1:
        rows = tensor.repeat(times)
    else:
        rows = tensor.repeat(times, 1)
    if rows.dim() == 1:
        return rows

    columns = rows.repeat(1, times) / times
    copies = columns[:, rows.shape[1] :]
    # Drawn in float64, so that a seed gives the same noise for any dtype of the weights.
    normal = torch.randn(copies.shape, generator=random, dtype=torch.float64)
    copies += noise * normal.to(rows)
    return columns
