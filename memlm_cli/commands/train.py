"""`memlm train`."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from memlm_cli import completion
from memlm_cli.options import Common
from memlm_cli.run_stage import make_artifact
from stages.errors import UsageError
from stages.methods import METHODS
from stages.models import NAMED, trainable_backbones
from stages.training.presets import choose_preset, preset_names


def train(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="TOKENS|BATCHES|NEIGHBORS",
            help="What to learn; - or none: from stdin.",
            autocompletion=completion.artifacts("tokens", "batches", "neighbors"),
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            autocompletion=completion.methods,
            help=f"What is minimized: {', '.join(METHODS.names())} (default: the preset's, lm).",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="PRESET|FILE.toml",
            autocompletion=completion.presets,
            help=f"All settings at once (default: tiny, tiny-BACKBONE). Presets, described by memlm presets: "
            f"{', '.join(preset_names())}.",
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            metavar="BACKBONE",
            autocompletion=completion.backbones,
            help=f"Network under the vocabulary: {', '.join(trainable_backbones())}; "
            f"or, a transformer-xl that remembers more, {', '.join(NAMED)} (default: the preset's, transformer).",
        ),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="Updates of the weights; auto: as many as the text is worth to the model, however fast the machine "
            "is; the time that they take is said after the first (default: those of --model, else auto).",
        ),
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the training split, in place of --steps.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens of one forward batch.")] = None,
    accumulate: Annotated[int | None, typer.Option(help="Forward batches that make an update.")] = None,
    segment_length: Annotated[int | None, typer.Option(help="Tokens a segment.")] = None,
    mem_length: Annotated[
        int | None,
        typer.Option(help="Positions that a Transformer-XL carries (default: the preset's, else --segment-length)."),
    ] = None,
    long_length: Annotated[
        int | None,
        typer.Option(min=0, help="Slots or entries that its layers remember beyond these, if they do."),
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Highest learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of weights, dropout and order.")] = None,
    init_from: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", autocompletion=completion.artifacts("model"), help="Begin with the weights of this model."
        ),
    ] = None,
    lora: Annotated[
        int | None,
        typer.Option(metavar="RANK", help="Of an imported model: learn factors of this rank, not its weights (LoRA)."),
    ] = None,
    compiled: Annotated[
        bool | None,
        typer.Option(
            "--compile",
            help="Compile the network first (torch.compile): updates are faster on a GPU, hardly on a CPU.",
        ),
    ] = None,
    *,
    common: Common,
) -> None:
    """Tokens, packed batches, or neighbours -> model: train a language model."""
    from memlm_cli.settings import given_settings
    from pipelines.settings import merged

    if method is not None:
        METHODS.settings(method)  # an unknown one is said before anything is read
    options: dict[str, Any] = {
        "method": method,
        "model.backbone": backbone,
        "steps": steps,
        "epochs": epochs,
        "batch_tokens": batch_tokens,
        "accumulate": accumulate,
        "segment_length": segment_length,
        "model.mem_length": mem_length,
        "optimizer.lr": lr,
        "lora": lora,
        "compile": compiled,
        "seed": seed,
    }
    asked = given_settings(common, options)
    architecture = said if isinstance(said := asked.get("model"), dict) else {}
    backbone = architecture.get("backbone")
    if init_from is not None:
        _require_nothing_idle(common.set or (), init_from, common)
        if model is None and backbone is None:
            backbone = str(_model_of(init_from, common)["backbone"])
    preset = choose_preset(model, backbone, asked.get("method"))
    if model is None and asked.get("steps", "auto") == "auto" and "epochs" not in asked:
        preset.pop("valid_every", None)  # as the steps, it follows from the text
    if mem_length is not None:
        _require_carried(preset.get("model", {}).get("backbone"), init_from)
    if long_length is not None:
        described = merged(preset.get("model", {}), architecture)
        options |= _remembered(long_length, described if init_from is None else _model_of(init_from, common))
    make_artifact("train", common, source, options, {"init_from": init_from}, preset)


def _model_of(init_from: str, common: Common) -> dict[str, Any]:
    """How the model of --init-from is made; its backbone is that of the run where none is named."""
    from stages.artifacts.store import Store

    model: dict[str, Any] = Store(common.store).get(init_from, "model").config["model"]
    return model


def _remembered(length: int, model: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that make the layers of a model remember so many slots or entries.

    Raises: UsageError if its layers remember nothing that has a length.
    """
    from stages.models.layers.lengths import lengthened_layers

    attention, layers = _attention(model), lengthened_layers()
    if attention not in layers:
        able = " or ".join(backbone for backbone, name in NAMED.items() if name in layers)
        raise UsageError(
            f"The model has no layer that remembers so many slots or entries, as those of a {able} do: "
            "leave --long-length out."
        )
    return {"model.attention.name": attention, "model.attention.long_length": length}


def _attention(model: Mapping[str, Any]) -> str | None:
    """Name of the attention of a model, where it has one of its own."""
    from stages.models.named import spelled_out

    name: str | None = dict(spelled_out(model).get("attention", {})).get("name")
    return name


def _require_carried(backbone: str | None, init_from: str | None) -> None:
    """Raises: UsageError if --mem-length is given for a backbone that carries no positions."""
    from stages.models import DEFAULT_BACKBONE
    from stages.models.config import backbones_with

    backbone, able = backbone or DEFAULT_BACKBONE, backbones_with("mem_length")
    if backbone not in able:
        other = f", or add --backbone {able[0]}" if init_from is None else ""
        raise UsageError(f"The backbone {backbone!r} carries no positions: leave --mem-length out{other}.")


def _require_nothing_idle(assignments: Iterable[str], init_from: str, common: Common) -> None:
    """Raises: UsageError for a --set that the network of --init-from would win over."""
    from pipelines.settings import assignment, merged
    from stages.models.config import backbones_with, settings_left_open
    from stages.models.layers.lengths import lengthened_layers

    said = merged(*(assignment(text) for text in assignments)).get("model", {})
    idle = [f"model.{name}" for name in said if name not in settings_left_open()]
    if idle:
        model, lengths = _model_of(init_from, common), ["--segment-length"]
        lengths += ["--mem-length"] * (model["backbone"] in backbones_with("mem_length"))
        lengths += ["--long-length"] * (_attention(model) in lengthened_layers())
        raise UsageError(
            f"--init-from takes over how that model is made: leave {', '.join(idle)} out. What may be another: "
            f"{', '.join(lengths)}."
        )
