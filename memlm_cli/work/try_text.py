"""Work of `memlm try`; the recipe for a text is made once and kept in the store, so that the same
command resumes it.
"""

import json
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path, PurePath

from memlm_cli.arguments import given_settings, publish_name
from memlm_cli.console import answer, has_display, on_terminal, open_page, say
from memlm_cli.options import Common
from memlm_cli.reproduce import baseline_remarks, script
from memlm_cli.work.plan import show_estimates
from memlm_cli.work.run import as_asked, run_all, show_again, show_groups, show_plan
from pipelines.estimates import tasks_of
from pipelines.recipe import Recipe, load_recipe
from pipelines.trial import (
    FEWEST_DOCUMENTS,
    RULES,
    Plan,
    check_settings,
    plan_trial,
    read_plan,
    recipe_text,
    require_lines,
    scored_shares,
    training_settings,
)
from pipelines.trial_budget import (
    FEWEST_BYTES,
    Budget,
    Machine,
    Planner,
    Shares,
    require_enough,
    require_time,
)
from stages.artifacts.durable import write_atomically
from stages.artifacts.references import store_words
from stages.errors import UsageError
from stages.machine import system_load, usable_cores
from stages.numbers import duration, joined, size
from stages.pages.lineage import find_reports
from stages.pages.page import build_page
from stages.pages.tables import short_title
from stages.reports.remarks.table import remark
from stages.text.records import TextFile
from stages.text.sample import Part, choose_records, is_tested_by_few, record_lines
from stages.text.survey import (
    bpe_vocabulary,
    count_lines,
    first_bytes,
    record_sizes,
    survey,
    text_bytes,
    token_bytes,
    within,
)
from stages.tokenization.corpora import find_files
from stages.web import check_page_file, write_page


def try_text(
    files: list[str],
    minutes: float,
    seeds: int | None,
    split: str | None,
    output: Path,
    open_: bool,
    replan: bool,
    dry_run: bool,
    *,
    common: Common,
) -> None:
    """Carry out `memlm try`."""
    if not 0 < minutes < float("inf"):
        raise UsageError(f"--minutes must be above 0, not {minutes}.")
    check_page_file("--output", output)
    settings = given_settings(common, {})
    check_settings(settings)
    shares = None if split is None else scored_shares(split.split(","))
    file, texts = planned(files, minutes, seeds or 1, shares, common, replan=replan)
    plan = read_plan(file)
    for line in plan.said:
        say(f"try: {line}")
    words = ["memlm", "run", str(file), *(word for text in texts for word in ("--train", text))]
    words += [] if seeds is None else ["--seeds", str(seeds)]
    say(f"try: this is a recipe: {shlex.join(words)}")
    recipe = as_asked(load_recipe(file, {"train": texts}, settings), seeds, common)
    if common.plan:
        show_estimates(tasks_of(recipe), common, recipe.takes)
    elif dry_run:
        show_plan(recipe, common)
    else:
        _run(recipe, plan, file, output, minutes, common)
        if open_ and on_terminal() and has_display():
            open_page("try", output)


def _run(
    recipe: Recipe, plan: Plan, file: Path, output: Path, minutes: float, common: Common
) -> None:
    """Run the planned recipe, write its page, and answer with the page's path."""
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
    fields = {
        "path": str(output),
        "recipe": str(file),
        "reports": [one.reference for one in reports],
    }
    answer(json.dumps(fields) if common.json else str(output))


def _say_of_time_left(taken: float, given: float) -> None:
    """Say so if half of the given time is left, in seconds, because the plan was made on a busy
    machine.
    """
    if taken < given / 2:
        say(
            f"try: that took {duration(taken)} of {duration(given)}; --replan times this machine again, and plans more"
        )


