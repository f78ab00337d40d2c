"""Running a step: its commands in turn, the figures of each row, and the file that a results page is made of."""

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu.steps import Run, Sizes, Step

PROBED = 30
"""Updates of the short training that tells how many a training has time for."""
STOPPED = 130
"""Exit code of a command that was interrupted, and has saved what it did."""
Runner = Callable[[Sequence[str], float], "Ended"]


@dataclass(frozen=True)
class Ended:
    """What a command came to: its exit code and standard output."""

    code: int
    output: str


class Unfinished(Exception):
    """Time was over in the midst of a step, or a command failed: the same step goes on from there."""


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

    def run(self, step: Step, seconds: float) -> list[dict[str, Any]]:
        """The rows of a step. Raises: Unfinished."""
        ends = time.monotonic() + seconds
        return [row for one in step.runs for row in self._rows(step, one, ends)]

    def _rows(self, step: Step, run: Run, ends: float) -> list[dict[str, Any]]:
        row = run.row.format(**self.sizes)
        names: dict[str, Any] = {
            "row": row,
            "device": self.device,
            "texts": self.texts,
            "store": self.store,
            **self.sizes,
        }
        names["ffn_width"] = 4 * int(self.sizes["width"])
        output = ""
        for command in run.commands:
            if "{steps}" in command:
                names["steps"] = self._steps(command, names, run, ends)
            output = self._command(command, names, ends)
        printed = figures_in(output)
        named = {row: printed}
        if run.each is not None:
            named = {f"{row}, {one['name']}".removeprefix(", "): one for one in found_at(printed, run.each)}
        return [
            {"row": name} | {column: found_at(figures, place) for column, place in step.figures.items()}
            for name, figures in named.items()
        ]

    def _steps(self, command: str, names: dict[str, Any], run: Run, ends: float) -> int:
        """Updates that a training has time for, by a short one, which the store keeps."""
        if not self.probes or run.minutes is None:
            return 2
        probe = re.sub(r"--name (\S+)", r"--name \1-probe", command)
        made = figures_in(self._command(probe, names | {"steps": PROBED}, ends))
        return max(PROBED, int(60 * run.minutes * made["tokens_per_second"] / int(self.sizes["batch"])))

    def _command(self, command: str, names: Mapping[str, Any], ends: float) -> str:
        words = shlex.split(command.format(**names))
        if words[0] == "memlm" and "--store" not in words:
            words += ["--store", str(self.store)]
        words = [sys.executable, "-m", "memlm_cli", *words[1:]] if words[0] == "memlm" else [sys.executable, *words[1:]]
        ended = self.runner(words, ends - time.monotonic())
        if ended.code == STOPPED:
            raise Unfinished(f"time was over in: {shlex.join(words)}; run the step again")
        if ended.code:
            raise Unfinished(f"exit code {ended.code}: {shlex.join(words)}")
        return ended.output


def in_a_process(words: Sequence[str], seconds: float) -> Ended:
    """Run a command; when time is over it is interrupted, and has a minute to save."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        output, _ = process.communicate(timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        process.send_signal(2)
        try:
            output, _ = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        return Ended(STOPPED, output)
    return Ended(process.returncode, output)


def figures_in(output: str) -> dict[str, Any]:
    """The JSON that a command printed; of a report all that its `metrics.json` holds."""
    printed: dict[str, Any] = json.loads(output[output.index("{") :]) if "{" in output else {"text": output}
    metrics = dict(printed.get("metrics", printed))
    file = Path(printed["path"], "metrics.json") if "path" in printed else None
    return metrics | (json.loads(file.read_text("utf-8")) if file is not None and file.exists() else {})


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


def as_toml(step: Step, rows: Sequence[Mapping[str, Any]], about: Mapping[str, str]) -> str:
    """The file of a step's table and chart, as `docs/site/results.py` reads it."""
    columns = ["", *step.figures]
    top = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in about.items()]
    cells = ([row["row"], *(_cell(row[name]) for name in step.figures)] for row in rows)
    chart = {"title": step.asks, "caption": f"{step.asks} {about['machine']}.", "up": step.up, "signed": False}
    drawn = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in chart.items()]
    bars = ", ".join(f"{json.dumps(name)} = {columns.index(name)}" for name in step.drawn)
    lines = [f"[[rows]]\ncells = {json.dumps(one, ensure_ascii=False)}" for one in cells]
    table = [*top, f"columns = {json.dumps(columns)}", "", "[chart]", *drawn, f"bars = {{ {bars} }}", "", *lines, ""]
    return "\n".join(table)


def _cell(figure: Any) -> Any:
    """A figure with as many digits as tables show; an empty text where there is none."""
    if figure is None:
        return ""
    return float(f"{figure:.4g}") if isinstance(figure, float) and abs(figure) < 1e6 else figure
