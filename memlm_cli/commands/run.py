"""`memlm run`."""

from typing import Annotated

import typer

from memlm_cli import completion
from memlm_cli.arguments import check_artifact_name, given_settings, publish_name, reference_line
from memlm_cli.console import answer, note
from memlm_cli.options import Common

FileList = list[str] | None


def run(
    recipe: Annotated[
        str, typer.Argument(autocompletion=completion.recipes, help="A recipe file, or the name of a shipped recipe.")
    ],
    train: Annotated[FileList, typer.Option(metavar="FILE", help="The recipe's training text.")] = None,
    valid: Annotated[FileList, typer.Option(metavar="FILE", help="The recipe's validation text.")] = None,
    test: Annotated[FileList, typer.Option(metavar="FILE", help="The recipe's test text.")] = None,
    pretrained: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="The recipe's pretrained model: a folder, FILE.gguf, or hf:NAME."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(metavar="N", help="Train with N seeds, from the recipe's upwards, and show means and intervals."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is done, what would run, and why.")] = False,
    *,
    common: Common,
) -> None:
    """Recipe -> all of its stages, in order; what is done is not done again.

    --set and --config take the name of the stage first: --set model.steps=100.
    """
    from memlm_cli.commands.plan import show_estimates
    from memlm_cli.result_tables import tell_rest
    from memlm_cli.run_recipe import as_asked, run_all, show_again, show_groups, show_plan
    from pipelines.estimates import tasks_of
    from pipelines.recipe import find_recipe, load_recipe

    check_artifact_name(common)
    files = {"train": train or (), "valid": valid or (), "test": test or (), "pretrained": pretrained or ()}
    loaded = load_recipe(find_recipe(recipe), files, given_settings(common, {}))
    loaded = as_asked(loaded, seeds, common)
    if common.plan:
        show_estimates(tasks_of(loaded), common, loaded.takes)
        return
    if dry_run:
        show_plan(loaded, common)
        return
    results = run_all(loaded, common)
    last = results[-1]
    show_again(last, common)
    show_groups(results)
    tell_rest(last.artifact, verbose=common.verbose)
    publish_name(common, last.artifact)
    answer(reference_line(last.artifact, last.status, common))
    note(f"run: {last.reference} {last.status}")
