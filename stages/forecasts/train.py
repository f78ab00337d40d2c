"""Forecast of `train`."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.stage import Inputs
from stages.forecasts.forecast import Cost, Forecast, Work
from stages.training.config import TrainConfig
from stages.training.materials import mapped_bytes
from stages.training.sizes import checkpoint_bytes, saved_bytes, update_tokens

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
        return Work(metrics["tokens"], "tokens", signature, weights=metrics["parameters"])
