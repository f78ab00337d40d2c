"""Work of `memlm run`, and functions that show or run a recipe, also for `memlm try`."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from memlm_cli.arguments import given_settings, publish_name, reference_line
from memlm_cli.console import answer, on_terminal, say
from memlm_cli.exit_codes import resumable
from memlm_cli.options import Common
from memlm_cli.progress import ConsoleReporter
from memlm_cli.results.groups import costs_text, groups_text
from memlm_cli.results.show import show_result, tell_rest
from memlm_cli.tables import answer_table
from memlm_cli.work.plan import require_fit, show_estimates
from pipelines.estimates import estimates, tasks_of
from pipelines.recipe import Recipe, find_recipe, load_recipe, require_named
from pipelines.run import Result, run_recipe
from pipelines.variants import varied
from stages.artifacts.references import store_words
from stages.evaluation.figures.seed_groups import compare_groups, text_of
from stages.numbers import duration
from stages.reporting import Silent


def run(
    recipe: str,
    train: list[str] | None,
    valid: list[str] | None,
    test: list[str] | None,
    kept: list[str] | None,
    pretrained: str | None,
    seeds: int | None,
    dry_run: bool,
    *,
    common: Common,
) -> None:
    """Carry out `memlm run`."""
    files = {
        "train": train or (),
        "valid": valid or (),
        "test": test or (),
        "kept": kept or (),
        "pretrained": pretrained or (),
    }
    loaded = as_asked(
        load_recipe(find_recipe(recipe), files, given_settings(common, {})), seeds, common
    )
    if common.plan:
        return show_estimates(tasks_of(loaded), common, loaded.takes)
    if dry_run:
        return show_plan(loaded, common)
    results = run_all(loaded, common)
    last = results[-1]
    show_again(last, common)
    show_together(results)
    tell_rest(last.artifact, verbose=common.verbose)
    publish_name(common, last.artifact)
    answer(reference_line(last.artifact, last.status, common))


CONFIDENCE = 0.95
"""Confidence of the intervals over seeds."""


def as_asked(recipe: Recipe, seeds: int | None, common: Common) -> Recipe:
    """A recipe in the requested precision, repeated for each value of its sweep and each seed."""
    if common.precision:
        recipe = recipe.with_precision(common.precision)
    return varied(recipe, seeds)


def show_plan(recipe: Recipe, common: Common) -> None:
    """Print on stdout which stages of a recipe are done, which would run, and why."""
    if recipe.description:
        say(f"run: {recipe.description}{f' ({recipe.takes})' if recipe.takes else ''}")
    store = common.open_store()
    require_named(recipe, store)
    stages = estimates(tasks_of(recipe), store, common.execution(Silent()), sizes=False)
    rows = [
        (stage.name, stage.command, stage.state == "done", stage.why, stage.reference)
        for stage in stages
    ]
    if common.json:
        fields = ("stage", "command", "done", "why", "reference")
        answer(json.dumps([dict(zip(fields, row, strict=True)) for row in rows]))
        return
    shown = [
        (name, command, "done" if done else "would run", why, ref or "")
        for name, command, done, why, ref in rows
    ]
    answer_table(("stage", "command", "state", "why", "artifact"), shown)


def run_all(recipe: Recipe, common: Common, *, commands: bool = False) -> list[Result]:
    """Run a recipe's stages; `--verbose` shows the result of each.

    Args:
        commands: whether the command of each stage is shown before it runs.
    Raises: ResourceError, before any stage begins, if they are known not to fit; the errors of the
    stages.
    """

    def begins(command: tuple[str, ...]) -> None:
        if commands:
            device = [] if common.device == "auto" else ["--device", common.device]
            say(f"\n$ {shlex.join(['memlm', *command, *device, *store_words(common.store)])}")

    require_fit(tasks_of(recipe), common)
    results: list[Result] = []
    *_, last = recipe.stages
    with resumable():
        for result in run_recipe(
            recipe, common.open_store(), common.execution(Silent()), ConsoleReporter, begins
        ):
            results.append(result)
            say(f"{result.name}: {result.reference} {result.status} ({took(result)})")
            if result.status != "cached" and result.name != last and common.verbose:
                show_result(result.artifact, named=True, verbose=True)
    return results


def show_again(result: Result, common: Common) -> None:
    """Show the tables of a stage, titled with the seed or other variant: `report/…, seed 2`."""
    variant = result.name.partition("[")[2].removesuffix("]")
    show_result(
        result.artifact,
        variant=variant.replace("=", " ").replace(",", ", "),
        verbose=common.verbose,
    )


def show_together(results: list[Result]) -> None:
    """Show the reports of each scored text: of one stage its seeds and its sweep, of several what
    their rows gain and cost.
    """
    texts: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        if result.artifact.kind == "report":
            texts.setdefault(text_of(result.artifact), []).append(result)
    for reports in texts.values():
        stages = dict.fromkeys(_stage_of(result) for result in reports)
        if len(stages) == 1:
            show_groups(reports)
            continue
        comparison = compare_groups([result.artifact for result in reports], CONFIDENCE)
        shown = costs_text(comparison, _labels(comparison, reports), terminal=on_terminal())
        say(f"\n{', '.join(stages)}: {len(reports)} runs\n{shown}", styled=True)


def show_groups(results: list[Result]) -> None:
    """Show means over seeds, and the values of a sweep side by side: one table for each scored
    text.
    """
    tables: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if "[" in result.name and result.artifact.kind == "report":
            text = _stage_of(result), result.artifact.input("tokens").reference
            tables.setdefault(text, []).append(result)
    for (name, _), variants in tables.items():
        comparison = compare_groups([result.artifact for result in variants], CONFIDENCE)
        shown = groups_text(comparison, _labels(comparison, variants), terminal=on_terminal())
        say(f"\n{name}: {len(variants)} runs\n{shown}", styled=True)


def _stage_of(result: Result) -> str:
    """The stage of a result, without its seed or other variant."""
    return result.name.partition("[")[0]


def _labels(comparison: Mapping[str, Any], results: Sequence[Result]) -> list[str]:
    """Names of the groups of a comparison: their stages and variants, without seeds."""
    names = {result.reference: result.name for result in results}
    firsts = [names[group["reports"][0]] for group in comparison["groups"]]
    return [re.sub(r",?\bseed=\d+", "", first).replace("[]", "") for first in firsts]


def took(result: Result) -> str:
    """The time that an artifact took to make, by its manifest; or that of this run, if some of it
    was done before.
    """
    whole = duration(result.artifact.manifest.seconds)
    now = duration(result.seconds)
    return {"made": whole, "resumed": f"{now} now, {whole} in all", "cached": now}[result.status]
