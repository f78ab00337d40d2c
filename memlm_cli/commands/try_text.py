"""`memlm try`."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memlm_cli.arguments import check_artifact_name, given_settings, publish_name
from memlm_cli.commands.report import DEFAULT_OUTPUT
from memlm_cli.console import answer, on_terminal, say
from memlm_cli.options import Common
from memlm_cli.output_files import has_display, open_page
from stages.errors import UsageError
from stages.numbers import duration

if TYPE_CHECKING:
    from pipelines.recipe import Recipe
    from pipelines.trial import Plan


Files = Annotated[
    list[str],
    typer.Argument(metavar="FILES...", help="Text files, folders, .jsonl, each also .gz/.xz/.zst, builtin:pydocs."),
]
Seeds = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Train with N seeds, in the same time, and show means and intervals."),
]
Split = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        help="Shares of train, valid and test (default: valid and test as large as there is time to score, a tenth "
        "each of a whole text).",
    ),
]
Open = Annotated[
    bool, typer.Option("--open/--no-open", help="Open the page, where there are a terminal and a browser.")
]
Replan = Annotated[
    bool,
    typer.Option(
        "--replan", help="Time this machine again, and plan anew, where the same text was tried at another speed."
    ),
]


def try_text(
    files: Files,
    minutes: Annotated[float, typer.Option(help="How long it may take, about.")] = 10.0,
    seeds: Seeds = None,
    split: Split = None,
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE.html", help="Where to write the page.")
    ] = DEFAULT_OUTPUT,
    open_: Open = True,
    replan: Replan = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is done, what would run, and why.")] = False,
    *,
    common: Common,
) -> None:
    """Text -> a web page: what a cache, kNN-LM and TRIME are worth on it, with everything chosen for you.

    Each command that it runs is shown, to be copied, changed and run again. After a stop the same command resumes.
    """
    from memlm_cli.commands.plan import show_estimates
    from memlm_cli.run_recipe import show_plan
    from memlm_cli.trial import planned
    from pipelines.estimates import tasks_of
    from pipelines.trial import read_plan, scored_shares
    from stages.pages.page import check_page_file

    if not 0 < minutes < float("inf"):
        raise UsageError(f"--minutes must be above 0, not {minutes}.")
    check_artifact_name(common)
    check_page_file(output)
    settings = _settings(common)
    shares = None if split is None else scored_shares(split.split(","))
    file, texts = planned(files, minutes, seeds or 1, shares, common, replan=replan)
    plan = read_plan(file)
    for line in plan.said:
        say(f"try: {line}")
    recipe = _recipe(file, texts, settings, seeds, common)
    if common.plan:
        show_estimates(tasks_of(recipe), common, recipe.takes)
    elif dry_run:
        show_plan(recipe, common)
    else:
        _run(recipe, plan, file, output, minutes, common)
        if open_ and on_terminal() and has_display():
            open_page("try", output)


def _settings(common: Common) -> dict[str, Any]:
    """The settings of `--set` and `--config`. Raises: UsageError for what no stage could take."""
    from pipelines.trial import check_settings

    settings = given_settings(common, {})
    check_settings(settings)
    return settings


def _recipe(file: Path, texts: list[str], settings: dict[str, Any], seeds: int | None, common: Common) -> "Recipe":
    """The planned recipe, for so many seeds; the command that runs it is shown."""
    from memlm_cli.run_recipe import as_asked
    from pipelines.recipe import load_recipe

    words = ["memlm", "run", str(file), *(word for text in texts for word in ("--train", text))]
    words += [] if seeds is None else ["--seeds", str(seeds)]
    say(f"try: this is a recipe: {shlex.join(words)}")
    return as_asked(load_recipe(file, {"train": texts}, settings), seeds, common)


def _run(recipe: "Recipe", plan: "Plan", file: Path, output: Path, minutes: float, common: Common) -> None:
    """Run what was planned, and write its page; the answer is the page's path."""
    from memlm_cli.run_recipe import run_all, show_again, show_groups

    results = run_all(recipe, common, commands=True)
    reports = [result for result in results if result.artifact.kind == "report"]
    for result in reports:
        show_again(result, common)
    show_groups(results)
    publish_name(common, results[-1].artifact)
    for line in plan.ample:
        say(f"try: {line}")
    if plan.ample and all(result.status == "made" for result in results):
        _say_of_time_left(sum(result.seconds for result in results), 60 * minutes)
    _write_page([result.reference for result in reports], output, common, [*plan.ample, *plan.page])
    if common.json:
        answer(json.dumps({"path": str(output), "recipe": str(file), "reports": [r.reference for r in reports]}))
    else:
        answer(str(output))


def _say_of_time_left(taken: float, given: float) -> None:
    """Say so where a plan made on a busy machine left half of the time, in seconds, that more could be done in."""
    if taken < given / 2:
        say(f"try: that took {duration(taken)} of {duration(given)}; --replan times this machine again, and plans more")


def _write_page(references: list[str], output: Path, common: Common, more: list[str]) -> None:
    """The page; `more` is said there of what was planned."""
    from memlm_cli.reproduce import baseline_remarks, script
    from stages.artifacts.references import store_words
    from stages.pages.lineage import find_reports
    from stages.pages.page import build_page, write_page
    from stages.pages.title import short_title
    from stages.reports.remarks.table import remark

    found = find_reports(references, common.open_store())
    lines = [remark("plan", {"line": line}) for line in more]
    write_page(build_page(found, script, lambda report: [*baseline_remarks(report), *lines], short_title), output)
    store = store_words(common.store)
    say(f"\n$ {shlex.join(['memlm', 'report', *references, '--output', str(output), *store])}")
    report = next(report for report in found if "index" in report.manifest.inputs)
    words = ["memlm", "inspect", report.input("index").reference, "--report", report.reference, "--select", "gains"]
    say(f"try: where the memories gain most, and by what (names, say): {shlex.join([*words, *store])}")
