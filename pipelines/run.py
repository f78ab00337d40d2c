"""Runs a recipe: each stage as soon as an executor has room for it and all that it reads is made."""

from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing
from functools import cache
from typing import Any

from pipelines.catalogue import stage_of
from pipelines.executor import LocalExecutor, Reporters, Result, StageExecutor, StageRun
from pipelines.options import command_words, on_top_of_preset
from pipelines.recipe import Recipe, bound, require_named
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store

Begins = Callable[[str, Mapping[str, Any]], None]
"""Called with the name of a stage when it begins, and what it reads: references of artifacts there are, and files."""


def run_recipe(
    recipe: Recipe, store: Store, execution: Execution, reporters: Reporters, begins: Begins = lambda *_: None
) -> Generator[Result, None, None]:
    """Run the stages that are not done and yield each as it ends; what is there is used as it is.

    In this process one runs after the other, as they stand in the recipe; on a cluster those whose inputs are made run
    side by side. The iterator must be closed if it is left before its end: stages may be under way.

    Args:
        recipe: loaded and checked.
        store: where artifacts are found and made.
        execution: how to work, and where; its reporter is replaced for each stage.
        reporters: makes the reporter of the stage with a given name.
        begins: called with each stage that begins.
    Raises: whatever a stage raises; the same call goes on from there.
    """
    require_named(recipe, store)
    reads = {name: recipe.stages_read(name) for name in recipe.stages}
    begun: set[str] = set()
    results: dict[str, Result] = {}

    @cache
    def run_of(name: str) -> StageRun:
        stage = recipe.stages[name]
        config, read = recipe.config(name), bound(stage.all_references, results)
        asked = on_top_of_preset(config.stored()) if config.has_presets and not stage.preset else stage.settings
        command = command_words(stage.command, read, asked, stage.preset)
        return StageRun(name, stage_of(stage.command), config, read, command)

    with closing(_executor(store, execution, reporters)) as executor:
        while len(results) < len(recipe.stages):
            for run in executor.begin([run_of(name) for name in ready(reads, begun, results)]):
                begun.add(run.name)
                begins(run.name, run.references)
            done = executor.finished()
            results[done.name] = done
            yield done


def _executor(store: Store, execution: Execution, reporters: Reporters) -> StageExecutor:
    if execution.cluster is None:
        return LocalExecutor(store, execution, reporters)
    from pipelines.cluster import ClusterExecutor

    return ClusterExecutor(store, execution, reporters)


def ready(reads: Mapping[str, Collection[str]], begun: Collection[str], made: Collection[str]) -> list[str]:
    """The stages that may begin, in their order.

    Args:
        reads: the names of the stages that each stage reads.
        begun: those that have begun, finished or not.
        made: those that are finished.

    >>> reads = {"tokens": [], "a": ["tokens"], "b": ["tokens"], "report": ["a", "tokens"]}
    >>> ready(reads, [], []), ready(reads, ["tokens"], []), ready(reads, ["tokens", "a"], ["tokens"])
    (['tokens'], [], ['b'])
    >>> ready(reads, ["tokens", "a", "b"], ["tokens", "a"])
    ['report']
    """
    return [name for name, read in reads.items() if name not in begun and all(other in made for other in read)]
