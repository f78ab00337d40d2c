"""Forecast of `import-model`."""

import json
from collections.abc import Mapping
from typing import Any

from stages.artifacts.stage import Inputs
from stages.forecasts.forecast import Cost, Forecast, Work
from stages.import_model import ImportConfig, pretrained_size


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