def _write_page(references: list[str], output: Path, common: Common, more: list[str]) -> None:
    """Write the page; `more`: lines about the plan to show on it."""
    found = find_reports(references, common.open_store())
    lines = [remark("plan", {"line": line}) for line in more]
    page = build_page(
        found, script, lambda report: [*baseline_remarks(report), *lines], short_title
    )
    if write_page("--output", output, page.html):
        say(f"try: replaced the page that was {output}")
    store = store_words(common.store)
    say(f"\n$ {shlex.join(['memlm', 'report', *references, '--output', str(output), *store])}")
    report = next(report for report in found if "index" in report.manifest.inputs)
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
    `shares`: of the text, for valid and test; None: as much as there is time to score.
    """
    began = time.monotonic()

    found = find_files(files, common.store, lambda sentence: say(f"try: {sentence}"))
    texts = [TextFile.of(path) for path in found]
    total = text_bytes(texts)
    if total < FEWEST_BYTES:
        count_lines(
            texts, FEWEST_BYTES
        )  # reads everything: a picture is refused as no text, whatever its size
    require_enough(
        total, files[0] if len(files) == 1 else f"The text of {len(files)} files or folders"
    )
    # Not earlier: an unusable text should give its error alone.
    if (busy := system_load()) > usable_cores():
        say(
            f"try: this machine is busy (a load of {busy:.1f} on {usable_cores()} cores): all takes longer"
        )
    work = [RULES, [[text.format, text.digest] for text in texts], minutes, common.device]
    work += [seeds] * (seeds > 1) + [shares] * (shares is not None)
    # The name contains all that decides the plan, except the speed of the machine, which changes by
    # the hour.
    name = blake2b(json.dumps(work).encode(), digest_size=6).hexdigest()
    recipe = common.store / TRIALS / f"{name}.toml"
    if recipe.is_file() and not replan:
        say(
            "try: as it was planned before; what is done is not done again, and the time is that of the whole "
            "(--replan times this machine, and plans anew)"
        )
    else:
        require_lines(count_lines(texts, FEWEST_DOCUMENTS))
        say(f"try: reading {len(texts)} file{'s'[: len(texts) != 1]}, and counting tokens")
        planner = Planner(
            token_bytes(texts), Machine(0.0, minutes, seeds), training_settings(), shares
        )
        _plan(texts, total, planner, recipe, common.device, began)
    return recipe, [str(part) for part in _parts(recipe)] or list(files)


def _parts(recipe: Path) -> list[Path]:
    """The file with the part of the text that a recipe reads; empty if it reads the whole text."""
    return [part for part in recipe.with_suffix("").glob("*") if part.suffix in (".txt", ".jsonl")]


def part_name(
    paths: Sequence[str], part: int, total: int, records: tuple[int, int] | None = None
) -> str:
    """File name of a part of some text, which shows how much was left out.

    >>> part_name(["books/Moby Dick.txt", "b.txt"], 437_000, 1_200_000)
    'Moby-Dick-and-1-more-first-437.0kB-of-1.2MB.txt'
    >>> part_name(["books.jsonl"], 48_100, 900_000, (3, 60))
    'books-3-of-60-records-48.1kB-of-900.0kB.jsonl'
    """
    what, ending = (
        ("first", "txt") if records is None else (f"{records[0]}-of-{records[1]}-records", "jsonl")
    )
    name = re.sub(r"[^\w.-]+", "-", PurePath(paths[0]).name.partition(".")[0])[:60]
    more = f"-and-{len(paths) - 1}-more" if len(paths) > 1 else ""
    return f"{name}{more}-{what}-{size(part)}-of-{size(total)}".replace(" ", "") + f".{ending}"


def _plan(
    texts: list[TextFile], total: int, planner: Planner, recipe: Path, device: str, began: float
) -> None:
    """Make the plan and write the recipe; and next to it the part of the text to try, unless it is
    the whole.
    """
    machine = replace(planner.machine, spent=time.monotonic() - began)
    require_time(machine)
    planner, budget = _timed_plan(replace(planner, machine=machine), total, device, began)
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.unlink(
        missing_ok=True
    )  # before its part: a recipe without a part would be taken for the whole text
    for left in _parts(recipe):
        left.unlink()
    taken = None
    if budget.bytes < total or is_tested_by_few(record_sizes(texts), int(budget.test * total)):
        part, taken = _part(texts, budget, total, recipe.with_suffix(""))
        texts = [part]
        planner = replace(planner, token_bytes=token_bytes(texts))
    surveyed = survey(texts)
    if taken is not None:
        budget = replace(budget, bytes=surveyed.bytes)
    trial = plan_trial(surveyed, total, budget, planner, taken)
    write_atomically(recipe, recipe_text(trial))


def _timed_plan(planner: Planner, total: int, device: str, began: float) -> tuple[Planner, Budget]:
    """The plan for `total` bytes by the speed of this machine, measured with the planned
    vocabulary.

    A part of a text has fewer types, and a model with fewer types trains faster: 11,000 tokens a
        second instead of 7,200 were seen.
    """

    # Imported for a new plan alone: it trains, with torch.
    from stages.training.speed import training_speed

    def timed(types: int) -> Planner:
        speed = training_speed(planner.training, types, device, least)
        return replace(
            planner, machine=replace(planner.machine, speed=speed, spent=time.monotonic() - began)
        )

    least = planner.least_speed()
    say("try: timing this machine")
    types = bpe_vocabulary(total)
    planner = timed(types)
    try:
        fewer = planner.best(total).types
    except UsageError:  # too little time at the speed of a vocabulary that is too large
        fewer = bpe_vocabulary(FEWEST_BYTES)
    if fewer < types:
        planner = timed(fewer)
    return planner, planner.best(total)


def _part(
    texts: list[TextFile], budget: Budget, total: int, folder: Path
) -> tuple[TextFile, Part | None]:
    """A part of a text in a file: records from the whole text, with their numbers; else its
    beginning, and None.
    """
    most, sizes = budget.bytes, record_sizes(texts)
    chosen = choose_records(sizes, most, int(budget.test * most))
    taken = Part.of_ranges(chosen, sizes) if chosen else None
    if taken is not None:
        read = sum(stop - start for _, start, stop in chosen)
        part = folder / part_name([text.path for text in texts], read, total, taken[:2])
        write_atomically(part, "".join(record_lines(texts, chosen)))
    else:
        tried = list(within(texts, most))
        if len(tried) < len(texts):
            say(
                f"try: the part that there is time for is of {joined([text.path for text in tried])} alone"
            )
        part = folder / part_name([text.path for text in tried], most, total)
        write_atomically(part, "".join(first_bytes(tried, most)))
    return TextFile.of(str(part)), taken
