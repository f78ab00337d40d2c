"""Named training settings, complete and boring: one TOML file each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.errors import UsageError, did_you_mean
from stages.methods import METHODS
from stages.models import BACKBONES, DEFAULT_BACKBONE, backbone_of
from stages.models.backbones.stream_configs import (
    carrying_backbones,
    remembering_layers,
    require_carried,
)
from stages.models.config import settings_left_open, spelled_out

DEFAULT = "tiny"
"""Preset of the default backbone; another backbone's is called tiny-BACKBONE."""
_FOLDER = Path(__file__).parent / "presets"


def preset_names() -> list[str]:
    """All presets that are shipped."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def preset_file(name: str) -> Path:
    """The file of a preset's name or a path ending in `.toml`.

    Raises: UsageError, with the nearest name, if there is none.
    """
    if name.endswith(".toml"):
        return Path(name)
    if name not in preset_names():
        raise UsageError(f"There is no preset {name!r}; {did_you_mean(name, preset_names())}")
    return _FOLDER / f"{name}.toml"


def load_preset(name: str) -> dict[str, Any]:
    """The settings of a preset, or of a TOML file of the user's, as nested tables for
    `TrainConfig`.

    Raises: UsageError if there is no such preset, or the file cannot be read or is no TOML.
    """
    from stages.config import read_toml

    return read_toml(preset_file(name))


def choose_preset(
    name: str | None, backbone: str | None, method: str | None = None
) -> dict[str, Any]:
    """The settings under the user's own.

    Args:
        name: a preset, or a TOML file; None: the smallest of the backbone, its steps chosen from
        the text.
        backbone: the requested one, or a name that stands for one; None: the preset's, or the
        method's usual one.
    Raises: UsageError if there is no such preset or backbone, or the preset is for another
    backbone.
    """
    if backbone is not None:
        backbone = backbone_of(backbone)
        BACKBONES.settings(backbone)
    if name is None:
        if backbone is None and method is not None:
            backbone = METHODS.settings(method).usual_backbone
        backbone = backbone or DEFAULT_BACKBONE
        own_preset = f"{DEFAULT}-{backbone}" in preset_names()
        smallest = load_preset(f"{DEFAULT}-{backbone}" if own_preset else DEFAULT)
        if backbone != DEFAULT_BACKBONE and not own_preset:
            smallest["model"] = {"backbone": backbone}  # its own defaults
        # The length of training then follows from the text.
        return {name: value for name, value in smallest.items() if name != "steps"}
    preset = load_preset(name)
    preset_backbone = preset.get("model", {}).get("backbone", DEFAULT_BACKBONE)
    if backbone not in (None, preset_backbone):
        raise UsageError(
            f"--model {name} is for the backbone {preset_backbone!r}, not for {backbone!r}; "
            "leave --backbone out, or name another preset (memlm presets)."
        )
    return preset


def training_preset(
    name: str | None, settings: Mapping[str, Any], init: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The preset under the user's settings; both must be compatible.

    Args:
        name: as of `choose_preset`.
        settings: nested settings.
        init: settings of the initial model; its backbone is the run's if none is named.
    Raises: UsageError as `choose_preset` does, for a length that the backbone does not have, and
        for settings of the model that `init` fixes.
    """
    model = settings.get("model", {})
    backbone = model.get("backbone")
    if init is not None:
        _require_open(model, init)
        if name is None and backbone is None:
            backbone = init["backbone"]
    preset = choose_preset(name, backbone, settings.get("method"))
    if name is None and settings.get("steps", "auto") == "auto" and "epochs" not in settings:
        preset.pop("valid_every", None)  # like the steps, it follows from the text
    if settings.get("method", preset["method"]) != preset["method"]:
        preset.pop("memory", None)  # the settings of another method
    require_carried(
        model, preset.get("model", {}).get("backbone", DEFAULT_BACKBONE), other=init is None
    )
    return preset


def _require_open(settings: Mapping[str, Any], init: Mapping[str, Any]) -> None:
    """Check that no setting of a model is one that the initial model fixes. Raises: UsageError."""
    settled = [f"model.{name}" for name in settings if name not in settings_left_open()]
    if settled:
        attention = spelled_out(init).get("attention", {}).get("name")
        lengths = ["--segment-length"]
        lengths += ["--mem-length"] * (init["backbone"] in carrying_backbones())
        lengths += ["--long-length"] * (attention in remembering_layers())
        raise UsageError(
            f"--init-from takes over how that model is made: leave {', '.join(settled)} out. What may be another: "
            f"{', '.join(lengths)}."
        )
