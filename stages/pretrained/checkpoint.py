"""Settings and weights of a pretrained model, as transformers reads them."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from stages.errors import DataError
from stages.pretrained.damage import reading, require_sizes
from stages.pretrained.location import Location

NO_SETTINGS = ("_name_or_path", "quantization_config", "transformers_version", "torch_dtype")
"""Where the model lay and how it was packed: nothing of what it computes."""


class Loaded(NamedTuple):
    """A model with its weights in float32, the precision in which they lie there, and names of those that do not."""

    model: Any
    dtype: torch.dtype
    missing: list[str]


def read_settings(location: Location) -> Any:
    """Read `config.json` or the settings of a GGUF file with transformers. Raises: DataError if they describe no
    model, or one that its files cannot hold."""
    with reading(location, "model"):
        from transformers import AutoConfig

        with location.isolated(location.files(("config.json",))) as folder:
            settings = AutoConfig.from_pretrained(folder, **location.loading())
    require_sizes(location, settings)
    return settings


def architecture(settings: Any) -> dict[str, Any]:
    """Settings of transformers as JSON, less what says where they came from."""
    found: dict[str, Any] = json.loads(settings.to_json_string(use_diff=False))
    return {name: value for name, value in sorted(found.items()) if name not in NO_SETTINGS}


def load(location: Location, kind: str) -> Loaded:
    """A model with its weights, in evaluation mode.

    Args:
        kind: the class of transformers that chooses its own by the settings.
    Raises: DataError if it cannot be read, or holds weights of other shapes than its settings say, or that are no
        numbers.
    """
    with reading(location, "model"):
        import transformers

        with location.isolated(location.weights()) as folder:
            loaded: Any = getattr(transformers, kind).from_pretrained(
                folder,
                use_safetensors=True,
                dtype="auto",
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # transformers names them in a table alone; here they are refused by name
                **location.loading(),
            )
    model, info = loaded
    _require_shapes(location, info["mismatched_keys"])
    dtype = model.dtype
    torch.nn.Module.float(model.eval())  # its own refuses where weights were quantized, though they are not any more
    _require_numbers(location, model)
    return Loaded(model, dtype, sorted(info["missing_keys"]))


def require_all(location: Location, missing: list[str]) -> None:
    """Raises: DataError if weights that are needed are missing."""
    if missing:
        raise DataError(f"{location.spec} lacks weights that its settings ask for: {', '.join(missing[:3])}.")


def _require_shapes(location: Location, other: Iterable[tuple[str, Sequence[int], Sequence[int]]]) -> None:
    """`other`: names, shapes found and shapes expected of weights that do not fit."""
    for name, found, expected in sorted(other):
        raise DataError(
            f"{location.spec} holds a weight of another shape than its settings ask for: {name} is "
            f"{_shape(found)}, expected {_shape(expected)}. Its config.json is that of another checkpoint, or changed."
        )


def _shape(lengths: Sequence[int]) -> str:
    return "x".join(map(str, lengths))


def _require_numbers(location: Location, model: torch.nn.Module) -> None:
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise DataError(f"{location.spec} holds weights that are no numbers (nan or infinite): {name}.")
