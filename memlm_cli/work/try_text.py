"""Work of `memlm try`; the recipe for a text is made once and kept in the store, so that the same
command resumes it.
"""

import json
import shlex
import time
from collections.abc import Sequence
from hashlib import blake2b
from math import ceil
from pathlib import Path

from memlm_cli.arguments import given_settings, publish_name
from memlm_cli.console import answer, has_display, on_terminal, open_page, say
from memlm_cli.options import Common
from memlm_cli.reproduce import baseline_remarks, script
from memlm_cli.work.piped_text import FOLDER as PIPED
from memlm_cli.work.piped_text import kept_unless_refused
from memlm_cli.work.plan import show_estimates
from memlm_cli.work.run import as_asked, run_all, show_again, show_groups, show_plan
from pipelines.estimates import tasks_of
from pipelines.recipe import Recipe, load_recipe
from pipelines.run import Result
from pipelines.trial import (
    FEWEST_DOCUMENTS,
    RULES,
    require_lines,
    scored_shares,
    training_settings,
)
from pipelines.trial_budget import FEWEST_BYTES, Planner, Shares, require_enough
from pipelines.trial_costs import Machine
from pipelines.trial_planning import TrialText, part_files, write_plan
from pipelines.trial_recipe import check_settings, read_plan
from pipelines.trial_words import Plan
from stages.artifacts.references import store_words
from stages.errors import UsageError
from stages.machine import system_load, usable_cores
from stages.numbers import duration, number
from stages.pages.lineage import find_reports
from stages.pages.page import build_page
from stages.pages.tables import short_title
from stages.reports.remarks.table import remark
from stages.text.config import TEXT
from stages.text.files import format_of, require_columns
from stages.text.survey import count_lines
from stages.tokenization.corpora import find_files
from stages.web import check_page_file, write_page


def try_text(
    files: list[str],
    minutes: float,
    seeds: int | None,
    split: str | None,
    column: str | None,
    output: Path,
    open_: bool,
    replan: bool,
    dry_run: bool,
    *,
    common: Common,
) -> None:
    """Carry out `memlm try`."""
    began = time.monotonic()
    if not 0 < minutes < float("inf"):
        raise UsageError(f"--minutes must be above 0, not {minutes}.")
    check_page_file("--output", output)
    settings = given_settings(common, {})
    check_settings(settings)
    shares = None if split is None else scored_shares(split.split(","))
    with kept_unless_refused({"files": files}, common.store) as placed:
        file, texts = planned(
            placed["files"], column, minutes, seeds or 1, shares, common, replan=replan
        )
    plan = read_plan(file)
    for line in plan.said:
        _say(line)
    words = ["memlm", "run", str(file), *(word for text in texts for word in ("--train", text))]
    words += [] if seeds is None else ["--seeds", str(seeds)]
    say(f"try: this is a recipe: {shlex.join(words)}")
    recipe = as_asked(load_recipe(file, {"train": texts}, settings), seeds, common)
    if common.plan:
        show_estimates(tasks_of(recipe), common, recipe.takes)
    elif dry_run:
        show_plan(recipe, common)
    else:
        _run(recipe, plan, file, output, minutes, began, common)
        if open_ and on_terminal() and has_display():
            open_page("try", output)


def _run(
    recipe: Recipe,
    plan: Plan,
    file: Path,
    output: Path,
    minutes: float,
    began: float,
    common: Common,
) -> None:
    """Run the planned recipe, write its page, and answer with the page's path.

    `began`: when the command began, in seconds of the monotonic clock.
    """
    results = run_all(recipe, common, commands=True)
    reports = [result for result in results if result.artifact.kind == "report"]
    for result in reports:
        show_again(result, common)
    show_groups(results)
    publish_name(common, results[-1].artifact)
    for line in plan.ample:
        _say(line)
    if plan.ample and all(result.status == "made" for result in results):
        # Reading and timing are part of the minutes, so all since the command began counts.
        _say_of_time_left(time.monotonic() - began, minutes, _least_speed(results), plan)
    _write_page([result.reference for result in reports], output, common, [*plan.ample, *plan.page])
    fields = {
        "path": str(output),
        "recipe": str(file),
        "reports": [report.reference for report in reports],
    }
    answer(json.dumps(fields) if common.json else str(output))


FASTER = 1.2
"""Ratio of the speed of training to the planned one from which the machine is called faster."""


def _least_speed(results: Sequence[Result]) -> float:
    """Tokens a second of the slowest plain training of a trial; 0: too short to be timed."""
    models = [result for result in results if result.name.partition("[")[0] == "model"]
    speeds: list[float] = [model.artifact.metrics["tokens_per_second"] or 0.0 for model in models]
    return min(speeds)


