"""The commands that do what a recipe does, one a stage, to be copied and typed."""

import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from memlm_cli.options import Common
from memlm_cli.reproduce.spelling import setting_words
from stages.artifacts import advice

if TYPE_CHECKING:
    from pipelines.recipe import StageRecipe


def stage_command(stage: "StageRecipe", references: Mapping[str, Any], common: Common) -> str:
    """The command of a stage, whose references are those of artifacts that are made, and files."""
    groups = [["memlm", stage.command], *_read(references)]
    groups += [["--model", stage.preset]] if stage.preset else []
    groups += [*setting_words(stage.command, stage.settings), *_device(common)]
    return shlex.join(word for group in [*groups, *store_words(common)] for word in group)


def store_words(common: Common) -> Iterator[list[str]]:
    """Where the store is, if a new command would not know."""
    if words := advice.store_words(common.store):
        yield words


def _read(references: Mapping[str, Any]) -> Iterator[list[str]]:
    """The argument, then references by option; a list of files repeats its option."""
    for role, value in references.items():
        for one in [value] if isinstance(value, str) else value:
            yield [one] if role == "source" else [f"--{role.replace('_', '-')}", one]


def _device(common: Common) -> Iterator[list[str]]:
    if common.device != "auto":
        yield ["--device", common.device]
