"""The settings that sentence-transformers writes beside an encoder: from hidden states to the
vector of a text.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple, get_args

from stages.errors import DataError
from stages.models.backbones.window_configs import (
    DenseLayer,
    NormalizeLayer,
    PoolingMode,
    VectorLayer,
)
from stages.pretrained.location import (
    MODULES,
    SENTENCE_SETTINGS,
    SENTENCE_TRANSFORMERS,
    WEIGHTS,
    Location,
)

MODES: tuple[PoolingMode, ...] = get_args(PoolingMode)
OLD_MODES: dict[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Switches of poolings in older folders, in the order in which their vectors are joined."""
ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "identity",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.SiLU": "silu",
}
"""Activations of Dense layers, by the names of their classes."""


class SentenceSettings(NamedTuple):
    """How a text becomes a vector."""

    pooling: PoolingMode | tuple[PoolingMode, ...] = "mean"
    layers: tuple[VectorLayer, ...] = ()
    """Layers behind the pooling, except a Normalize at the end."""
    normalize: bool = False
    """Whether the last layer is Normalize."""
    longest: int | None = None
    """Maximum tokens of a text, special tokens included; None: the model's limit."""


def is_sentence_encoder(location: Location) -> bool:
    """Whether the folder pools hidden states to vectors of texts."""
    return location.gguf is None and any(
        _class_of(module) == "Pooling" for module in _modules(location)
    )


def sentence_settings(location: Location) -> SentenceSettings:
    """The settings of a folder; without any, the mean of all hidden states, as the library has it.

    Raises: DataError if they name something that is unknown here.
    """
    if location.gguf is not None:
        return SentenceSettings()
    transformer = _transformer_settings(location)
    _require_plain_texts(location, transformer)

    pooling: PoolingMode | tuple[PoolingMode, ...] = "mean"
    layers = list[VectorLayer]()
    for module in _modules(location):
        match _class_of(module):
            case "Transformer" | "Dropout":
                continue
            case "Pooling":
                pooling = _pooling(location, _settings(location, module))
            case "Dense":
                layers.append(_dense(location, _settings(location, module)))
            case "Normalize":
                layers.append(NormalizeLayer())
            case other:
                raise DataError(
                    f"{location.spec} has a layer {other} above its hidden states, unknown here ({MODULES})."
                )
    normalize = bool(layers) and isinstance(layers[-1], NormalizeLayer)
    behind = tuple(layers[:-1] if normalize else layers)
    return SentenceSettings(pooling, behind, normalize, transformer.get("max_seq_length"))


def dense_files(location: Location) -> list[Path]:
    """Files of the weights of Dense layers, in their order.

    Raises: DataError if one is missing, or a pickle.
    """
    if location.gguf is not None:
        return []
    paths = [module["path"] for module in _modules(location) if _class_of(module) == "Dense"]
    files = [_inside(location, f"{path}/{WEIGHTS}") for path in paths]
    for path, file in zip(paths, files, strict=True):
        if not file.is_file():
            raise DataError(
                f"{location.spec} has no weights as safetensors in {path}, a layer above its hidden states: "
                "load it with sentence-transformers where you trust it, and save it again."
            )
    return files


def _modules(location: Location) -> list[dict[str, Any]]:
    """The modules of the folder in their order; empty if sentence-transformers did not write it."""
    modules = _read(location, MODULES) or []
    valid = isinstance(modules, list) and all(
        isinstance(module, dict)
        and isinstance(module.get("type"), str)
        and isinstance(module.get("path"), str)
        for module in modules
    )
    if not valid:
        raise DataError(f"{location.spec} lists no modules with type and path in {MODULES}.")
    return modules


def _class_of(module: dict[str, Any]) -> str:
    return str(module["type"]).rpartition(".")[2]


def _settings(location: Location, module: dict[str, Any]) -> dict[str, Any]:
    settings = _read(location, f"{module['path']}/config.json")
    if not isinstance(settings, dict):
        raise DataError(f"{location.spec} holds no settings in {module['path']}/config.json.")
    return settings


def _transformer_settings(location: Location) -> dict[str, Any]:
    """Settings of how texts are read; older folders name the file by the model."""
    for name in SENTENCE_SETTINGS:
        settings = _read(location, name)
        if settings:
            return dict(settings)
    return {}


def _require_plain_texts(location: Location, transformer: dict[str, Any]) -> None:
    """Check that texts reach the tokenizer unchanged. Raises: DataError."""
    if transformer.get("do_lower_case"):
        raise DataError(
            f"{location.spec} is given texts in lower case (sentence_bert_config.json: do_lower_case), which its "
            "tokenizer does not do: memlm tokenize --lowercase does; leave the setting out of a copy of that file."
        )
    library = _read(location, SENTENCE_TRANSFORMERS) or {}
    name = library.get("default_prompt_name")
    prompt = (library.get("prompts") or {}).get(name)
    if prompt:
        raise DataError(
            f"{location.spec} puts {prompt!r} before every text ({SENTENCE_TRANSFORMERS}: default_prompt_name), which "
            "memlm does not: leave the setting out of a copy of that file, and write the words into the texts."
        )


def _pooling(location: Location, settings: dict[str, Any]) -> PoolingMode | tuple[PoolingMode, ...]:
    modes: list[Any] = [mode for name, mode in OLD_MODES.items() if settings.get(name)]
    if "pooling_mode" in settings:
        named = settings["pooling_mode"]
        modes = [named] if isinstance(named, str) else list(named)
    elif not modes:
        modes = ["mean"]  # as the library
    unknown = [mode for mode in modes if mode not in MODES]
    switches = [
        name
        for name, used in settings.items()
        if name.startswith("pooling_mode_") and used and name not in OLD_MODES
    ]
    if unknown or switches or not modes:
        raise DataError(
            f"{location.spec} pools hidden states in a way that is unknown here (its Pooling settings); known are: "
            f"{', '.join(MODES)}."
        )
    return modes[0] if len(modes) == 1 else tuple(modes)


def _dense(location: Location, settings: dict[str, Any]) -> DenseLayer:
    activation = settings.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in ACTIVATIONS:
        raise DataError(
            f"{location.spec} has a Dense layer with the activation {activation}; known are: "
            f"{', '.join(name.rpartition('.')[2] for name in ACTIVATIONS)}."
        )
    moved = {settings.get(f"module_{side}_name") for side in ("input", "output")}
    if settings.get("use_residual") or not moved <= {None, "sentence_embedding"}:
        raise DataError(
            f"{location.spec} has a Dense layer with a residual, or for single tokens, unknown here."
        )
    return DenseLayer.model_validate(
        {
            "width": settings.get("out_features"),
            "bias": settings.get("bias", True),
            "activation": ACTIVATIONS[activation],
        }
    )


def _inside(location: Location, name: str) -> Path:
    """Path of a file. Raises: DataError if it lies outside of the folder."""
    path = Path(location.folder, name)
    if not path.parent.resolve().is_relative_to(location.folder.resolve()):
        raise DataError(
            f"{location.spec} names settings that lie outside of it ({name}, in {MODULES})."
        )
    return path


def _read(location: Location, name: str) -> Any:
    """Settings in a file of the folder; None if it is missing. Raises: DataError if it is no JSON."""
    path = _inside(location, name)
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is no JSON: {error}.") from None
