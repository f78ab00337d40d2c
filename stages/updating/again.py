"""Rows that stay but had seen, in their window, what goes: encoded again, as if the text began there."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from stages.artifacts.kinds import PREVIOUS
from stages.artifacts.stage import ShardJob
from stages.encoding.stored_rows import require_finite
from stages.lineage.rows import ROWS
from stages.lineage.sources import tokenizer_of
from stages.updating.config import UpdateConfig
from stages.updating.plan import Plan
from stages.updating.work import Work


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
    ids = np.concatenate([part for text in texts for part in (text, np.array([eos]))])
    ends = np.cumsum([len(text) + 1 for text in texts])
    group = {f"{ROWS}/ids": ids, f"{ROWS}/doc_offsets": np.concatenate([[0], ends])}
    keys = work.encoder(group).by_document().encode(ROWS, 0, len(ids), None).keys.numpy()
    return [keys[a : b - 1] for a, b in pairwise([0, *ends.tolist()])]
