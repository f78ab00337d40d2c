"""What work costs, as a table and as JSON."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlm_cli.console import answer, answers_on_terminal, say
from memlm_cli.options import Common
from memlm_cli.run_stage import execution
from memlm_cli.tables import table
from stages.errors import ResourceError
from stages.numbers import duration, size

if TYPE_CHECKING:
    from pipelines.costs import Estimate, Room, Task

UNKNOWN = "?"
COLUMNS = ("stage", "command", "state", "work", "time", "disk", "scratch", "memory")
ON_GPU = "GPU memory"
"""The column beside them where a GPU computes."""


def show_costs(tasks: "Sequence[Task]", common: Common, takes: str = "") -> None:
    """What tasks cost, on stdout.

    Args:
        takes: the time that their recipe says of all of them.
    Raises: ResourceError if what they need is known to be more than there is.
    """
    found, fit = _costs(tasks, common)
    answer(json.dumps(_object(found, fit)) if common.json else _text(found, fit, takes), styled=True)
    _require(fit)


def require_room(tasks: "Sequence[Task]", common: Common) -> None:
    """Raises: ResourceError if what tasks need is known to be more than there is."""
    _require(_costs(tasks, common)[1])


def _require(fit: "Room") -> None:
    if fit.problems:
        raise ResourceError(f"This does not fit: {'; '.join(fit.problems)}.")


def _costs(tasks: "Sequence[Task]", common: Common) -> "tuple[list[Estimate], Room]":
    from pipelines.costs import estimates, room
    from stages.artifacts.store import Store
    from stages.machine import memory_bytes
    from stages.reporting import Silent

    store = Store(common.store, verify_inputs=common.verify_inputs)
    found = list(estimates(tasks, store, execution(common, Silent()), _measuring if common.calibrate else None))
    return found, room(found, shutil.disk_usage(_place(common)).free, {"cpu": memory_bytes(), **_gpus(found)})


def _measuring(name: str) -> None:
    say(f"measuring {name} on a part of its work")


def _place(common: Common) -> Path:
    """The store, or the folder in which it would be made."""
    folder = common.store.absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())


def _gpus(found: "Sequence[Estimate]") -> dict[str, int]:
    """Bytes of memory of the GPUs that are used, by name; where nothing is computed on one, none is looked for."""
    if all(estimate.device == "cpu" for estimate in found):
        return {}
    from stages.models.devices import gpus

    return {str(gpu["name"]): int(gpu["memory"]) for gpu in gpus()}


def _text(found: "Sequence[Estimate]", fit: "Room", takes: str) -> str:
    terminal = answers_on_terminal()
    on_gpu = any(estimate.device != "cpu" for estimate in found)
    columns = (*COLUMNS, ON_GPU) if on_gpu else COLUMNS
    rows = [(*_row(estimate), *([_gpu(estimate)] if on_gpu else [])) for estimate in found]
    lines = [table("", columns, rows, terminal=terminal), ""]
    new = [estimate for estimate in found if estimate.state != "done"]
    known = [estimate.seconds for estimate in new if estimate.seconds is not None]
    if known:
        least, most = (sum(seconds) for seconds in zip(*known, strict=True))
        lines.append(f"time: {_span((least, most))}{_and_more(len(known) < len(new))}")
    elif new:
        lines.append(
            "time: not known, nothing like it was made in this store; --calibrate measures what it can, by a few "
            "updates of a training and a part of other stages, on stand-ins of what is not made yet: a minute or two "
            "for a small text"
        )
    if takes and len(known) < len(new):
        lines.append(f"all of it, with the settings of the recipe: {takes}")
    continued = [one.name for one in new if one.state == "continues" and one.seconds is not None]
    if continued:
        lines.append(f"the time of the whole work, part of which is done already: {', '.join(continued)}")
    short = [estimate.name for estimate in new if estimate.short]
    if short:
        lines.append(
            f"by runs of a few seconds, most of which a program takes to start: {', '.join(short)} "
            "(nearer the shorter time; --calibrate measures it)"
        )
    foretold = [estimate.name for estimate in new if estimate.foretold]
    if foretold:
        lines.append(f"by the recipe, as this machine was when it was made: {', '.join(foretold)}")
    measured = [estimate.name for estimate in new if estimate.calibrated and not estimate.stand_ins]
    if measured:
        lines.append(f"measured here, on a part of the work: {', '.join(measured)}")
    standing = [estimate.name for estimate in new if estimate.stand_ins]
    if standing:
        lines.append(
            "measured here, on a part of the work, with a part of the text and made-up numbers in place of what is not "
            f"made yet: {', '.join(standing)}"
        )
    for estimate in new:
        limit = fit.memory.get(estimate.device)
        if estimate.gpu is not None and limit is not None and estimate.gpu > limit:
            lines.append(
                f"{estimate.name} is near what {estimate.device} has, {size(limit)}, and may not fit; what would help: "
                f"{estimate.gpu_remedy or estimate.remedy}"
            )
    lines += [f"measured before, on a part of the work: {one.name} ({one.kept})" for one in new if one.kept]
    more = _and_more(not fit.complete)
    lines.append(f"disk: {size(fit.stays)} that stay, {size(fit.at_once)} at once{more}; {size(fit.free)} are free")
    return "\n".join(lines)


def _and_more(more: bool) -> str:
    return ", and what is not known" if more else ""


def _row(estimate: "Estimate") -> tuple[str, ...]:
    about = "~" if estimate.approximate else ""
    effort = estimate.effort
    done = estimate.state == "done"
    return (
        estimate.name,
        estimate.command,
        estimate.state,
        "" if done else _known(None if effort is None else f"{about}{effort.amount:,} {effort.unit}"),
        "" if done else _known(None if estimate.seconds is None else _span(estimate.seconds)),
        _known(None if estimate.disk is None else ("~" if estimate.like_others else about) + size(estimate.disk)),
        "" if done else _known(None if estimate.scratch is None else about + size(estimate.scratch)),
        "" if done else _known(None if estimate.memory is None else f"≥ {size(estimate.memory)}"),
    )


def _gpu(estimate: "Estimate") -> str:
    """Of a stage that computes on the CPU, or is done, nothing."""
    if estimate.device == "cpu" or estimate.state == "done":
        return ""
    return _known(None if estimate.gpu is None else f"~{size(estimate.gpu)}")


def _known(text: str | None) -> str:
    return UNKNOWN if text is None else text


def _span(seconds: tuple[float, float]) -> str:
    least, most = (duration(one) for one in seconds)
    return least if least == most else f"{least} to {most}"


def _object(found: "Sequence[Estimate]", fit: "Room") -> dict[str, Any]:
    return {
        "stages": [_entry(estimate) for estimate in found],
        "disk": {"stays": fit.stays, "at_once": fit.at_once, "complete": fit.complete, "free": fit.free},
        "memory": dict(fit.memory),
        "problems": list(fit.problems),
    }


def _entry(estimate: "Estimate") -> Mapping[str, Any]:
    effort = estimate.effort
    return {
        "stage": estimate.name,
        "command": estimate.command,
        "state": estimate.state,
        "reference": estimate.reference,
        "amount": None if effort is None else effort.amount,
        "unit": None if effort is None else effort.unit,
        "seconds": estimate.seconds,
        "measured": estimate.measured,
        "of_short_runs": estimate.short,
        "calibrated": estimate.calibrated,
        "stand_ins": estimate.stand_ins,
        "kept": estimate.kept or None,
        "foretold": estimate.foretold,
        "disk": estimate.disk,
        "disk_like_others": estimate.like_others,
        "scratch": estimate.scratch,
        "memory": estimate.memory,
        "gpu_memory": estimate.gpu,
        "gpu_memory_least": estimate.gpu_least,
        "device": estimate.device,
        "approximate": estimate.approximate,
    }
