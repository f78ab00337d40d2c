"""`memlm run`."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memlm_cli.console import ConsoleReporter, answer, say
from memlm_cli.exit_codes import resumable
from memlm_cli.options import Common
from memlm_cli.run_stage import check_artifact_name, execution, publish_name, reference_line
from memlm_cli.tables import show_table, table
from stages.numbers import duration

if TYPE_CHECKING:
    from pipelines.recipe import Recipe
    from pipelines.run import Result

FileList = list[str] | None


def run(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or the name of a shipped recipe.")],
    train: Annotated[FileList, typer.Option(metavar="FILE", help="The recipe's training text.")] = None,
    valid: Annotated[FileList, typer.Option(metavar="FILE", help="The recipe's validation text.")] = None,
    test: Annotated[FileList, typer.Option(metavar="FILE", help="The recipe's test text.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is done, what would run, and why.")] = False,
    *,
    common: Common,
) -> None:
    """Recipe -> all of its stages, in order; what is done is not done again.

    --set and --config take the name of the stage first: --set model.steps=100.
    """
    from memlm_cli.settings import given_settings
    from pipelines.recipe import find_recipe, load_recipe

    check_artifact_name(common)
    files = {"train": train or (), "valid": valid or (), "test": test or ()}
    loaded = load_recipe(find_recipe(recipe), files, given_settings(common, {}))
    if common.precision:
        loaded = loaded.with_precision(common.precision)
    if dry_run:
        _show_plan(loaded, common)
    else:
        _run(loaded, common)


def _show_plan(recipe: "Recipe", common: Common) -> None:
    from pipelines.plan import plan_recipe
    from stages.artifacts.store import Store
    from stages.reporting import Silent

    if recipe.description:
        say(f"run: {recipe.description}")
    steps = plan_recipe(recipe, Store(common.store, verify_inputs=common.verify_inputs), execution(common, Silent()))
    if common.json:
        answer(json.dumps([_plan_entry(step) for step in steps]))
        return
    rows = [
        (s.name, s.command, "done" if s.done else "would run", "" if s.done else s.why, s.reference or "")
        for s in steps
    ]
    answer(table("", ("stage", "command", "state", "why", "artifact"), rows))


def _plan_entry(step: Any) -> dict[str, Any]:
    return {
        "stage": step.name,
        "command": step.command,
        "done": step.done,
        "why": step.why,
        "reference": step.reference,
    }


def _run(recipe: "Recipe", common: Common) -> None:
    from memlm_cli.result_tables import show_result
    from pipelines.run import run_recipe
    from stages.artifacts.store import Store

    results: list[Result] = []
    with ConsoleReporter("run") as reporter:
        how = execution(common, reporter)
    with resumable():
        for result in run_recipe(recipe, Store(common.store, verify_inputs=common.verify_inputs), how, ConsoleReporter):
            results.append(result)
            say(f"{result.name}: {result.reference} {result.status} ({duration(result.seconds)})")
            if result.status != "cached" and len(results) < len(recipe.stages):
                show_result(result.artifact)
    _show_summary(results)
    last = results[-1]
    show_result(last.artifact)
    publish_name(common, last.artifact)
    answer(reference_line(last.artifact, last.status, common))


def _show_summary(results: "list[Result]") -> None:
    rows = [(r.name, r.command, r.reference, r.status, duration(r.seconds)) for r in results]
    show_table("Stages", ("stage", "command", "artifact", "", "time"), rows)
