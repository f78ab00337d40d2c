"""The work of build-datastore: the key g(c_t) of every token x_t of a split, with x_t as its value.

A shard is a range of tokens. Memory holds two shards, for a corpus of any size.
"""

import time
from dataclasses import dataclass
from typing import Any

from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Job, ShardedWork, ShardJob, ShardPlan
from stages.encoding.carried_state import StateStore
from stages.encoding.datastore_config import DatastoreConfig, layouts_of
from stages.encoding.encode import SplitReader
from stages.encoding.key_encoder import KeyEncoder
from stages.encoding.stored_rows import VALUE_DTYPE, RowLayouts, require_finite
from stages.encoding.window_settings import STATES_KEPT, TokenRange, state_bytes
from stages.examples.examples import Corpus
from stages.models.computing import resolve_device, tune_allocator
from stages.models.config import model_of
from stages.models.weights import load_model
from stages.numbers import rate


@dataclass(frozen=True)
class DatastorePlan(ShardPlan[TokenRange]):
    """The ranges of tokens, and the layouts of keys and values."""

    layouts: RowLayouts


@dataclass(frozen=True)
class DatastoreEncoder:
    """Everything that computing shards needs."""

    plan: DatastorePlan
    split: str
    encoder: KeyEncoder
    states: StateStore


class DatastoreWork(ShardedWork[DatastoreConfig, DatastorePlan, DatastoreEncoder, TokenRange]):
    """Encodes a split; roles: `encoder` (model), `corpus` (tokens)."""

    def plan(self, job: Job[DatastoreConfig]) -> DatastorePlan:
        encoder = job.inputs["encoder"]
        layouts = layouts_of(job.config, job.inputs)
        model = model_of(encoder)
        keys = layouts.keys
        if model.pools:
            length = job.config.windows.context
            tokens = keys.shape[0] * length
            job.reporter.info(
                f"an encoder reads a window of {length} tokens for every key: {tokens:,} tokens"
            )

        # the shards of one stream follow each other
        chain = job.config.split if model.carries_state else None
        shards = []
        for number in range(keys.shards):
            rows = keys.rows(number)
            shards.append(TokenRange(f"{number:06d}", rows.start, rows.stop, chain=chain))
        scratch_bytes = STATES_KEPT * state_bytes(encoder, job.config.windows, keys.shape[0])
        return DatastorePlan(shards, layouts, arrays=layouts, scratch_bytes=scratch_bytes)

    def open(self, job: ShardJob[DatastoreConfig], plan: DatastorePlan) -> DatastoreEncoder:
        config = job.config
        corpus = job.inputs["corpus"]
        assert config.key is not None
        tune_allocator()
        device = resolve_device(job.execution.device)
        model = load_model(job.inputs["encoder"].path, device, config.windows)
        by_document = config.reset == "document"
        reader = SplitReader(
            Corpus.of(corpus), config.windows, by_document, device, config.precision
        )
        encoder = KeyEncoder(model, reader, config.key, config.dtype)
        return DatastoreEncoder(plan, config.split, encoder, StateStore(job.folder, device))

    def run_shard(
        self, job: ShardJob[DatastoreConfig], resources: DatastoreEncoder, shard: TokenRange
    ) -> ShardOutput:
        """Encode a shard, and write its keys and values."""
        started = time.perf_counter()
        number = int(shard.key)
        output = ShardOutput(job.folder)
        # the latest shard whose state is stored is the nearest before this one
        earlier = reversed(resources.plan.shards[:number])
        encoded = resources.encoder.encode_shard(
            resources.split, shard, earlier, resources.states, output
        )
        keys = encoded.keys.numpy()
        require_finite(keys, job.inputs["encoder"])

        layouts = resources.plan.layouts
        values = encoded.tokens.numpy().astype(VALUE_DTYPE)
        output.write(layouts.keys, number, keys)
        output.write(layouts.values, number, values)
        output.record["seconds"] = time.perf_counter() - started
        return output

    def finish(self, job: Job[DatastoreConfig], plan: DatastorePlan) -> dict[str, Any]:
        seconds = sum(job.draft.record(s.key)["seconds"] for s in plan.shards)
        return {
            "rows": plan.layouts.rows,
            "dim": plan.layouts.dim,
            "dtype": job.config.dtype,
            "key": job.config.key,
            "bytes": plan.layouts.nbytes,
            "tokens_per_second": rate(plan.layouts.rows, seconds),
        }
