"""Runs a recipe: its stages one after the other, as they stand in it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from time import monotonic

from pipelines.catalogue import stage_of
from pipelines.options import command_words, on_top_of_preset
from pipelines.recipe import Recipe, bound, require_named
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import Status, make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.reporting import Reporter

Reporters = Callable[[str], AbstractContextManager[Reporter]]
Begins = Callable[[tuple[str, ...]], None]
"""Called when a stage begins, with the words of its command."""


@dataclass(frozen=True)
class Result:
    """A stage of a recipe, done."""

    name: str
    artifact: Artifact
    status: Status
    seconds: float
    """Seconds of this run, not of the run that made the artifact."""

    @property
    def reference(self) -> str:
        return self.artifact.reference


def run_recipe(
    recipe: Recipe,
    store: Store,
    execution: Execution,
    reporters: Reporters,
    begins: Begins = lambda *_: None,
) -> Iterator[Result]:
    """Run the stages that are not done and yield each as it ends; what is there is used as it is.

    Args:
        recipe: loaded and checked.
        store: where artifacts are found and made.
        execution: how to work; its reporter is replaced for each stage.
        reporters: makes the reporter of the stage with a given name.
        begins: called with each stage that begins.
    Raises: whatever a stage raises; the same call goes on from there.
    """
    require_named(recipe, store)
    results: dict[str, Result] = {}
    for name, stage in recipe.stages.items():
        config = recipe.config(name)
        read = bound(stage.all_references, results)
        settings = (
            on_top_of_preset(config.stored())
            if config.has_presets and not stage.preset
            else stage.settings
        )
        command = command_words(stage.command, read, settings, stage.preset)
        begins(command)
        began = monotonic()
        with reporters(name) as reporter:
            how = replace(execution, reporter=reporter, command=command)
            outcome = make(stage_of(stage.command), config, read, store, how)
        results[name] = Result(name, outcome.artifact, outcome.status, monotonic() - began)
        yield results[name]
