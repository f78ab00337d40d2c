"""Every command that makes an artifact: the stage behind it, and the references it takes beside its source."""

from typing import Any, NamedTuple

from stages.errors import UsageError, did_you_mean
from stages.registry import Registry


class Command(NamedTuple):
    """What `memlm COMMAND` and `command = "COMMAND"` in a recipe stand for."""

    stage: str
    references: tuple[str, ...] = ()
    """Names of other artifacts or files, by what the stage calls them."""
    reads_files: bool = False
    """Whether it reads files of the user rather than artifacts."""
    has_presets: bool = False
    """Whether `memlm presets` lists settings for it."""


COMMANDS = {
    "tokenize": Command("stages.tokenize:Tokenize", ("train", "valid", "test", "tokenizer"), reads_files=True),
    "train": Command("stages.train:Train", ("init_from",), has_presets=True),
    "build-datastore": Command("stages.datastore:BuildDatastore", ("tokens",)),
    "update-datastore": Command("stages.update:UpdateDatastore", ("add",)),
    "build-index": Command("stages.index:BuildIndex", ("update",)),
    "precompute-neighbors": Command("stages.neighbors:PrecomputeNeighbors", ("tokens",)),
    "pack-batches": Command("stages.pack:PackBatches"),
    "evaluate": Command("stages.evaluate:Evaluate", ("tokens", "index", "neighbors", "baseline")),
}
_STAGES = Registry("command", {name: command.stage for name, command in COMMANDS.items()})


def stage_of(command: str) -> Any:
    """A new stage object. Raises UsageError for an unknown command."""
    return _STAGES.load(command)()


def check_references(command: str, names: list[str]) -> None:
    """Raises UsageError if a command takes no reference of one of these names."""
    for name in names:
        if name not in COMMANDS[command].references:
            known = did_you_mean(name, COMMANDS[command].references or ("none",))
            raise UsageError(f"{command} takes no reference {name!r}; {known}")
