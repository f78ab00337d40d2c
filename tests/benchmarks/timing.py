"""How long evaluations take."""

import statistics
import time
from typing import Any, NamedTuple

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.evaluate import Evaluate, EvaluateConfig


class Taken(NamedTuple):
    """Seconds of one run: of the clock, and of the processors."""

    wall: float
    cpu: float


def evaluation_time(store: Store, source: Artifact, *memory: str, **settings: Any) -> Taken:
    """Time of one evaluation, from opening the artifacts to the published report, which is forgotten afterwards."""
    config = EvaluateConfig(memory=memory, **settings)
    wall, cpu = time.perf_counter(), time.process_time()
    report = make(Evaluate(), config, {"source": source.reference}, store, Execution()).artifact
    taken = Taken(time.perf_counter() - wall, time.process_time() - cpu)
    store.remove(report.path)
    return taken


def medians(times: list[Taken]) -> Taken:
    """The median of each clock."""
    return Taken(*(statistics.median(column) for column in zip(*times, strict=True)))
