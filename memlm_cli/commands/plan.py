"""`memlm plan`."""

from typing import Annotated, Any

import typer

from memlm_cli import completion
from stages.errors import UsageError, did_you_mean


def plan(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE|COMMAND [ARGS]...",
            autocompletion=completion.planned,
            help="A recipe, or a command that makes an artifact, with all that would be typed behind it.",
        ),
    ],
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Measure what this store cannot tell: a few updates of a training, one shard of a datastore, of "
            "neighbours, of an evaluation.",
        ),
    ] = False,
) -> None:
    """What a recipe or a command would cost: work, time, disk and memory of every stage; exit 5 if it cannot fit.

    Sizes are arithmetic, of text not read yet from a sample (~). Times are those of the same work in this store, or
    measured on a part of it. What is not known is a question mark.
    """
    from pipelines.catalogue import COMMANDS

    first, *rest = words
    group: Any = context.find_root().command
    if first.startswith("-"):
        raise UsageError(f"Name the recipe or the command first, its options behind it: memlm plan RECIPE {first} …")
    if first in group.commands and first not in (*COMMANDS, "run", "try"):
        raise UsageError(f"{first} makes no artifact; {did_you_mean(first, (*COMMANDS, 'run', 'try'))}")
    command = [first, *rest] if first in group.commands else ["run", *words]
    arguments = [command[0], "--plan", *(["--calibrate"] if calibrate else []), *command[1:]]
    root = context.find_root()
    with group.make_context("memlm", arguments, default_map=root.default_map, obj=root.obj) as planned:
        group.invoke(planned)
