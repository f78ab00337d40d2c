"""Forecast of `build-index`."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.kinds import PREVIOUS
from stages.artifacts.stage import Inputs
from stages.forecasts.forecast import Cost, Forecast, Work
from stages.index import INDEX_FILE, described_keys
from stages.search import EXACT
from stages.search.automatic import grows_whole, index_bytes, is_lossless
from stages.search.config import IndexConfig
from stages.suffixes.indexing import GROUP, TEXT


class IndexForecast(Forecast[IndexConfig]):
    """Sizes follow from the kind of index; of FAISS's own strings nothing is known."""

    def cost(self, config: IndexConfig, inputs: Inputs) -> Cost:
        if config.index == EXACT:
            return _cost_of_text(int(inputs[TEXT].metrics["splits"][config.split]["tokens"]))
        keys = described_keys(inputs)
        size = index_bytes(config, keys)
        if size is None:
            return Cost(metrics={"rows": keys.rows, "dim": keys.dim})
        return Cost(
            files={INDEX_FILE: size},
            metrics={"rows": keys.rows, "dim": keys.dim, "bytes": size, "lossless": is_lossless(config)},
            scratch=0 if grows_whole(config) else size,
            remedy="" if config.index == "ivf-pq" else "--index ivf-pq holds codes instead of keys",
        )

    def work(self, config: IndexConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        if config.index == EXACT:
            return Work(metrics["rows"], "tokens", {"index": EXACT}, scale=metrics["rows"])
        settings = {"index", "metric", "code_bytes", "code_bits", "links", "recall"}
        signature = {**config.model_dump(include=settings), "dim": metrics["dim"], "changed": PREVIOUS in inputs}
        return Work(metrics["rows"], "keys", signature, scale=metrics["rows"])


def _cost_of_text(rows: int) -> Cost:
    """Places of tokens and what their contexts share, on disk twice while they are put together."""
    files = {f"{GROUP}/order": rows * (8 if rows >= 2**32 else 4), f"{GROUP}/shared": rows}
    size = sum(files.values())
    return Cost(files=files, metrics={"rows": rows, "bytes": size}, scratch=size)
