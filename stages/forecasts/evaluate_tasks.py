"""Forecast of `evaluate-tasks`."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.stage import Inputs
from stages.forecasts.forecast import Cost, Forecast, Work
from stages.models.config import shape_of
from stages.tasks.config import EvaluateTasksConfig
from stages.tasks.plan import plan_stream


class EvaluateTasksForecast(Forecast[EvaluateTasksConfig]):
    """The work is the examples that are read; the artifact is small."""

    def cost(self, config: EvaluateTasksConfig, inputs: Inputs) -> Cost:
        return Cost()

    def work(self, config: EvaluateTasksConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        plan = plan_stream(config, inputs["model"], inputs["tokens"])
        signature = {"model": shape_of(inputs["model"]), "memory": config.memory}
        return Work(len(plan.places) * sum(plan.counts), "examples", signature)
