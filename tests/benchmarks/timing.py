"""How long evaluations, training steps and processes take."""

import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.evaluate import Evaluate
from stages.evaluation.config import EvaluateConfig

T = TypeVar("T")

WARM_UP = 2
"""Rounds of steps that are not counted."""


class Seconds(NamedTuple):
    """Seconds of one run: of the clock, and of the processors."""

    wall: float
    cpu: float


def timed(call: Callable[[], T]) -> tuple[Seconds, T]:
    """What a call took, and what came out."""
    wall, cpu = time.perf_counter(), time.process_time()
    out = call()
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu), out


def evaluation_time(
    store: Store, source: Artifact, *memory: str, tokens: Artifact | None = None, **settings: Any
) -> Seconds:
    """Time of one evaluation, from opening the artifacts to the published report, which is
    forgotten afterwards.
    """
    config = EvaluateConfig(memory=memory, **settings)
    references = {"source": source.reference} | (
        {} if tokens is None else {"tokens": tokens.reference}
    )
    taken, made = timed(lambda: make(Evaluate(), config, references, store, Execution()))
    store.remove(made.artifact.reference)
    return taken


def medians(times: list[Seconds]) -> Seconds:
    """The median of each clock."""
    return Seconds(*(statistics.median(column) for column in zip(*times, strict=True)))


def times_in_turn(
    steps: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = WARM_UP
) -> dict[str, Seconds]:
    """Median times of a step of each; in a round every one takes a step."""
    times: dict[str, list[Seconds]] = {name: [] for name in steps}
    for number in range(warm_up + rounds):
        for name, step in steps.items():
            taken, _ = timed(step)
            if number >= warm_up:
                times[name].append(taken)
    return {name: medians(taken) for name, taken in times.items()}


def processes_in_turn(
    commands: dict[str, list[str]], rounds: int, folder: Path | None = None
) -> dict[str, Seconds]:
    """Median times of processes, from start to end; in a round each runs once, after a round that
    is not counted.

    That first round leaves the bytecode of all modules behind, as installing does.
    """
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    times: dict[str, list[Seconds]] = {name: [] for name in commands}
    for number in range(1 + rounds):
        for name, command in commands.items():
            wall, cpu = time.perf_counter(), _cpu_of_children()
            ended = subprocess.run(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True
            )
            taken = Seconds(time.perf_counter() - wall, _cpu_of_children() - cpu)
            if ended.returncode:
                raise SystemExit(f"{name}: {ended.stderr.decode()}")
            if number:
                times[name].append(taken)
    return {name: medians(taken) for name, taken in times.items()}


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
