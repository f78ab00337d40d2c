"""How a model was trained, said with the shipped preset that leaves least to say beside it."""

from collections.abc import Iterator, Mapping
from typing import Any

from memlm_cli.reproduce.spelling import Settings, all_spelled, differences
from pipelines.settings import merged, nested


def training_options(config: Settings, continued: bool) -> Iterator[list[str]]:
    """The shipped preset that leaves least to say, and that.

    Args:
        config: of a model.
        continued: whether it began with the weights of another, whose architecture it took over.
    """
    from stages.models.config import settings_left_open
    from stages.models.layers.settings import lengthened_layers
    from stages.training.presets import preset_names

    said = {name: settings for name in (None, *preset_names()) if (settings := _on_top(name, config)) is not None}
    said = said or {None: dict(differences(config, {}))}
    name = min(said, key=lambda name: len(said[name]) + (name is not None))
    open_to_it = {f"model.{setting}" for setting in settings_left_open()}
    taken_over = {path for path in said[name] if path.startswith("model.") and path not in open_to_it}
    settings = {path: value for path, value in said[name].items() if not (continued and path in taken_over)}
    if continued and config["model"].get("attention", {}).get("name") in lengthened_layers():
        settings["model.attention.long_length"] = config["model"]["attention"]["long_length"]
    yield from ([["--model", name]] if name else [])
    yield from all_spelled("train", settings.items())


def _on_top(preset: str | None, config: Settings) -> dict[str, Any] | None:
    """Settings to add to a preset, by dotted names; None where they do not give `config`.

    Args:
        preset: its name; None: the one that the backbone has by itself.
    """
    from stages.training.presets import choose_preset

    backbone = config["model"]["backbone"]
    try:
        raw = choose_preset(preset, backbone)
        method = {} if raw.get("method") == config["method"] else {"method": config["method"]}
        base = _as_trained(merged(raw, method))
        own = {} if preset or backbone == _usual_backbone(config["method"]) else {"model.backbone": backbone}
        said = {**own, **method, **dict(differences(config, base))}
        made = _as_trained(merged(raw, nested(said)))
    except ValueError:
        return None
    return said if not dict(differences(config, made)) and not _left_over(raw, config) else None


def _as_trained(settings: Settings) -> Settings:
    """Settings of a model trained with these, as far as they do not follow from what it is trained on."""
    from stages.training.config import TrainConfig

    config = TrainConfig.model_validate(settings)
    trained = config.model_copy(update={"model": config.method_settings.fitted(config.model)})
    return trained.model_dump(mode="json")


def _usual_backbone(method: str) -> str:
    """The backbone of a model where neither a preset nor a backbone is named."""
    from stages.models import DEFAULT_BACKBONE
    from stages.training.presets import choose_preset

    return str(choose_preset(None, None, method).get("model", {}).get("backbone", DEFAULT_BACKBONE))


def _left_over(raw: Settings, config: Settings) -> bool:
    """Whether a preset says something that the settings are without, which no option takes back."""
    for name, value in raw.items():
        held = config.get(name)
        if isinstance(value, Mapping) and isinstance(held, Mapping):
            if _left_over(value, held):
                return True
        elif held is None and (name in config or isinstance(value, Mapping)):
            return True
    return False
