"""A recipe in several variants: each value of its `sweep` with each seed. Stages that depend on
neither run once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from pipelines.recipe import Recipe, Reference, StageRecipe
from pipelines.settings import leaves, merged, nested
from stages.artifacts.kinds import COMMANDS
from stages.errors import UsageError, did_you_mean

MOST_VARIANTS = 1000
"""Number of stages above which a sweep is taken for a mistake."""


@dataclass(frozen=True)
class Axis:
    """One thing that varies: a setting, or the seed of all training."""

    name: str
    values: tuple[Any, ...]
    settings: Mapping[str, tuple[Mapping[str, Any], ...]]
    """Stage -> its settings, for each value."""


Point = Mapping[str, int]
"""Axis -> index of its value."""


def varied(recipe: Recipe, seeds: int | None = None) -> Recipe:
    """The recipe with each stage that depends on an axis repeated for every combination, as
    `model[seed=1]`.

    Args:
        recipe: may have a `sweep`.
        seeds: number of seeds of each training, from its own upwards; None: its own alone.
    Raises: UsageError for unknown stages, values that are no list, unknown settings, or too many
    variants.
    """
    all_axes = list(_swept(recipe))
    if seeds is not None:
        all_axes.append(_seeded(recipe, seeds))
    axes = {axis.name: axis for axis in all_axes}

    depends: dict[str, list[str]] = {}
    stages: dict[str, StageRecipe] = {}
    for name, stage in recipe.stages.items():
        # a stage depends on its own axes, and on those of the stages that it reads
        inherited: set[str] = set()
        for source in recipe.stages_read(name):
            inherited.update(depends[source])
        depends[name] = [
            axis.name for axis in axes.values() if axis.name in inherited or name in axis.settings
        ]

        sizes = [len(axes[axis].values) for axis in depends[name]]
        if len(stages) + prod(sizes) > MOST_VARIANTS:
            raise UsageError(
                f"The sweep has more than {MOST_VARIANTS:,} variants: give fewer values."
            )
        for places in product(*map(range, sizes)):
            point = dict(zip(depends[name], places, strict=True))
            stages[_label(name, point, axes)] = _variant(name, stage, point, axes, depends)

    variants = recipe.model_copy(update={"stages": stages, "sweep": {}})
    # All are checked before any runs: a sweep may take days until it comes to an illegal value.
    for name in stages:
        variants.config(name)
    return variants


def _swept(recipe: Recipe) -> Iterator[Axis]:
    for stage, settings in recipe.sweep.items():
        if stage not in recipe.stages:
            raise UsageError(
                f"sweep: the recipe has no stage {stage!r}; {did_you_mean(stage, recipe.stages)}"
            )
        if not isinstance(settings, Mapping):
            raise UsageError(
                f"sweep.{stage}: expected settings of the stage, as sweep.{stage}.NAME = [VALUE, VALUE]."
            )
        for path, values in leaves(settings):
            if not isinstance(values, list) or not values:
                raise UsageError(
                    f"sweep.{stage}.{path}: expected a list of values, not {values!r}."
                )
            yield Axis(
                f"{stage}.{path}",
                tuple(values),
                {stage: tuple(nested({path: value}) for value in values)},
            )


def _seeded(recipe: Recipe, seeds: int) -> Axis:
    """Seeds of all training: the i-th seed of one stage goes with the i-th of the others."""
    if seeds < 1:
        raise UsageError(f"--seeds must be 1 or more, not {seeds}.")
    trained = [name for name, stage in recipe.stages.items() if COMMANDS[stage.command].seeded]
    if not trained:
        raise UsageError("--seeds: the recipe trains nothing.")
    settings = {}
    for name in trained:
        first = recipe.config(name).model_dump()["seed"]
        settings[name] = tuple({"seed": first + i} for i in range(seeds))
    # the axis is labelled by the seeds of the first training
    labels = tuple(values["seed"] for values in settings[trained[0]])
    return Axis("seed", labels, settings)


def _label(name: str, point: Point, axes: Mapping[str, Axis]) -> str:
    parts = []
    for axis, place in point.items():
        value = axes[axis].values[place]
        text = "+".join(map(str, value)) if isinstance(value, list) else value
        parts.append(f"{axis}={text}")
    return f"{name}[{','.join(parts)}]" if parts else name


def _variant(
    name: str,
    stage: StageRecipe,
    point: Point,
    axes: Mapping[str, Axis],
    depends: Mapping[str, list[str]],
) -> StageRecipe:
    settings = [
        axes[axis].settings[name][place]
        for axis, place in point.items()
        if name in axes[axis].settings
    ]

    def renamed(value: Reference) -> Reference:
        if not isinstance(value, str) or value not in depends:
            return value
        return _label(value, {axis: point[axis] for axis in depends[value]}, axes)

    return stage.model_copy(
        update={
            "settings": merged(stage.settings, *settings),
            "source": renamed(stage.source),
            "references": {role: renamed(value) for role, value in stage.references.items()},
        }
    )
