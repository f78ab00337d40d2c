"""Weights of models in files: loading, checking, saving, and initializing a model from them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stages.errors import UsageError, content_of
from stages.examples.cutting import WindowSettings
from stages.models.config import parse_model
from stages.models.language_model import (
    ADDED_WEIGHTS,
    LanguageModel,
    unfilled_model_within,
)


def load_model(
    path: Path, device: str | torch.device, windows: WindowSettings | None = None
) -> LanguageModel:
    """Load the model of an artifact folder (`config.json` and weights), in evaluation mode.

    Args:
        path: the folder.
        device: device of the weights.
        windows: windows or segments that it will read; None: as in training.
    Raises: ArtifactError if the files do not hold a model, or the weights belong to another model.
    """
    settings = path / "config.json"
    weights = path / "model.safetensors"
    with content_of(settings):
        architecture = json.loads(settings.read_text("utf-8"))["model"]
        manifest = path / "manifest.json"
        if (
            manifest.is_file()
            and json.loads(manifest.read_text("utf-8"))["config"]["model"] != architecture
        ):
            raise ValueError(
                f"settings of another model than {manifest.name} says"
            )  # all other code reads that
        config = parse_model(architecture)
    if windows is not None:
        config = config.reading(windows)
    with content_of(weights, SafetensorError):
        # tables that stay on the host may be larger than the device
        on_host = any(config.host_table)
        tensors = load_file(weights, device="cpu" if on_host else str(device))
    num_weights = sum(tensor.numel() for tensor in tensors.values())
    with content_of(settings, RuntimeError, UsageError, AssertionError):
        model = unfilled_model_within(config, num_weights)
        if model is None:
            raise ValueError(
                f"settings of a larger model; {weights.name} holds the weights of another model"
            )
    with content_of(weights):
        _require_weights(model, tensors)
    model.load_state_dict(tensors, assign=True)
    return model.to(device=device, dtype=torch.float32).eval()


PRECISIONS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
"""Dtypes that weights in files may have; models compute in float32."""


def _require_weights(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Check that weights fit a model.

    The precision may differ from the model's, as in imported models; PRECISIONS lists those
    allowed.

    Raises: ValueError if names, shapes or dtypes do not match the model, or a weight is not
    finite.
    """
    expected = _forms(model.state_dict())
    forms = _forms(tensors)
    others = {name for name in expected | forms if expected.get(name) != forms.get(name)}
    if others:
        raise ValueError(f"weights of another model: {', '.join(sorted(others)[:3])}")

    order = tensors.get("vocabulary.rank")
    if order is not None:
        numbers = torch.arange(len(order), device=order.device)
        if not order.sort().values.equal(numbers):
            raise ValueError("vocabulary.rank is no order of the token types")

    for name, tensor in tensors.items():
        if not _is_finite(tensor):
            raise ValueError(f"{name} has weights that are no finite numbers")


def _forms(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.dtype | str, torch.Size]]:
    """Kind of number and shape of each tensor."""
    return {name: (_type(tensor), tensor.shape) for name, tensor in tensors.items()}


def _is_finite(tensor: Tensor) -> bool:
    """Whether all numbers of a tensor are finite.

    Their sum is finite only then, and takes a fourth of the time. Finite numbers whose sum is too
    large are looked at one by one.
    """
    if not tensor.is_floating_point():
        return True
    return bool(tensor.sum(dtype=torch.float32).isfinite()) or bool(tensor.float().isfinite().all())


def _type(tensor: Tensor) -> torch.dtype | str:
    return "floating point" if tensor.dtype in PRECISIONS else tensor.dtype


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write parameters and buffers, a model's `state_dict()`, as safetensors; tied weights are
    stored once.
    """
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}, path)


def start_from(
    model: nn.Module, path: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict
) -> None:
    """Initialize a model with the weights of a file.

    Added parts that the file lacks keep their weights. A frozen copy gets the weights of the file.
    Tokens that only the model has begin near the mean of the others.

    Args:
        model: the model, changed in place.
        path: the file, as safetensors.
        change: converts the file's weights, if they are of another architecture.

    Raises: ArtifactError if the weights do not match the model, or the file holds none.
    """
    initial = model.state_dict()
    with content_of(path, SafetensorError):
        stored = {}
        for name, tensor in change(load_file(path)).items():
            stored[name] = _with_rows(tensor, initial.get(name), name)

        added = {}
        for name, tensor in initial.items():
            if name.startswith(ADDED_WEIGHTS):
                added[name] = stored.get(name.removeprefix("frozen."), tensor)
        weights = added | stored
        _require_weights(model, weights)
    model.load_state_dict(weights)


ADDED_ROWS = 0.02
"""Standard deviation of the embeddings of added tokens around the mean of the others."""


def _with_rows(tensor: Tensor, initial: Tensor | None, name: str) -> Tensor:
    """Add a row to a vocabulary weight for each token that only the model has; other weights stay
    as they are.
    """
    if initial is None or not name.startswith("vocabulary.") or tensor.dim() == 0:
        return tensor
    num_added = len(initial) - len(tensor)
    if num_added <= 0 or initial.shape[1:] != tensor.shape[1:]:
        return tensor

    # new rows lie near the mean of the others
    mean = tensor.float().mean(0)
    noise = torch.randn(num_added, *tensor.shape[1:]) * ADDED_ROWS
    added = (mean + noise).to(tensor.dtype)
    return torch.cat((tensor, added))
