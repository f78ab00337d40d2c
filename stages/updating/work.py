"""Everything that computing shards of a changed datastore needs: the rows before, and the model of their keys."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from stages.artifacts.kinds import PREVIOUS
from stages.artifacts.stage import ShardJob
from stages.lineage.rows import GROUP
from stages.lineage.sources import tokenizer_of
from stages.updating.config import UpdateConfig
from stages.updating.plan import Plan

if TYPE_CHECKING:
    from stages.encoding.key_encoder import KeyEncoder
    from stages.encoding.state_store import StateStore
    from stages.search.keys import StoredKeys


@dataclass(frozen=True)
class Work:
    """Everything that computing shards needs."""

    plan: Plan
    keys: "StoredKeys"
    """Keys of the datastore before."""
    values: Any
    """int32 [T], of the datastore before."""
    encoder: "Callable[[Any], KeyEncoder]"
    """Reads the splits of a group with the model of the keys, which is loaded when the first rows are encoded."""
    states: "StateStore"


def open_work(job: ShardJob[UpdateConfig], plan: Plan) -> Work:
    """Open the datastore before."""
    from stages.allocator import return_large_blocks
    from stages.encoding.state_store import StateStore
    from stages.lineage.keys import stored_keys
    from stages.models.devices import resolve_device

    return_large_blocks()
    group: Any = job.inputs[PREVIOUS].zarr(GROUP)
    states = StateStore(job.folder, resolve_device(job.execution.device))
    return Work(plan, stored_keys(job.inputs[PREVIOUS]), group["values"], _encoders(job), states)


def _encoders(job: ShardJob[UpdateConfig]) -> "Callable[[Any], KeyEncoder]":
    from stages.encoding.key_encoder import KeyEncoder
    from stages.encoding.split_reader import SplitReader
    from stages.examples.corpus import Corpus
    from stages.models.devices import resolve_device, tune_allocator
    from stages.models.language_model import load_model

    device, windows = resolve_device(job.execution.device), job.config.windows

    @cache
    def model() -> Any:
        tune_allocator()
        return load_model(job.inputs["encoder"].path, device, windows)

    def reading(group: Any) -> KeyEncoder:
        eos = tokenizer_of(job.inputs[PREVIOUS]).metrics["eos_id"]
        reader = SplitReader(Corpus(group, eos), windows, False, device, job.config.precision)
        return KeyEncoder.of(job.inputs[PREVIOUS], reader, model())

    return reading
