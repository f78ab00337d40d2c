"""Running a step: its commands in turn, the figures of each row, and the file that a results page
is made of.
"""

import json
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gpu.effects import SUMMED
from tests.gpu.steps import Run, Sizes, Step

PROBED = 30
"""Updates of the short training that tells how many a training has time for."""
STOPPED = 130
"""Exit code of a command that was interrupted, and has saved what it did."""
GRACE = 45
"""Seconds in which it may save."""
Runner = Callable[[Sequence[str], float], "Ended"]


@dataclass(frozen=True)
class Ended:
    """What a command came to: its exit code and standard output."""

    code: int
    output: str


class Unfinished(Exception):
    """Time was over in the midst of a step: the same step goes on from there."""


class Failed(Exception):
    """A command of a step failed."""


@dataclass(frozen=True)
class Part:
    """What one run of a step gave: rows of figures by column, named `row`, and notes on what it
    could not measure.
    """

    run: str
    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = field(default_factory=list)


@dataclass(frozen=True)
class Campaign:
    """Where steps run, and how large they are."""

    texts: Path
    store: Path
    device: str
    sizes: Sizes
    runner: Runner
    probes: bool = True
    """Whether trainings are as long as their minutes; else they have two updates."""

    def run(
        self, step: Step, seconds: float, kept: Mapping[str, Part] | None = None
    ) -> Iterator[Part]:
        """What each run of a step gives, once it is through; what was kept is not run. Raises:
        Unfinished, Failed.
        """
        ends = time.monotonic() + seconds
        for run in step.runs:
            name = self.name_of(run)
            yield (kept or {}).get(name) or self._part(step, run, ends)

    def name_of(self, run: Run) -> str:
        """The name of a run with these sizes."""
        return run.row.format(**self.sizes)

    def _part(self, step: Step, run: Run, ends: float) -> Part:
        row = self.name_of(run)
        names: dict[str, Any] = {
            "row": row,
            "device": self.device,
            "texts": self.texts,
            "store": self.store,
            **self.sizes,
        }
        names["ffn_width"] = 4 * int(self.sizes["width"])
        output, minutes = "", iter(run.minutes)
        for command in run.commands:
            if "{steps}" in command:
                names["steps"] = self._steps(command, names, next(minutes, None), ends)
            output = self._command(command, names, ends)
        try:
            printed = figures_in(output)
        except ValueError as error:
            raise Failed(f"no figures from {run.commands[-1]}: {error}") from error
        named = {row: printed}
        if run.each is not None:
            named = {
                f"{row}, {one['name']}".removeprefix(", "): one
                for one in found_at(printed, run.each)
            }
        rows = [
            {"row": name}
            | {column: found_at(figures, place) for column, place in step.figures.items()}
            for name, figures in named.items()
        ]
        return Part(row, rows, printed.get("notes", []))

    def _steps(
        self, command: str, names: dict[str, Any], minutes: float | None, ends: float
    ) -> int:
        """Updates that a training has time for, by a short one, which the store keeps."""
        if not self.probes or minutes is None:
            return 2
        probe = re.sub(r"--name (\S+)", r"--name \1-probe", command)
        made = figures_in(self._command(probe, names | {"steps": PROBED}, ends))
        return max(PROBED, int(60 * minutes * made["tokens_per_second"] / int(self.sizes["batch"])))

    def _command(self, command: str, names: Mapping[str, Any], ends: float) -> str:
        words = shlex.split(command.format(**names))
        if words[0] == "memlm" and "--store" not in words:
            words += ["--store", str(self.store)]
        words = (
            [sys.executable, "-m", "memlm_cli", *words[1:]]
            if words[0] == "memlm"
            else [sys.executable, *words[1:]]
        )
        ended = self.runner(words, ends - time.monotonic())
        if ended.code == STOPPED:
            raise Unfinished(f"time was over in: {shlex.join(words)}; run the step again")
        if ended.code:
            raise Failed(f"exit code {ended.code}: {shlex.join(words)}")
        return ended.output


