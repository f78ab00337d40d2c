"""The commands that do what a recipe does, one a stage, to be copied and typed."""

import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from memlm_cli.options import Common
from pipelines.command_words import command_words
from stages.artifacts import advice

if TYPE_CHECKING:
    from pipelines.recipe import StageRecipe


def stage_command(stage: "StageRecipe", references: Mapping[str, Any], common: Common) -> str:
    """The command of a stage, whose references are those of artifacts that are made, and files."""
    words = command_words(stage.command, references, stage.settings, stage.preset)
    groups = [*_device(common), *store_words(common)]
    return shlex.join(["memlm", *words, *(word for group in groups for word in group)])


def store_words(common: Common) -> Iterator[list[str]]:
    """Where the store is, if a new command would not know."""
    if words := advice.store_words(common.store):
        yield words


def _device(common: Common) -> Iterator[list[str]]:
    if common.device != "auto":
        yield ["--device", common.device]
