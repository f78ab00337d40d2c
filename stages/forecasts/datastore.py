"""Forecast of `build-datastore`."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.stage import Inputs
from stages.datastore import DatastoreConfig, layouts_of
from stages.encoding.window_settings import STATES_KEPT, WindowedConfig, state_bytes
from stages.forecasts.forecast import Cost, Forecast, Work
from stages.models.config import model_of, shape_of


class DatastoreForecast(Forecast[DatastoreConfig]):
    """Rows are known from the tokens' manifest."""

    def cost(self, config: DatastoreConfig, inputs: Inputs) -> Cost:
        layouts = layouts_of(config, inputs)
        rows, dim = layouts.keys.shape
        state = state_bytes(inputs["encoder"], config.windows, rows)
        return Cost(
            files={layout.name: layout.stored_bytes for layout in layouts},
            metrics={"rows": rows, "dim": dim, "dtype": config.dtype, "key": config.key},
            scratch=STATES_KEPT * state,
            host=state,
            remedy="--fraction stores a part of the split" + (", --dtype float16" if config.dtype == "float32" else ""),
        )

    def work(self, config: DatastoreConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        """Count the tokens of all windows; a model that pools reads a window for every row."""
        signature = config.model_dump(include={*WindowedConfig.model_fields, "dtype", "precision", "key"})
        signature |= {"model": shape_of(inputs["encoder"])}
        window = config.windows.context if model_of(inputs["encoder"]).pools else 1
        return Work(metrics["rows"] * window, "tokens", signature)
