"""Forecast of `evaluate`."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.stage import Inputs
from stages.encoding.window_settings import state_bytes
from stages.evaluate import indexes_read, search_memory
from stages.evaluation.config import EvaluateConfig
from stages.forecasts.forecast import Cost, Forecast, Work
from stages.models.config import shape_of


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
