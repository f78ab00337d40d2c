"""Forecast of `precompute-neighbors`."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.stage import Inputs
from stages.forecasts.forecast import Cost, Forecast, Work
from stages.models.config import model_of, shape_of
from stages.neighbors import NeighborsConfig, query_layouts
from stages.search.automatic import memory_to_search


class NeighborsForecast(Forecast[NeighborsConfig]):
    """One query a token of every split that is read."""

    def cost(self, config: NeighborsConfig, inputs: Inputs) -> Cost:
        index = inputs["index"]
        splits = inputs["queries"].metrics["splits"]
        tokens = {split: int(splits[split]["tokens"]) for split in config.queries or ()}
        layouts = query_layouts(config, index.metrics["dim"], tokens)
        return Cost(
            files={layout.name: layout.stored_bytes for layout in layouts},
            metrics={"k": config.k, "splits": {s: {"queries": count, "missing": 0.0} for s, count in tokens.items()}},
            scratch=0,
            host=memory_to_search(index.config["index"], index.metrics.get("bytes")),
            remedy="a smaller --k, or --queries with fewer splits",
        )

    def work(self, config: NeighborsConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        """Count the queries; an encoder that pools takes longer than the search, so its shape counts."""
        index = inputs["index"]
        signature = config.model_dump(include={"k", "probe", "exact", "candidates", "precision"})
        signature |= {"index": index.config["index"], "dim": index.metrics["dim"]}
        encoder = index.find("encoder")
        if model_of(encoder).pools:
            signature |= {"model": shape_of(encoder), "context": index.find("datastore").config["context"]}
        queries = sum(split["queries"] for split in metrics["splits"].values())
        return Work(queries, "queries", signature, scale=index.metrics["rows"])
