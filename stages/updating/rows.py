"""Computes the rows of a shard of a changed datastore: copied, encoded again, or encoded from the
added split.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from stages.artifacts.kinds import ADDED, PREVIOUS
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import ShardJob
from stages.encoding.carried_state import StateStore
from stages.encoding.encode import SplitReader
from stages.encoding.key_encoder import KeyEncoder
from stages.encoding.stored_rows import VALUE_DTYPE, require_finite
from stages.examples.examples import Corpus
from stages.lineage.rows import GROUP, ROWS, stored_keys
from stages.lineage.sources import tokenizer_of
from stages.machine import return_large_blocks
from stages.models.computing import resolve_device, tune_allocator
from stages.models.weights import load_model
from stages.search.keys import StoredKeys
from stages.updating.config import UpdateConfig
from stages.updating.plan import UpdatePlan


@dataclass(frozen=True)
class ChangedRows:
    """Open inputs for computing shards. The model of the keys is loaded when the first rows are
    encoded.
    """

    job: ShardJob[UpdateConfig]
    plan: UpdatePlan
    keys: StoredKeys
    """Keys of the previous datastore."""
    values: Any
    """Values of the previous datastore, int32 [T]."""
    states: StateStore

    @classmethod
    def open(cls, job: ShardJob[UpdateConfig], plan: UpdatePlan) -> "ChangedRows":
        """Open the previous datastore."""
        return_large_blocks()
        group: Any = job.inputs[PREVIOUS].zarr(GROUP)
        states = StateStore(job.folder, resolve_device(job.execution.device))
        return cls(job, plan, stored_keys(job.inputs[PREVIOUS]), group["values"], states)

    @cached_property
    def _model(self) -> Any:
        tune_allocator()
        device = resolve_device(self.job.execution.device)
        return load_model(self.job.inputs["encoder"].path, device, self.job.config.windows)

    def _encoder(self, corpus: Corpus) -> KeyEncoder:
        config, device = self.job.config, resolve_device(self.job.execution.device)
        reader = SplitReader(corpus, config.windows, False, device, config.precision)
        return KeyEncoder.of(self.job.inputs[PREVIOUS], reader, self._model)

    def copy(self, rows: slice, keys: np.ndarray, values: np.ndarray) -> None:
        """Copy the old rows among the new `rows` into `keys` [n, d] and `values` [n]; reads each
        old shard once.
        """
        # Several ranges that stay often lie in one old shard, which is read only once.
        step, held = self.keys.rows_per_shard, -1
        for first, old, stop in self.plan.kept.between(rows.start, rows.stop):
            for begin in range(old // step * step, stop, step):
                if begin != held:
                    held, old_keys, old_values = (
                        begin,
                        self.keys.read(begin // step),
                        self.values[begin : begin + step],
                    )
                a, b = max(begin, old), min(begin + step, stop)
                place = slice(first - rows.start + a - old, first - rows.start + b - old)
                keys[place], values[place] = (
                    old_keys[a - begin : b - begin],
                    old_values[a - begin : b - begin],
                )

    def encode_added(
        self, number: int, keys: np.ndarray, values: np.ndarray, output: ShardOutput
    ) -> None:
        """Fill in the last rows of `keys` [n, d] and `values` [n]: those of a shard that come from
        the added split.
        """
        tokens, split, inputs = self.plan.added(number), self.job.config.split, self.job.inputs
        count = tokens.stop - tokens.start
        if not count:
            return
        assert split is not None
        encoder, earlier = self._encoder(Corpus.of(inputs[ADDED])), self.plan.added_before(number)
        encoded = encoder.encode_shard(split, tokens, earlier, self.states, output)
        keys[-count:], values[-count:] = (
            encoded.keys.numpy(),
            encoded.tokens.numpy().astype(VALUE_DTYPE),
        )
        require_finite(keys[-count:], inputs["encoder"])

    def encode_again(self, rows: slice, keys: np.ndarray) -> int:
        """Fill in keys [n, d] of those new `rows` whose windows had forgotten rows; returns their
        number.
        """
        kept, pieces, again = self.plan.kept, [], 0
        starts = kept.new_starts[:-1].tolist()
        for first, (old, end), count in zip(
            starts, kept.ranges.tolist(), self.plan.reread.tolist(), strict=True
        ):
            stop = min(end, old + count)
            if count and first < rows.stop and first + stop - old > rows.start:
                pieces.append((first, old, stop))
        if not pieces:
            return 0
        encoded = self._encoded_alone(
            [np.asarray(self.values[old:stop]) for _, old, stop in pieces]
        )
        for (first, _, _), block in zip(pieces, encoded, strict=True):
            a, b = max(first, rows.start), min(first + len(block), rows.stop)
            keys[a - rows.start : b - rows.start] = block[a - first : b - first]
            require_finite(keys[a - rows.start : b - rows.start], self.job.inputs["encoder"])
            again += b - a
        return again

    def _encoded_alone(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Keys of short texts, each of which begins after a single `<eos>`: [n, d] for each text
        [n].
        """
        eos = tokenizer_of(self.job.inputs[PREVIOUS]).metrics["eos_id"]
        # They are encoded together as documents of one split, each after the `<eos>` of the
        # previous one.
        ids = np.concatenate([part for text in texts for part in (text, np.array([eos]))])
        ends = np.cumsum([len(text) + 1 for text in texts])
        group = {f"{ROWS}/ids": ids, f"{ROWS}/doc_offsets": np.concatenate([[0], ends])}
        encoder = self._encoder(Corpus(group, eos)).by_document()
        keys = encoder.encode(ROWS, 0, len(ids), None).keys.numpy()
        return [keys[a : b - 1] for a, b in pairwise([0, *ends.tolist()])]
