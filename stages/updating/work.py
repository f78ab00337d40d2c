"""The rows of a shard of a changed datastore: copied, encoded again, or encoded as those of the added split."""

from collections.abc import Callable, Iterator, Sequence
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
    """Everything that computing shards needs."""

    plan: Plan
    keys: "StoredKeys"
    """Keys of the datastore before."""
    values: Any
    """int32 [T], of the datastore before."""
    encoder: "Callable[[Corpus], KeyEncoder]"
    """Reads the splits of a corpus with the model of the keys, which is loaded when the first rows are encoded."""
    states: "StateStore"


def open_work(job: ShardJob[UpdateConfig], plan: Plan) -> Work:
    """Open the datastore before."""
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
    """Fill in those of the new `rows` that stay, in `keys` [n, d] and `values` [n]; reads each old shard once."""
    # Ranges that stay often lie in one old shard, which is read once for all of them.
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
    """Fill in the rows of a shard that are tokens of the added split, the last of `keys` [n, d] and `values` [n]."""
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
    """Fill in those of the new `rows` that had seen what goes, in `keys` [n, d]; returns how many."""
    pieces = [
        (first, old, stop)
        for first, old, stop in _reread(work.plan)
        if first < rows.stop and first + stop - old > rows.start
    ]
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


def _reread(plan: Plan) -> Iterator[tuple[int, int, int]]:
    """Rows to encode again, in pieces: the first new row of one, and its first and last old row, exclusive."""
    starts, ranges = plan.kept.new_starts[:-1].tolist(), plan.kept.ranges.tolist()
    for first, (old, stop), count in zip(starts, ranges, plan.reread.tolist(), strict=True):
        if count:
            yield first, old, min(stop, old + count)


def _encoded_alone(work: Work, eos: int, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Keys of short texts, each of which begins behind a lone `<eos>`: [n, d] of each text [n]."""
    from stages.examples.examples import Corpus

    # As documents of one split they are encoded together, each behind the `<eos>` of the one before.
    ids = np.concatenate([part for text in texts for part in (text, np.array([eos]))])
    ends = np.cumsum([len(text) + 1 for text in texts])
    group = {f"{ROWS}/ids": ids, f"{ROWS}/doc_offsets": np.concatenate([[0], ends])}
    keys = work.encoder(Corpus(group, eos)).by_document().encode(ROWS, 0, len(ids), None).keys.numpy()
    return [keys[a : b - 1] for a, b in pairwise([0, *ends.tolist()])]
