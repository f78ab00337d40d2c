"""Computes the rows of a shard of a changed datastore: copied, encoded again, or encoded from the added split."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.artifacts.kinds import ADDED, PREVIOUS
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import ShardJob
from stages.encoding.stored_rows import VALUE_DTYPE, require_finite
from stages.lineage.rows import GROUP, ROWS
from stages.lineage.sources import tokenizer_of
from stages.updating.config import UpdateConfig
from stages.updating.plan import Plan

if TYPE_CHECKING:
    from stages.encoding.carried_state import StateStore
    from stages.encoding.key_encoder import KeyEncoder
    from stages.examples.examples import Corpus
    from stages.search.keys import StoredKeys


@dataclass(frozen=True)
class Work:
    """Open inputs for computing shards."""

    plan: Plan
    keys: "StoredKeys"
    """Keys of the previous datastore."""
    values: Any
    """Values of the previous datastore, int32 [T]."""
    encoder: "Callable[[Corpus], KeyEncoder]"
    """Makes the encoder for the splits of a corpus. The model of the keys is loaded when the first rows are encoded."""
    states: "StateStore"


def open_work(job: ShardJob[UpdateConfig], plan: Plan) -> Work:
    """Open the previous datastore."""
    from stages.encoding.carried_state import StateStore
    from stages.lineage.rows import stored_keys
    from stages.machine import return_large_blocks
    from stages.models.devices import resolve_device

    return_large_blocks()
    group: Any = job.inputs[PREVIOUS].zarr(GROUP)
    states = StateStore(job.folder, resolve_device(job.execution.device))
    return Work(plan, stored_keys(job.inputs[PREVIOUS]), group["values"], _encoders(job), states)


def _encoders(job: ShardJob[UpdateConfig]) -> "Callable[[Corpus], KeyEncoder]":
    from stages.encoding.encode import SplitReader
    from stages.encoding.key_encoder import KeyEncoder
    from stages.models.devices import resolve_device, tune_allocator
    from stages.models.weights import load_model

    device, windows = resolve_device(job.execution.device), job.config.windows

    @cache
    def model() -> Any:
        tune_allocator()
        return load_model(job.inputs["encoder"].path, device, windows)

    def reading(corpus: "Corpus") -> KeyEncoder:
        reader = SplitReader(corpus, windows, False, device, job.config.precision)
        return KeyEncoder.of(job.inputs[PREVIOUS], reader, model())

    return reading


def copy_rows(work: Work, rows: slice, keys: np.ndarray, values: np.ndarray) -> None:
    """Copy the old rows among the new `rows` into `keys` [n, d] and `values` [n]; reads each old shard once."""
    # Several ranges that stay often lie in one old shard, which is read only once.
    step, held = work.keys.rows_per_shard, -1
    for first, old, stop in work.plan.kept.between(rows.start, rows.stop):
        for begin in range(old // step * step, stop, step):
            if begin != held:
                held, old_keys, old_values = begin, work.keys.read(begin // step), work.values[begin : begin + step]
            a, b = max(begin, old), min(begin + step, stop)
            place = slice(first - rows.start + a - old, first - rows.start + b - old)
            keys[place], values[place] = old_keys[a - begin : b - begin], old_values[a - begin : b - begin]


def encode_added(
    job: ShardJob[UpdateConfig], work: Work, number: int, keys: np.ndarray, values: np.ndarray, output: ShardOutput
) -> None:
    """Fill in the last rows of `keys` [n, d] and `values` [n]: those of a shard that come from the added split."""
    tokens, split = work.plan.added(number), job.config.split
    count = tokens.stop - tokens.start
    if not count:
        return
    from stages.examples.examples import Corpus

    assert split is not None
    encoder = work.encoder(Corpus.of(job.inputs[ADDED]))
    encoded = encoder.encode_shard(split, tokens, work.plan.added_before(number), work.states, output)
    keys[-count:], values[-count:] = encoded.keys.numpy(), encoded.tokens.numpy().astype(VALUE_DTYPE)
    require_finite(keys[-count:], job.inputs["encoder"])


def encode_again(job: ShardJob[UpdateConfig], work: Work, rows: slice, keys: np.ndarray) -> int:
    """Fill in keys [n, d] of those new `rows` whose windows had forgotten rows; returns their number."""
    plan, pieces = work.plan, []
    starts = plan.kept.new_starts[:-1].tolist()
    for first, (old, end), count in zip(starts, plan.kept.ranges.tolist(), plan.reread.tolist(), strict=True):
        stop = min(end, old + count)
        if count and first < rows.stop and first + stop - old > rows.start:
            pieces.append((first, old, stop))
    if not pieces:
        return 0
    eos = tokenizer_of(job.inputs[PREVIOUS]).metrics["eos_id"]
    encoded = _encoded_alone(work, eos, [np.asarray(work.values[old:stop]) for _, old, stop in pieces])
    again = 0
    for (first, _, _), block in zip(pieces, encoded, strict=True):
        a, b = max(first, rows.start), min(first + len(block), rows.stop)
        keys[a - rows.start : b - rows.start] = block[a - first : b - first]
        require_finite(keys[a - rows.start : b - rows.start], job.inputs["encoder"])
        again += b - a
    return again


def _encoded_alone(work: Work, eos: int, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Keys of short texts, each of which begins after a single `<eos>`: [n, d] for each text [n]."""
    from stages.examples.examples import Corpus

    # They are encoded together as documents of one split, each after the `<eos>` of the previous one.
    ids = np.concatenate([part for text in texts for part in (text, np.array([eos]))])
    ends = np.cumsum([len(text) + 1 for text in texts])
    group = {f"{ROWS}/ids": ids, f"{ROWS}/doc_offsets": np.concatenate([[0], ends])}
    keys = work.encoder(Corpus(group, eos)).by_document().encode(ROWS, 0, len(ids), None).keys.numpy()
    return [keys[a : b - 1] for a, b in pairwise([0, *ends.tolist()])]
