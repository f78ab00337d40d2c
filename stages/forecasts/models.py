"""Forecasts of models: imported, trained, evaluated on text and on tasks."""

import json
from collections.abc import Mapping
from typing import Any

from stages.artifacts.stage import Inputs
from stages.encoding.window_settings import state_bytes
from stages.evaluate import indexes_read, search_memory
from stages.evaluation.config import EvaluateConfig
from stages.forecasts.forecast import Cost, Forecast, Work
from stages.import_model import ImportConfig, pretrained_size
from stages.models.config import shape_of
from stages.tasks.config import EvaluateTasksConfig
from stages.tasks.plan import plan_stream
from stages.training.config import TrainConfig
from stages.training.materials import mapped_bytes
from stages.training.sizes import checkpoint_bytes, saved_bytes, update_tokens


class EvaluateForecast(Forecast[EvaluateConfig]):
    """The size of a report depends on what it shows, so it is not known."""

    def cost(self, config: EvaluateConfig, inputs: Inputs) -> Cost:
        tokens = inputs["tokens"].metrics["splits"][config.split]["tokens"]
        state = state_bytes(inputs["model"], config.windows, tokens)
        return Cost(metrics={"tokens": tokens}, host=state + search_memory(inputs))

    def work(self, config: EvaluateConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        """Count the tokens of the scored split and of the tuning split."""
        splits = inputs["tokens"].metrics["splits"]
        read = [split for split in (config.split, config.tune_split) if split is not None]
        indexes = indexes_read(inputs)
        signature = config.model_dump(exclude={"split", "passage", "exclude"})
        signature |= {"model": shape_of(inputs["model"]), "index": [a.config["index"] for a in indexes]}
        rows = sum(index.metrics["rows"] for index in indexes)
        return Work(sum(int(splits[split]["tokens"]) for split in read), "tokens", signature, scale=rows)


SMALL_BYTES = 6_000
"""Settings, journal and logs, about."""


class TrainForecast(Forecast[TrainConfig]):
    """Shapes of the weights are read on the meta device; nothing is allocated."""

    def cost(self, config: TrainConfig, inputs: Inputs) -> Cost:
        saved, parameters = saved_bytes(config)
        checkpoint = checkpoint_bytes(config, inputs, saved)
        return Cost(
            files={"model.safetensors": saved, "last.safetensors": saved, "config.json": SMALL_BYTES},
            metrics={
                "parameters": parameters,
                "steps": config.steps,
                "tokens": int(config.steps) * update_tokens(config, inputs),
            },
            scratch=mapped_bytes(inputs, config) + 2 * checkpoint,
            host=checkpoint,
            remedy="smaller --batch-tokens with --accumulate, or a smaller model",
        )

    def work(self, config: TrainConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        """Count the tokens that updates read."""
        settings = {"method", "memory", "segment_length", "batch_tokens", "precision", "lora"}
        signature = config.model_dump(include=settings)
        signature["model"] = {name: value for name, value in config.model.model_dump().items() if "dropout" not in name}
        return Work(metrics["tokens"], "tokens", signature)


class EvaluateTasksForecast(Forecast[EvaluateTasksConfig]):
    """The work is the examples that are read; the artifact is small."""

    def cost(self, config: EvaluateTasksConfig, inputs: Inputs) -> Cost:
        return Cost()

    def work(self, config: EvaluateTasksConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        plan = plan_stream(config, inputs["model"], inputs["tokens"])
        signature = {"model": shape_of(inputs["model"]), "memory": config.memory}
        return Work(len(plan.places) * sum(plan.counts), "examples", signature)


class ImportForecast(Forecast[ImportConfig]):
    """Sizes are read from the headers of the pretrained files."""

    def cost(self, config: ImportConfig, inputs: Inputs) -> Cost:
        found = pretrained_size(config, inputs)
        settings = len(json.dumps(config.stored()["model"], indent=2))
        return Cost(
            files={"model.safetensors": found.bytes, "config.json": settings},
            metrics={"parameters": found.parameters},
            scratch=0,
            remedy="a smaller model",
        )

    def work(self, config: ImportConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        """Compare models of the same settings alone: how weights are packed decides how long they take to unpack."""
        return Work(metrics["parameters"], "weights", config.model_dump(include={"model"}))
