"""Stage build-datastore: model -> datastore.

Stores the key g(c_t) of every token x_t of a split, with x_t as its value. A shard is a range of
tokens. Memory holds two shards, for a corpus of any size.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Execution, Inputs, Job, ShardedStage, ShardJob, ShardPlan
from stages.artifacts.store import Store
from stages.encoding.stored_rows import BUILT, VALUE_DTYPE, RowLayouts, require_finite
from stages.encoding.window_settings import STATES_KEPT, TokenRange, resolve_windows, state_bytes
from stages.examples.cutting import WindowedConfig
from stages.lineage.corpus import corpus_of, require_key, require_split, require_text
from stages.methods.defaults import stored_key
from stages.models.config import model_of
from stages.models.devices import device_type, resolve_device, resolve_precision, tune_allocator
from stages.numbers import rate

if TYPE_CHECKING:
    from stages.encoding.carried_state import StateStore
    from stages.encoding.key_encoder import KeyEncoder


class DatastoreConfig(WindowedConfig):
    """Settings of build-datastore."""

    split: str = "train"
    """Split to store."""
    key: Literal["ffn-input", "hidden"] | None = None
    """Representation to search by: input of the last feed-forward block, or the final hidden state;
    None: what the model was trained to search with, else the first of these that it has."""
    dtype: Literal["float16", "float32"] = "float16"
    """Type of the stored keys."""
    fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the split to store, from its start."""
    reset: Literal["none", "document"] = "none"
    """Where reading begins anew: nowhere, or at each document, which can then be forgotten whole.
    """
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the forward pass."""


@dataclass(frozen=True)
class Plan(ShardPlan[TokenRange]):
    """The ranges of tokens, and the layouts of keys and values."""

    layouts: RowLayouts


@dataclass(frozen=True)
class Work:
    """Everything that computing shards needs."""

    plan: Plan
    split: str
    encoder: "KeyEncoder"
    states: "StateStore"


class BuildDatastore(ShardedStage[DatastoreConfig, Plan, Work, TokenRange]):
    """Encodes a split; roles: `encoder` (model), `corpus` (tokens)."""

    name = "build-datastore"
    kind = "datastore"
    Config = DatastoreConfig
    schema = BUILT

    def inputs(
        self, config: DatastoreConfig, references: Mapping[str, Any], store: Store
    ) -> Inputs:
        encoder = require_text(store.get(references["source"], "model"))
        corpus = corpus_of(encoder, references, store)
        require_split(corpus, config.split)
        return Inputs({"encoder": encoder, "corpus": corpus})

    def resolve(
        self, config: DatastoreConfig, inputs: Inputs, execution: Execution
    ) -> DatastoreConfig:
        windows = resolve_windows(inputs["encoder"], config.asked_windows)
        key = config.key or stored_key(inputs["encoder"])
        require_key(inputs["encoder"], key)
        precision = resolve_precision(config.precision, device_type(execution.device))
        reset = (
            "document" if model_of(inputs["encoder"]).reads.source else config.reset
        )  # pairs are read one by one
        settled = {"key": key, "reset": reset, "precision": precision, **windows._asdict()}
        return config.model_copy(update=settled)

    def plan(self, job: Job[DatastoreConfig]) -> Plan:
        encoder, layouts = job.inputs["encoder"], layouts_of(job.config, job.inputs)
        model, keys = model_of(encoder), layouts.keys
        if model.pools:
            length = job.config.windows.context
            tokens = keys.shape[0] * length
            job.reporter.info(
                f"an encoder reads a window of {length} tokens for every key: {tokens:,} tokens"
            )
        chain = job.config.split if model.carries_state else None
        rows = enumerate(map(keys.rows, range(keys.shards)))
        shards = [
            TokenRange(f"{number:06d}", one.start, one.stop, chain=chain) for number, one in rows
        ]
        kept = STATES_KEPT * state_bytes(encoder, job.config.windows, keys.shape[0])
        return Plan(shards, layouts, arrays=layouts, scratch_bytes=kept)

    def open(self, job: ShardJob[DatastoreConfig], plan: Plan) -> Work:
        from stages.encoding.carried_state import StateStore
        from stages.encoding.encode import SplitReader
        from stages.encoding.key_encoder import KeyEncoder
        from stages.examples.examples import Corpus
        from stages.models.weights import load_model

        config, corpus = job.config, job.inputs["corpus"]
        assert config.key is not None
        tune_allocator()
        device = resolve_device(job.execution.device)
        model = load_model(job.inputs["encoder"].path, device, config.windows)
        by_document = config.reset == "document"
        reader = SplitReader(
            Corpus.of(corpus), config.windows, by_document, device, config.precision
        )
        encoder = KeyEncoder(model, reader, config.key, config.dtype)
        return Work(plan, config.split, encoder, StateStore(job.folder, device))

    def run_shard(
        self, job: ShardJob[DatastoreConfig], work: Work, shard: TokenRange
    ) -> ShardOutput:
        started = time.perf_counter()
        number, plan, output = int(shard.key), work.plan, ShardOutput(job.folder)
        layouts = plan.layouts
        earlier = reversed(plan.shards[:number])
        encoded = work.encoder.encode_shard(work.split, shard, earlier, work.states, output)
        keys = encoded.keys.numpy()
        require_finite(keys, job.inputs["encoder"])
        output.write(layouts.keys, number, keys)
        output.write(layouts.values, number, encoded.tokens.numpy().astype(VALUE_DTYPE))
        output.record["seconds"] = time.perf_counter() - started
        return output

    def finish(self, job: Job[DatastoreConfig], plan: Plan) -> dict[str, Any]:
        seconds = sum(job.draft.record(s.key)["seconds"] for s in plan.shards)
        return {
            "rows": plan.layouts.rows,
            "dim": plan.layouts.dim,
            "dtype": job.config.dtype,
            "key": job.config.key,
            "bytes": plan.layouts.nbytes,
            "tokens_per_second": rate(plan.layouts.rows, seconds),
        }


def layouts_of(config: DatastoreConfig, inputs: Inputs) -> RowLayouts:
    """Layouts of the keys and values, from the manifests of the inputs."""
    rows = max(1, int(inputs["corpus"].metrics["splits"][config.split]["tokens"] * config.fraction))
    return RowLayouts.of(inputs["encoder"], rows, config.dtype, config.stride or 1)