def in_a_process(words: Sequence[str], seconds: float) -> Ended:
    """Run a command; when time is over it is interrupted, and may save."""
    if seconds <= 0:
        return Ended(STOPPED, "")
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(2)
        try:
            output, _ = process.communicate(timeout=GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        return Ended(STOPPED, output)
    return Ended(process.returncode, output)


def figures_in(output: str) -> dict[str, Any]:
    """The JSON that a command printed; of a report all that its `metrics.json` holds."""
    printed: dict[str, Any] = (
        json.loads(output[output.index("{") :]) if "{" in output else {"text": output}
    )
    metrics = dict(printed.get("metrics", printed))
    file = Path(printed["path"], "metrics.json") if "path" in printed else None
    return metrics | (
        json.loads(file.read_text("utf-8")) if file is not None and file.exists() else {}
    )


def found_at(figures: Any, place: str) -> Any:
    """The figure at a place such as `rows/0/perplexity`; None: there is none.

    >>> found_at({"rows": [{"perplexity": 70.5}]}, "rows/0/perplexity")
    70.5
    """
    for name in place.split("/"):
        if isinstance(figures, list) and int(name) < len(figures):
            figures = figures[int(name)]
        elif isinstance(figures, dict) and name in figures:
            figures = figures[name]
        else:
            return None
    return figures


def as_toml(
    step: Step, parts: Sequence[Part], about: Mapping[str, str], left: Sequence[str] = ()
) -> str:
    """The file of a step's table and chart, as `docs/site/results.py` reads it.

    Args:
        left: names of runs that were not measured yet.
    """
    columns = ["", *step.figures]
    notes = [*dict.fromkeys(note for part in parts for note in part.notes)]
    if left:
        notes.append(f"Not measured: {', '.join(left)}.")
    top = [
        _line(name, value) for name, value in (about | {"notes": notes, "left": list(left)}).items()
    ]
    lines = [
        f"[[rows]]\n{_line('run', part.run)}\n{_line('cells', [_cell(row[name]) for name in ('row', *step.figures)])}"
        for part in parts
        for row in part.rows
    ]
    if step.name in SUMMED:
        return "\n".join([*top, _line("columns", columns), "", *lines, ""])
    chart = {
        "title": step.asks,
        "caption": f"{step.asks} {about['machine']}.",
        "up": step.up,
        "signed": False,
    }
    bars = ", ".join(f"{json.dumps(name)} = {columns.index(name)}" for name in step.drawn)
    drawn = [_line(name, value) for name, value in chart.items()]
    return "\n".join(
        [
            *top,
            _line("columns", columns),
            "",
            "[chart]",
            *drawn,
            f"bars = {{ {bars} }}",
            "",
            *lines,
            "",
        ]
    )


def _line(name: str, value: Any) -> str:
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"


def measured_before(file: Path, about: Mapping[str, str]) -> dict[str, Part]:
    """Parts of a table that is not whole, if the same commit measured them on the same machine.

    The rest is measured again: figures of one table compare with one another.
    """
    table = tomllib.loads(file.read_text("utf-8")) if file.exists() else {}
    same = all(table.get(name) == about[name] for name in ("machine", "commit"))
    if (
        not table.get("left")
        or not same
        or about["commit"] == UNKNOWN
        or about["commit"].endswith(CHANGED)
    ):
        return {}
    parts: dict[str, Part] = {}
    for row in table["rows"]:
        cells = [None if cell == "" else cell for cell in row["cells"]]
        figures = dict(zip(["row", *table["columns"][1:]], cells, strict=True))
        before = parts.get(
            row["run"], Part(row["run"], [], table["notes"][:-1])
        )  # the last says what is left
        parts[row["run"]] = Part(before.run, [*before.rows, figures], before.notes)
    return parts


UNKNOWN, CHANGED = "unknown", "+"
"""The commit, where there is no repository to ask; what follows it where files differ."""


def _cell(figure: Any) -> Any:
    """A figure with as many digits as tables show; an empty text where there is none."""
    if figure is None:
        return ""
    return float(f"{figure:.4g}") if isinstance(figure, float) and abs(figure) < 1e6 else figure
