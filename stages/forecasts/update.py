"""Forecast of `update-datastore`."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.kinds import ADDED
from stages.artifacts.stage import Inputs
from stages.encoding.window_settings import STATES_KEPT, state_bytes
from stages.forecasts.forecast import Cost, Forecast, Work
from stages.models.config import shape_of
from stages.updating.change import Change
from stages.updating.config import TAKEN_OVER, UpdateConfig
from stages.updating.plan import row_layouts
from stages.updating.tables import bytes_of_sources_and_names, longer_layouts


class UpdateForecast(Forecast[UpdateConfig]):
    """Rows follow from manifests; the added split is not read."""

    def cost(self, config: UpdateConfig, inputs: Inputs) -> Cost:
        encoder, change = inputs["encoder"], Change.of(config, inputs)
        added = _counts_added(change)
        layouts = row_layouts(config, encoder, change.left.rows + added["tokens"])
        files = {layout.name: layout.stored_bytes for layout in (*layouts, *longer_layouts(change.left, added))}
        rows, dim = layouts.keys.shape
        state = state_bytes(encoder, config.windows, rows)
        return Cost(
            files=files | bytes_of_sources_and_names(change.left, change.tokens, change.split),
            metrics={
                **{"rows": rows, "dim": dim, "dtype": config.dtype, "key": config.key},
                **{"forgotten": change.before.rows - change.left.rows, "added": added["tokens"]},
            },
            scratch=STATES_KEPT * state,
            remedy="fewer documents to --add",
        )

    def work(self, config: UpdateConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        """Count the tokens that are encoded; where none are added, the rows that are copied."""
        signature = config.model_dump(include={*TAKEN_OVER, "precision"})
        signature |= {"model": shape_of(inputs["encoder"]), "adds": ADDED in inputs}
        copied = metrics["rows"] - metrics["added"]
        if ADDED in inputs:
            return Work(metrics["added"], "tokens", signature, copied)
        return Work(copied, "rows", signature)


def _counts_added(change: Change) -> dict[str, int]:
    """Count the tokens that are added, and the rows of each table."""
    counted = ("tokens", "documents", "paragraphs")
    if change.tokens is None:
        return dict.fromkeys((*counted, "runs"), 0)
    split = change.tokens.metrics["splits"][change.split]
    return {"runs": 1, **{name: int(split[name]) for name in counted}}