def _say_of_time_left(seconds: float, minutes: float, speed: float, plan: Plan) -> None:
    """Say so if half of the minutes is left, and what would use them.

    Args:
        seconds: what the whole command took.
        minutes: what was given.
        speed: tokens a second in training.
    """
    given = 60 * minutes
    if seconds >= given / 2:
        return
    taken = f"that took {duration(seconds)} of {duration(given)}, and {duration(plan.seconds)} were planned"
    if speed > FASTER * plan.speed:
        trained = number(round(speed))
        planned_speed = number(round(plan.speed))
        _say(
            f"{taken}: training made {trained} tokens a second instead of {planned_speed}; "
            "--replan times this machine again, and plans more"
        )
    else:
        # Another timing would give the same plan, so only more minutes use the time.
        enough = max(ceil(minutes) + 1, int(minutes * given / max(1.0, seconds)))
        _say(
            f"{taken}, though training was hardly faster than planned; "
            f"--minutes {enough} would take about {duration(given)}"
        )


def _write_page(references: list[str], output: Path, common: Common, more: list[str]) -> None:
    """Write the page; `more`: lines about the plan to show on it."""
    artifacts = find_reports(references, common.open_store())
    lines = [remark("plan", {"line": line}) for line in more]
    page = build_page(
        artifacts, script, lambda report: [*baseline_remarks(report), *lines], short_title
    )
    if write_page("--output", output, page.html):
        say(f"try: replaced the page that was {output}")
    store = store_words(common.store)
    say(f"\n$ {shlex.join(['memlm', 'report', *references, '--output', str(output), *store])}")
    report = next(report for report in artifacts if "index" in report.manifest.inputs)
    words = [
        "memlm",
        "inspect",
        report.input("index").reference,
        "--report",
        report.reference,
        "--select",
        "gains",
    ]
    say(
        f"try: where the memories gain most, and by what (names, say): {shlex.join([*words, *store])}"
    )


TRIALS = "trials"
"""Folder of a store for recipes, and for parts of texts, each part in a folder of its recipe."""


def planned(
    files: Sequence[str],
    column: str | None,
    minutes: float,
    seeds: int,
    shares: Shares | None,
    common: Common,
    *,
    replan: bool,
) -> tuple[Path, list[str]]:
    """The recipe for a text, and its input files: the user's, or one with a part of their text.

    The recipe has one seed, and leaves time for the others.

    The plan depends on the speed of the machine, which changes from hour to hour. So an earlier
    plan for the same text and minutes is kept and resumed, unless `replan` asks for a new one.
    `column`: column or field that holds the text; None: the usual one.
    `shares`: of the text, for valid and test; None: as much as there is time to score.
    """
    began = time.monotonic()
    text = _text(files, column, common)
    # Not earlier: an unusable text should give its error alone.
    if (busy := system_load()) > usable_cores():
        _say(
            f"this machine is busy (a load of {busy:.1f} on {usable_cores()} cores): all takes longer"
        )
    recipe = _recipe_file(text, minutes, seeds, shares, common)
    if recipe.is_file() and not replan:
        _say(
            "as it was planned before; what is done is not done again, and the time is that of the whole "
            "(--replan times this machine, and plans anew)"
        )
    else:
        require_lines(count_lines(text.files, FEWEST_DOCUMENTS))
        count = len(text.files)
        _say(f"reading {count} file{'s'[: count != 1]}, and counting tokens")
        machine = Machine(0.0, minutes, seeds)
        planner = Planner(text.token_bytes(), machine, training_settings(), shares)
        write_plan(text, planner, recipe, common.device, began, _say)
    return recipe, [str(part) for part in part_files(recipe)] or list(files)


def _say(sentence: str) -> None:
    say(f"try: {sentence}")


def _text(files: Sequence[str], column: str | None, common: Common) -> TrialText:
    """The text of a user's files.

    Raises: DataError for one that is too short, or no text; UsageError for a column of files that
        have none.
    """
    paths = find_files(files, common.store, _say, column or TEXT)
    if column is not None:
        require_columns(map(format_of, paths))
    text = TrialText.of(paths, column)
    if text.bytes < FEWEST_BYTES:
        # Reads everything: a picture is refused as no text, whatever its size.
        count_lines(text.files, FEWEST_BYTES)
    name = files[0] if len(files) == 1 else f"The text of {len(files)} files or folders"
    if len(files) == 1 and Path(name).parent == common.store / PIPED:
        name = "The text on standard input"
    require_enough(text.bytes, name)
    return text


def _recipe_file(
    text: TrialText, minutes: float, seeds: int, shares: Shares | None, common: Common
) -> Path:
    """The file of the plan for a text.

    Its name contains all that decides the plan, except the speed of the machine, which changes by
    the hour.
    """
    texts = [[file.format, file.digest] for file in text.files]
    work = [RULES, texts, minutes, common.device]
    work += [seeds] * (seeds > 1) + [shares] * (shares is not None)
    work += [text.column] * (text.column is not None)
    name = blake2b(json.dumps(work).encode(), digest_size=6).hexdigest()
    return common.store / TRIALS / f"{name}.toml"
