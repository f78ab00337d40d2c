"""`memlm run`, and functions that show or run a recipe, also for `memlm try`."""

from typing import Annotated

import typer

from memlm_cli import completion
from memlm_cli.command import carried_out_by
from memlm_cli.options import Common

FileList = list[str] | None


@carried_out_by("memlm_cli.work.run:run")
def run(
    recipe: Annotated[
        str,
        typer.Argument(
            autocompletion=completion.recipes,
            help="A recipe file, or the name of a shipped recipe.",
        ),
    ],
    train: Annotated[
        FileList, typer.Option(metavar="FILE", help="The recipe's training text.")
    ] = None,
    valid: Annotated[
        FileList, typer.Option(metavar="FILE", help="The recipe's validation text.")
    ] = None,
    test: Annotated[FileList, typer.Option(metavar="FILE", help="The recipe's test text.")] = None,
    kept: Annotated[
        FileList,
        typer.Option(metavar="FILE", help="A second text, on which forgetting is measured."),
    ] = None,
    pretrained: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="The recipe's pretrained model: a folder, FILE.gguf, or hf:NAME."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Train with N seeds, from the recipe's upwards, and show means and intervals.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what is done, what would run, and why.")
    ] = False,
    *,
    common: Common,
) -> None:
    """Run all stages of a recipe, in order; finished stages are not run again.

    --set and --config take the name of the stage first: --set model.steps=100.
    """
