"""Every command that makes an artifact: the stage behind it, and the references it takes beside its source."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from stages.artifacts.kinds import STAGES
from stages.errors import UsageError, did_you_mean
from stages.registry import Registry


class Command(NamedTuple):
    """A command, as `memlm COMMAND` and as `command = "COMMAND"` in a recipe."""

    source: tuple[str, ...] = ()
    """Kinds of artifacts that its argument may be of."""
    references: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Kinds of other artifacts, by what the stage calls them; none: files."""
    reads_files: bool = False
    """Whether it reads files of the user rather than artifacts."""
    has_presets: bool = False
    """Whether `memlm presets` lists settings for it."""
    seeded: bool = False
    """Whether `memlm run --seeds` repeats it with other seeds."""


COMMANDS = {
    "tokenize": Command(
        references={"train": (), "valid": (), "test": (), "tokenizer": ("tokens",)},
        reads_files=True,
    ),
    "train": Command(
        ("tokens", "batches", "neighbors"),
        {"init_from": ("model",)},
        has_presets=True,
        seeded=True,
    ),
    "import-model": Command(("tokens",), {"checkpoint": ()}),
    "build-datastore": Command(("model",), {"tokens": ("tokens",)}),
    "update-datastore": Command(("datastore",), {"add": ("tokens",)}),
    "build-index": Command(("datastore",), {"update": ("index",)}),
    "precompute-neighbors": Command(("index",), {"tokens": ("tokens",)}),
    "pack-batches": Command(("tokens",)),
    "evaluate": Command(
        ("model", "index", "neighbors"),
        {"tokens": ("tokens",), "index": ("index",), "neighbors": ("neighbors",), "baseline": ("report",)},
    ),
}
_FORECASTS = Registry(
    "command",
    {
        "tokenize": "stages.forecasts.tokenize:TokenizeForecast",
        "train": "stages.forecasts.train:TrainForecast",
        "import-model": "stages.forecasts.import_model:ImportForecast",
        "build-datastore": "stages.forecasts.datastore:DatastoreForecast",
        "update-datastore": "stages.forecasts.update:UpdateForecast",
        "build-index": "stages.forecasts.index:IndexForecast",
        "precompute-neighbors": "stages.forecasts.neighbors:NeighborsForecast",
        "pack-batches": "stages.forecasts.pack:PackForecast",
        "evaluate": "stages.forecasts.evaluate:EvaluateForecast",
    },
)


def stage_of(command: str) -> Any:
    """A new stage object. Raises UsageError for an unknown one."""
    return STAGES.load(command)()


def forecast_of(command: str) -> Any:
    """The forecast of a command. Raises UsageError for an unknown command."""
    return _FORECASTS.load(command)()


def check_references(command: str, names: list[str]) -> None:
    """Raises UsageError if a command takes no reference of one of these names."""
    for name in names:
        if name not in COMMANDS[command].references:
            known = did_you_mean(name, COMMANDS[command].references or ("none",))
            raise UsageError(f"{command} takes no reference {name!r}; {known}")


def reads_artifact(command: str, role: str) -> bool:
    """Whether a reference of a command must be an artifact; others name files."""
    known = COMMANDS[command]
    return not known.reads_files and (role == "source" or bool(known.references[role]))


def names_files(command: str, role: str) -> bool:
    """Whether a reference of a command is never an artifact."""
    return not COMMANDS[command].references[role]
