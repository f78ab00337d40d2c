"""Work of `memlm plan`, and estimates for other commands."""

import json
import shutil
from collections.abc import Sequence
from typing import Any

import typer

from memlm_cli.console import answer, answers_on_terminal
from memlm_cli.options import Common, StoreOptions
from memlm_cli.tables import table
from pipelines.estimates import Estimate, Fit, Task, estimates, fits
from stages.artifacts.durable import place_of
from stages.artifacts.kinds import COMMANDS
from stages.errors import ResourceError, UsageError, did_you_mean
from stages.machine import memory_bytes
from stages.numbers import duration, size
from stages.reporting import Silent

UNKNOWN = "?"
COLUMNS = ("stage", "command", "state", "why", "took before", "disk", "scratch", "memory")


def plan(parsed: typer.Context, words: list[str] | None, *, store_options: StoreOptions) -> None:
    """Carry out `memlm plan`."""
    if not words:
        raise UsageError("Name a recipe or a command.")
    sources = {
        name: getattr(parsed.get_parameter_source(name), "name", "") for name in ("store", "json")
    }
    typed_options = [f"--{name}" for name, source in sources.items() if source == "COMMANDLINE"]
    first, *rest = [*typed_options[:1], *words]
    group: Any = parsed.find_root().command
    if first.startswith("-"):
        raise UsageError(
            f"Name the recipe or the command first, its options after it: memlm plan RECIPE {first} …"
        )
    if first in group.commands and first not in (*COMMANDS, "run", "try"):
        raise UsageError(
            f"{first} makes no artifact; {did_you_mean(first, (*COMMANDS, 'run', 'try'))}"
        )
    command = [first, *rest] if first in group.commands else ["run", *words]
    with group.make_context("memlm", [command[0], "--plan", *command[1:]]) as planned:
        group.invoke(planned)


def show_estimates(tasks: Sequence[Task], common: Common, takes: str = "") -> None:
    """Print estimates of tasks on stdout.

    Args:
        takes: the time of the whole recipe, as the recipe gives it.
    Raises: ResourceError if they are known to exceed the machine.
    """
    forecasts, fit = _estimates(tasks, common)
    answer(
        json.dumps(_object(forecasts, fit)) if common.json else _text(forecasts, fit, takes),
        styled=True,
    )
    _require(fit)


def require_fit(tasks: Sequence[Task], common: Common) -> None:
    """Check that no task is known to exceed the machine. Raises: ResourceError."""
    _require(_estimates(tasks, common)[1])


def _require(fit: Fit) -> None:
    if fit.problems:
        raise ResourceError(f"This does not fit: {'; '.join(fit.problems)}.")


def _estimates(tasks: Sequence[Task], common: Common) -> tuple[list[Estimate], Fit]:
    store = common.open_store()
    forecasts = list(estimates(tasks, store, common.execution(Silent())))
    return forecasts, fits(
        forecasts,
        shutil.disk_usage(place_of(common.store)).free,
        {"cpu": memory_bytes(), **_gpus(forecasts)},
    )


def _gpus(forecasts: Sequence[Estimate]) -> dict[str, int]:
    """Bytes of memory by GPU; empty without a search if no task computes on one."""
    # Looking for GPUs loads torch, which takes seconds.
    if all(estimate.memory.keys() <= {"cpu"} for estimate in forecasts):
        return {}

    from stages.models.computing import gpus

    return {str(gpu["name"]): int(gpu["memory"]) for gpu in gpus()}


def _text(forecasts: Sequence[Estimate], fit: Fit, takes: str) -> str:
    new = [estimate for estimate in forecasts if estimate.state != "done"]
    more = _and_more(not fit.complete)
    disk = f"disk: {size(fit.stays)} that stay, {size(fit.at_once)} at once{more}; {size(fit.free)} are free"
    rows = table("", COLUMNS, map(_row, forecasts), terminal=answers_on_terminal())
    return "\n".join([rows, "", *_times(new, takes), disk])


def _times(new: Sequence[Estimate], takes: str) -> list[str]:
    """Lines about time: what the same settings took, and what the recipe says."""
    seconds = [estimate.seconds for estimate in new if estimate.seconds is not None]
    lines = []
    if seconds:
        more = _and_more(len(seconds) < len(new))
        lines.append(f"time: the same settings took {duration(sum(seconds))} here{more}")
    if takes and len(seconds) < len(new):
        lines.append(f"all of it, with the settings of the recipe: {takes}")
    return lines


def _and_more(more: bool) -> str:
    return ", and what is not known" if more else ""


def _row(estimate: Estimate) -> tuple[str, ...]:
    name = (estimate.name, estimate.command, estimate.state, estimate.why)
    if estimate.state == "done":
        return (*name, "", _bytes(estimate.disk), "", "")
    memory = [
        f"≥ {size(count)}" + ("" if device == "cpu" else " of the GPU")
        for device, count in estimate.memory.items()
    ]
    return (
        *name,
        "" if estimate.seconds is None else duration(estimate.seconds),
        _bytes(estimate.disk),
        _bytes(estimate.scratch),
        ", ".join(memory) or UNKNOWN,
    )


def _bytes(count: int | None) -> str:
    return UNKNOWN if count is None else size(count)


def _object(forecasts: Sequence[Estimate], fit: Fit) -> dict[str, Any]:
    names = ("command", "state", "reference", "why", "seconds", "disk", "scratch", "memory")
    stages = []
    for estimate in forecasts:
        fields = {name: getattr(estimate, name) for name in names}
        stages.append({"stage": estimate.name, **fields})
    return {
        "stages": stages,
        "disk": {
            "stays": fit.stays,
            "at_once": fit.at_once,
            "complete": fit.complete,
            "free": fit.free,
        },
        "memory": dict(fit.memory),
        "problems": list(fit.problems),
    }
