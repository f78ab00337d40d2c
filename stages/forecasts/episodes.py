"""Forecast of `build-episodes`."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.stage import Inputs
from stages.forecasts.forecast import Cost, Forecast, Work
from stages.models.config import shape_of
from stages.tasks.episodes import EpisodesConfig, layouts


class EpisodesForecast(Forecast[EpisodesConfig]):
    """The arrays by arithmetic; the work is the documents that are read."""

    def cost(self, config: EpisodesConfig, inputs: Inputs) -> Cost:
        rows, dim = _documents(config, inputs), int(inputs["encoder"].config["model"]["width"])
        return Cost(
            files={layout.name: layout.stored_bytes for layout in layouts(rows, dim)},
            metrics={"rows": rows, "dim": dim},
        )

    def memory(self, config: EpisodesConfig, inputs: Inputs) -> int | None:
        return 4 * int(inputs["encoder"].metrics["parameters"])

    def work(self, config: EpisodesConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        signature = {"model": shape_of(inputs["encoder"]), "length": config.length}
        return Work(_documents(config, inputs), "documents", signature)


def _documents(config: EpisodesConfig, inputs: Inputs) -> int:
    return int(inputs["corpus"].metrics["splits"][config.split]["documents"])
