"""Runs a recipe: each stage in order, fed by those before it."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from pipelines.executors.local import run_stage
from pipelines.plan import bound, require_named
from pipelines.recipe import Recipe
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import Status
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.reporting import Reporter

Reporters = Callable[[str], AbstractContextManager[Reporter]]
Begins = Callable[[str, Mapping[str, Any]], None]
"""Called with the name of a stage before it runs, and what it reads: references of artifacts there are, and files."""


@dataclass(frozen=True)
class Result:
    """One stage of a recipe, done."""

    name: str
    command: str
    artifact: Artifact
    status: Status
    seconds: float
    """Of this run, not of the run that made the artifact."""

    @property
    def reference(self) -> str:
        return self.artifact.reference


def run_recipe(
    recipe: Recipe, store: Store, execution: Execution, reporters: Reporters, begins: Begins = lambda *_: None
) -> Iterator[Result]:
    """Run the stages that are not done and yield each as it ends; what is there is used as it is.

    Args:
        recipe: loaded and checked.
        store: where artifacts are found and made.
        execution: how to work; its reporter is replaced for each stage.
        reporters: makes the reporter of the stage with a given name.
        begins: called before each stage.
    Raises: whatever a stage raises; the same call goes on from there.
    """
    require_named(recipe, store)
    results: dict[str, Result] = {}
    for name, stage in recipe.stages.items():
        references = bound(stage.all_references, results)
        begins(name, references)
        began = time.monotonic()
        with reporters(name) as reporter:
            outcome = run_stage(
                stage.command,
                recipe.config(name),
                references,
                store,
                replace(execution, reporter=reporter),
            )
        seconds = time.monotonic() - began
        results[name] = Result(name, stage.command, outcome.artifact, outcome.status, seconds)
        yield results[name]
