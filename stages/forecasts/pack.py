"""Forecast of `pack-batches`."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.stage import Inputs
from stages.forecasts.forecast import Cost, Forecast, Work
from stages.pack import PackConfig, array_layouts, whole_segments

MATCH_BYTES = 16
"""Id and score of a segment's match, while segments are packed."""


class PackForecast(Forecast[PackConfig]):
    """Segments are known from the tokens' manifest."""

    def cost(self, config: PackConfig, inputs: Inputs) -> Cost:
        segments = whole_segments(config, inputs)
        files = {name: layout.stored_bytes for name, layout in array_layouts(segments).items()}
        matches = MATCH_BYTES * segments * min(config.k, segments - 1)
        return Cost(files=files, metrics={"segments": segments}, scratch=matches)

    def work(self, config: PackConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        signature = config.model_dump(include={"segment_length", "k", "bm25"})
        return Work(metrics["segments"], "segments", signature, scale=metrics["segments"])
