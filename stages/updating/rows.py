"""Computes the rows of a shard of a changed datastore: copied, encoded again, or encoded from the
added split.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

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
        config = self.job.config
        device = resolve_device(self.job.execution.device)
        reader = SplitReader(corpus, config.windows, False, device, config.precision)
        return KeyEncoder.of(self.job.inputs[PREVIOUS], reader, self._model)

    def copy(self, rows: slice, keys: np.ndarray, values: np.ndarray) -> None:
        """Copy the old rows among the new `rows` into `keys` [n, d] and `values` [n]; reads each
        old shard once.
        """
        size = self.keys.rows_per_shard
        loaded_shard = -1
        for first, old_first, old_stop in self.plan.kept_rows.between(rows.start, rows.stop):
            # Old row r of this range is row r + shift of `keys`.
            shift = first - rows.start - old_first

            first_shard = old_first // size
            last_shard = (old_stop - 1) // size
            for shard in range(first_shard, last_shard + 1):
                shard_start = shard * size
                # Several ranges that stay often lie in one old shard, which is read only once.
                if shard != loaded_shard:
                    loaded_shard = shard
                    shard_keys = self.keys.read(shard)
                    shard_values = self.values[shard_start : shard_start + size]

                # The part of the range that lies in this shard.
                start = max(shard_start, old_first)
                stop = min(shard_start + size, old_stop)
                target = slice(start + shift, stop + shift)
                source = slice(start - shard_start, stop - shard_start)
                keys[target] = shard_keys[source]
                values[target] = shard_values[source]

    def encode_added(
        self, number: int, keys: np.ndarray, values: np.ndarray, output: ShardOutput
    ) -> None:
        """Fill in the last rows of `keys` [n, d] and `values` [n]: those of a shard that come from
        the added split.
        """
        tokens = self.plan.added(number)
        count = tokens.stop - tokens.start
        if not count:
            return

        split = self.job.config.split
        assert split is not None
        encoder = self._encoder(Corpus.of(self.job.inputs[ADDED]))
        earlier = self.plan.added_before(number)
        encoded = encoder.encode_shard(split, tokens, earlier, self.states, output)

        keys[-count:] = encoded.keys.numpy()
        values[-count:] = encoded.tokens.numpy().astype(VALUE_DTYPE)
        require_finite(keys[-count:], self.job.inputs["encoder"])

    def encode_again(self, rows: slice, keys: np.ndarray) -> int:
        """Fill in keys [n, d] of those new `rows` whose windows had forgotten rows; returns their
        number.
        """
        texts = self._texts_to_encode(rows)
        if not texts:
            return 0

        # The values of a datastore are the tokens of its text.
        tokens = [np.asarray(self.values[text.old_first : text.old_stop]) for text in texts]
        count = 0
        for text, text_keys in zip(texts, self._encode_texts(tokens), strict=True):
            # A text may begin before the new `rows`, or end behind them.
            start = max(text.first, rows.start)
            stop = min(text.first + len(text_keys), rows.stop)
            target = slice(start - rows.start, stop - rows.start)
            keys[target] = text_keys[start - text.first : stop - text.first]
            require_finite(keys[target], self.job.inputs["encoder"])
            count += stop - start
        return count

    def _texts_to_encode(self, rows: slice) -> list["_Text"]:
        """Texts to encode again that lie at least partly among the new `rows`."""
        kept_rows = self.plan.kept_rows
        new_starts = kept_rows.new_starts[:-1].tolist()
        ranges = kept_rows.ranges.tolist()
        reread = self.plan.reread.tolist()

        texts = []
        for first, (old_first, range_stop), count in zip(new_starts, ranges, reread, strict=True):
            old_stop = min(range_stop, old_first + count)
            stop = first + old_stop - old_first
            overlaps = first < rows.stop and stop > rows.start
            if count and overlaps:
                texts.append(_Text(first, old_first, old_stop))
        return texts

    def _encode_texts(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Keys of short texts, each of which begins after a single `<eos>`: [n, d] for each text
        [n].
        """
        eos = tokenizer_of(self.job.inputs[PREVIOUS]).metrics["eos_id"]

        # They are encoded together as documents of one split, each after the `<eos>` of the
        # previous one.
        documents = [np.append(text, eos) for text in texts]
        offsets = np.cumsum([0, *map(len, documents)])
        ids = np.concatenate(documents)
        corpus = Corpus({f"{ROWS}/ids": ids, f"{ROWS}/doc_offsets": offsets}, eos)
        encoder = self._encoder(corpus).by_document()
        encoded = encoder.encode(ROWS, 0, len(ids), None)

        # The key of each closing `<eos>` belongs to no row.
        keys = encoded.keys.numpy()
        return [keys[start : stop - 1] for start, stop in pairwise(offsets.tolist())]


class _Text(NamedTuple):
    """Rows whose windows had forgotten rows, so that they are encoded again."""

    first: int
    """The first of them in the changed datastore."""
    old_first: int
    """The first of them in the previous datastore."""
    old_stop: int
    """The end of them in the previous datastore."""
