"""`memlm plan`."""

from typing import Annotated, Any

import typer

from memlm_cli import completion
from memlm_cli.options import DEFAULT_STORE, JsonOption, StoreOption
from stages.errors import UsageError, did_you_mean


def plan(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE|COMMAND [ARGS]...",
            autocompletion=completion.planned,
            help="A recipe, or a command that makes an artifact, followed by its own arguments and options.",
        ),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
) -> None:
    """Estimate work, time, disk and memory of every stage of a recipe or a command; exit 5 if it cannot fit.

    Sizes are arithmetic; ~ marks a sample that was scaled up. Times are those of the same work done before in this
    store; of a training of another shape the range is wide. A question mark means: not known.
    """
    from pipelines.catalogue import COMMANDS

    if not words:
        raise UsageError("Name a recipe or a command.")
    sources = {name: getattr(context.get_parameter_source(name), "name", "") for name in ("store", "json_")}
    given = [name for name, source in sources.items() if source == "COMMANDLINE"]
    first, *rest = [f"--{given[0].rstrip('_')}", *words] if given else words
    group: Any = context.find_root().command
    if first.startswith("-"):
        raise UsageError(f"Name the recipe or the command first, its options after it: memlm plan RECIPE {first} …")
    if first in group.commands and first not in (*COMMANDS, "run", "try"):
        raise UsageError(f"{first} makes no artifact; {did_you_mean(first, (*COMMANDS, 'run', 'try'))}")
    command = [first, *rest] if first in group.commands else ["run", *words]
    root = context.find_root()
    with group.make_context(
        "memlm", [command[0], "--plan", *command[1:]], default_map=root.default_map, obj=root.obj
    ) as planned:
        group.invoke(planned)
