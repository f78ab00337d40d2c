"""`memlm plan`, and estimates for other commands."""

from typing import Annotated

import typer

from memlm_cli import completion
from memlm_cli.command import carried_out_by
from memlm_cli.options import StoreOptions


@carried_out_by("memlm_cli.work.plan:plan")
def plan(
    parsed: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE|COMMAND [ARGS]...",
            autocompletion=completion.planned,
            help="A recipe, or a command that makes an artifact, followed by its own arguments and options.",
        ),
    ] = None,
    *,
    store_options: StoreOptions,
) -> None:
    """Show what a recipe or a command would run and why, with its disk and memory; exit 5 if they
    exceed the machine.

    Sizes are arithmetic. A time is what the same settings took before in this store, with another
    seed. A question mark means: not known.
    """
