"""What changing a datastore costs, from manifests and whose rows it has: files, memory, and how much work it is."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.cost import Cost, Effort
from stages.artifacts.kinds import ADDED
from stages.artifacts.stage import Inputs
from stages.encoding.window_settings import STATES_KEPT, state_bytes
from stages.models.config import shape_of
from stages.updating.change import Change
from stages.updating.config import TAKEN_OVER, UpdateConfig
from stages.updating.plan import row_layouts
from stages.updating.tables import bytes_of_sources_and_names, longer_layouts


def cost(config: UpdateConfig, inputs: Inputs) -> Cost:
    """Of a change with resolved settings; the added split is not read."""
    encoder, change = inputs["encoder"], Change.of(config, inputs)
    added = _counts_added(change)
    layouts = row_layouts(config, encoder, change.left.rows + added["tokens"])
    files = {layout.name: layout.stored_bytes for layout in (*layouts, *longer_layouts(change.left, added))}
    rows, dim = layouts.keys.shape
    shard = layouts.keys.rows_per_shard * dim * layouts.keys.dtype.itemsize
    state = state_bytes(encoder, config.windows, rows)
    return Cost(
        files=files | bytes_of_sources_and_names(change.left, change.tokens, change.split),
        metrics={
            **{"rows": rows, "dim": dim, "dtype": config.dtype, "key": config.key},
            **{"forgotten": change.before.rows - change.left.rows, "added": added["tokens"]},
        },
        scratch=STATES_KEPT * state,
        memory=2 * min(shard, layouts.keys.nbytes) + (_model_bytes(encoder) + state if ADDED in inputs else 0),
        remedy="fewer documents to --add",
    )


def effort(config: UpdateConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Effort:
    """Tokens that are encoded, beside rows that are copied; where none are added, the copied rows."""
    kin = config.model_dump(include={*TAKEN_OVER, "precision"})
    kin |= {"model": shape_of(inputs["encoder"]), "adds": ADDED in inputs}
    copied = metrics["rows"] - metrics["added"]
    return Effort(metrics["added"], "tokens", kin, copied) if ADDED in inputs else Effort(copied, "rows", kin)


def _counts_added(change: Change) -> dict[str, int]:
    """Of what is added, the tokens, and the rows of each table."""
    counted = ("tokens", "documents", "paragraphs")
    if change.tokens is None:
        return dict.fromkeys((*counted, "runs"), 0)
    split = change.tokens.metrics["splits"][change.split]
    return {"runs": 1, **{name: int(split[name]) for name in counted}}


def _model_bytes(encoder: Artifact) -> int:
    """Memory that its weights take."""
    return 4 * int(encoder.metrics["parameters"])
