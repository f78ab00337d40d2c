"""Stage update-datastore: datastore -> datastore, with the rows of other documents and without those of some.

Rows that stay are copied, rows that are added are encoded as build-datastore does it. A shard is a range of the new
rows; memory in use is a few shards, whatever the datastore.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from stages.artifacts.arrays import ArrayLayout, rows_per_shard
from stages.artifacts.artifact import Artifact
from stages.artifacts.cost import Cost, Effort
from stages.artifacts.kinds import ADDED, PREVIOUS
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Execution, Inputs, Job, Shard, ShardedStage, ShardJob
from stages.artifacts.store import Store
from stages.encoding.stored_rows import VALUE_DTYPE, RowLayouts, require_finite
from stages.encoding.token_range import TokenRange
from stages.encoding.window_settings import WindowedConfig, state_bytes
from stages.errors import UsageError
from stages.lineage.changed_rows import RowTables, seen_behind
from stages.lineage.corpus import require_same_tokenizer, require_split
from stages.lineage.forgetting import documents_meant, spelled_numbers
from stages.lineage.rows import GROUP, ROWS, SOURCES, DatastoreRows, RowSource, dump_sources, sources_of, tokenizer_of
from stages.lineage.runs import KeptRows
from stages.models.config import model_of, shape_of
from stages.text.names import names_file

if TYPE_CHECKING:
    from stages.encoding.key_encoder import KeyEncoder
    from stages.encoding.state_store import StateStore
    from stages.search.keys import StoredKeys

TABLES = "documents"
"""Key of the shard that says whose rows they are."""
ADDED_CHAIN = "added"
STATES_KEPT = 3
"""The carried state to go on from, and those of two shards under way."""
TABLE_ROWS = {
    "runs": "runs",
    "doc_offsets": "documents",
    "paragraph_ends": "paragraphs",
    "paragraph_hashes": "paragraphs",
}
"""Tables of a datastore's rows, and what each has a row of."""
TAKEN_OVER = ("key", "dtype", "reset", "context", "stride", "mem_length", "long_length")
"""Settings of the datastore before, which its rows, old and new, are made with."""


class UpdateConfig(WindowedConfig):
    """Settings of update-datastore. What its rows are made with is taken over from the datastore before."""

    split: str | None = None
    """Split of the added tokens, all of which is added; None: train, or nothing is added."""
    forget: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Documents that are left out: their number, FIRST-LAST, their name (`name:12`, where it reads as something else),
    or @FILE with one of these a line; resolved, the numbers alone."""
    key: Literal["ffn-input", "hidden"] | None = None
    """Representation that is stored."""
    dtype: Literal["float16", "float32"] | None = None
    """Of the stored keys."""
    reset: Literal["none", "document"] | None = None
    """Whether each document is read by itself."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of the forward pass."""


@dataclass(frozen=True)
class Plan:
    """What the rows become, and how they are cut into shards."""

    layouts: RowLayouts
    tables: list[tuple[ArrayLayout, np.ndarray]]
    """Whose rows they are, as it will lie on disk."""
    documents: int
    kept: KeptRows
    reread: np.ndarray
    """Of each range that stays, rows at its start that are encoded again, since they had seen what goes; int64 [K]."""
    carries_state: bool

    @property
    def rows(self) -> int:
        return self.layouts.keys.shape[0]

    @property
    def dim(self) -> int:
        """Width of keys, d."""
        return self.layouts.keys.shape[1]

    def added(self, number: int) -> range:
        """Tokens of the added split that a shard of rows holds."""
        rows = self.layouts.keys.rows(number)
        return range(max(0, rows.start - self.kept.rows), max(0, rows.stop - self.kept.rows))

    def added_before(self, number: int) -> Iterator[TokenRange]:
        """The tokens of the added split that the shards before one hold, the last first."""
        for earlier in reversed(range(number)):
            tokens = self.added(earlier)
            if not len(tokens):
                return
            yield TokenRange(_key(earlier), tokens.start, tokens.stop)


@dataclass(frozen=True)
class Work:
    """What computing shards needs."""

    plan: Plan
    keys: "StoredKeys"
    values: Any
    """int32 [T], of the datastore before."""
    encoder: "Callable[[Any], KeyEncoder]"
    """Reads the splits of a group with the model of the keys, which is loaded when the first rows are encoded."""
    states: "StateStore"


class UpdateDatastore(ShardedStage[UpdateConfig, Plan, Work, Shard]):
    """Changes a datastore into another; roles: `encoder` (model), `previous` (datastore), `added` (tokens)."""

    kind = "datastore"
    Config = UpdateConfig

    def inputs(self, config: UpdateConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        previous = store.get(references["source"], "datastore")
        read = {"encoder": previous.input("encoder"), PREVIOUS: previous}
        if references.get("add") is None:
            if not config.forget:
                raise UsageError("What is to change? Name tokens to --add, documents to --forget, or both.")
            if config.split is not None:
                raise UsageError(f"--split {config.split} is of tokens to add: name these with --add.")
            return Inputs(read)
        added, split = store.get(references["add"], "tokens"), config.split or "train"
        require_split(added, split)
        require_same_tokenizer(tokenizer_of(previous), added, read["encoder"])
        if any(source.is_split(added, split) for source in sources_of(previous)):
            raise UsageError(
                f"{previous.reference} has rows of {split!r} of {added.reference} already; to add documents of it that "
                "were forgotten, tokenize these alone: "
                + added.advise("tokenize", "--tokenizer", added.reference, "--train", "FILE")
            )
        return Inputs(read | {ADDED: added})

    def resolve(self, config: UpdateConfig, inputs: Inputs, execution: Execution) -> UpdateConfig:
        from stages.models.devices import device_type, resolve_precision

        rows = DatastoreRows(inputs[PREVIOUS])
        total = len(rows.doc_offsets) - 1
        forgotten = documents_meant(config.forget, rows.named_runs, total)
        if len(forgotten) == total and ADDED not in inputs:
            raise UsageError(
                f"Nothing of {inputs[PREVIOUS].reference} would be left; remove it: "
                + inputs[PREVIOUS].advise("artifacts", "rm", inputs[PREVIOUS].reference)
            )
        return config.model_copy(
            update={
                "split": (config.split or "train") if ADDED in inputs else None,
                "forget": spelled_numbers(forgotten),
                "precision": resolve_precision(config.precision, device_type(execution.device)),
                **_taken_over(config, inputs),
            }
        )

    def device(self, execution: Execution) -> str:
        from stages.models.devices import device_name

        return device_name(execution.device)

    def cost(self, config: UpdateConfig, inputs: Inputs) -> Cost:
        encoder, before = inputs["encoder"], RowTables.of(DatastoreRows(inputs[PREVIOUS]))
        kept = before.without(documents_meant(config.forget, (), before.documents))
        added = _counts_added(config, inputs)
        assert config.dtype is not None
        layouts = RowLayouts.of(encoder, kept.rows + added["tokens"], config.dtype, config.stride or 1)
        tables = [
            _table_layout(name, (len(array) + added[TABLE_ROWS[name]], *array.shape[1:]), array.dtype)
            for name, array in _table_arrays(kept).items()
        ]
        rows, dim = layouts.keys.shape
        state, shard = (
            state_bytes(encoder, config.windows, rows),
            layouts.keys.rows_per_shard * dim * layouts.keys.dtype.itemsize,
        )
        files = {layout.name: layout.stored_bytes for layout in (*layouts, *tables)}
        return Cost(
            files=files | _words_bytes(config, inputs, kept),
            metrics={
                **{"rows": rows, "dim": dim, "dtype": config.dtype, "key": config.key},
                **{"forgotten": before.rows - kept.rows, "added": added["tokens"]},
            },
            scratch=STATES_KEPT * state,
            memory=2 * min(shard, layouts.keys.nbytes) + (_model_bytes(encoder) + state if ADDED in inputs else 0),
            remedy="fewer documents to --add",
        )

    def effort(self, config: UpdateConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Effort:
        """Tokens that are encoded, beside rows that are copied; where none are added, the copied rows."""
        kin = config.model_dump(include={*TAKEN_OVER, "precision"})
        kin |= {"model": shape_of(inputs["encoder"]), "adds": ADDED in inputs}
        copied = metrics["rows"] - metrics["added"]
        return Effort(metrics["added"], "tokens", kin, copied) if ADDED in inputs else Effort(copied, "rows", kin)

    def plan(self, job: Job[UpdateConfig]) -> Plan:
        config, encoder = job.config, job.inputs["encoder"]
        before = RowTables.of(DatastoreRows(job.inputs[PREVIOUS]))
        forgotten = documents_meant(config.forget, (), before.documents)
        kept = KeptRows.of_documents(before.doc_offsets, forgotten)
        after = before.without(forgotten)
        if ADDED in job.inputs:
            assert config.split is not None
            after = after.followed_by(job.inputs[ADDED], config.split)
        carries = model_of(encoder).carries_state
        remembers = carries or config.reset == "document"
        reread = np.zeros(len(kept.ranges), np.int64) if remembers else seen_behind(before.runs, kept, config.windows)
        if len(forgotten):
            _tell(job, before, kept, len(forgotten), carries and config.reset != "document")
        assert config.dtype is not None
        _write_words(job, after)
        layouts = RowLayouts.of(encoder, after.rows, config.dtype, config.stride or 1)
        return Plan(layouts, _tables(after), after.documents, kept, reread, carries)

    def arrays(self, job: Job[UpdateConfig], plan: Plan) -> Sequence[ArrayLayout]:
        return [*plan.layouts, *(layout for layout, _ in plan.tables)]

    def output_bytes(self, job: Job[UpdateConfig], plan: Plan) -> int:
        rows = plan.layouts.keys.shape[0]
        state = state_bytes(job.inputs["encoder"], job.config.windows, rows)
        return super().output_bytes(job, plan) + STATES_KEPT * state

    def shards(self, job: ShardJob[UpdateConfig], plan: Plan) -> Sequence[Shard]:
        return [Shard(TABLES), *(Shard(_key(number)) for number in range(plan.layouts.keys.shards))]

    def chain(self, job: ShardJob[UpdateConfig], plan: Plan, shard: Shard) -> str | None:
        encodes = shard.key != TABLES and len(plan.added(int(shard.key)))
        return ADDED_CHAIN if plan.carries_state and encodes else None

    def open(self, job: ShardJob[UpdateConfig], plan: Plan) -> Work:
        from stages.encoding.state_store import StateStore
        from stages.models.devices import resolve_device
        from stages.search.allocator import return_large_blocks
        from stages.search.keys import StoredKeys

        return_large_blocks()
        group: Any = job.inputs[PREVIOUS].zarr(GROUP)
        device = resolve_device(job.execution.device)
        return Work(plan, StoredKeys(group["keys"]), group["values"], _encoders(job), StateStore(job.folder, device))

    def run_shard(self, job: ShardJob[UpdateConfig], work: Work, shard: Shard) -> ShardOutput:
        started = time.perf_counter()
        output, plan = ShardOutput(job.folder), work.plan
        if shard.key == TABLES:
            for layout, table in plan.tables:
                for number in range(layout.shards):
                    output.write(layout, number, table[layout.rows(number)])
            return output
        number, layouts = int(shard.key), plan.layouts
        rows = layouts.keys.rows(number)
        keys = np.empty((rows.stop - rows.start, plan.dim), layouts.keys.dtype)
        values = np.empty(len(keys), VALUE_DTYPE)
        _copy(work, rows, keys, values)
        again = _read_again(job, work, rows, keys)
        tokens = plan.added(number)
        if len(tokens):
            encoded = _encode(job, work, number, output)
            keys[-len(tokens) :], values[-len(tokens) :] = encoded
            require_finite(keys[-len(tokens) :], job.inputs["encoder"])
        output.write(layouts.keys, number, keys)
        output.write(layouts.values, number, values)
        output.record |= {"again": again, "seconds": time.perf_counter() - started}
        return output

    def finish(self, job: Job[UpdateConfig], plan: Plan) -> dict[str, Any]:
        records = [job.draft.record(_key(number)) for number in range(plan.layouts.keys.shards)]
        before = job.inputs[PREVIOUS].metrics["rows"]
        return {
            "rows": plan.rows,
            "dim": plan.dim,
            "dtype": job.config.dtype,
            "key": job.config.key,
            "bytes": plan.layouts.nbytes,
            "documents": plan.documents,
            "forgotten": before - plan.kept.rows,
            "added": plan.rows - plan.kept.rows,
            "encoded_again": sum(record["again"] for record in records),
            "rows_per_second": round(plan.rows / sum(record["seconds"] for record in records), 1),
        }


def _key(number: int) -> str:
    """Name of a shard of rows."""
    return f"{number:06d}"


def _taken_over(config: UpdateConfig, inputs: Inputs) -> dict[str, Any]:
    """Settings of the datastore before. Raises: UsageError if others are asked for."""
    previous = inputs[PREVIOUS]
    own = {name: previous.config.get(name) for name in TAKEN_OVER} | {"reset": previous.config.get("reset", "none")}
    for name, value in own.items():
        if getattr(config, name) not in (None, value):
            raise UsageError(
                f"The rows of {previous.reference} have {name} {value}, and so must those that are added: leave "
                f"{name} out, or build another: {previous.advise('build-datastore', inputs['encoder'].reference)}"
            )
    return own


# Whose rows they are


def _tables(rows: RowTables) -> list[tuple[ArrayLayout, np.ndarray]]:
    arrays = _table_arrays(rows)
    return [(_table_layout(name, array.shape, array.dtype), array) for name, array in arrays.items()]


def _table_arrays(rows: RowTables) -> dict[str, np.ndarray]:
    return {"runs": rows.run_table, **{name: getattr(rows, name) for name in TABLE_ROWS if name != "runs"}}


def _table_layout(name: str, shape: tuple[int, ...], dtype: Any) -> ArrayLayout:
    row = np.dtype(dtype).itemsize * math.prod(shape[1:]) if shape[0] else 1
    return ArrayLayout(f"{GROUP}/{name}", shape, dtype, rows_per_shard(row))


def _counts_added(config: UpdateConfig, inputs: Inputs) -> dict[str, int]:
    """Of what is added, the tokens, and the rows of each table."""
    counted = ("tokens", "documents", "paragraphs")
    if ADDED not in inputs:
        return dict.fromkeys((*counted, "runs"), 0)
    split = inputs[ADDED].metrics["splits"][config.split]
    return {"runs": 1, **{name: int(split[name]) for name in counted}}


def _words_bytes(config: UpdateConfig, inputs: Inputs, kept: RowTables) -> dict[str, int]:
    """Sizes of what `_write_words` writes: sources, and names of the documents that stay and that are added."""
    sources, names, split = kept.sources, sum(len(run.dumps()) for run in kept.names), config.split
    if ADDED in inputs and split is not None:
        sources = [*sources, RowSource.of(inputs[ADDED], split)]
        file = inputs[ADDED].manifest.files.get(names_file(split))
        names += 0 if file is None else int(file["bytes"])
    return {SOURCES: len(dump_sources(sources)), names_file(ROWS): names}


def _model_bytes(encoder: Artifact) -> int:
    """Memory that its weights take."""
    return 4 * int(encoder.metrics["parameters"])


def _write_words(job: Job[UpdateConfig], rows: RowTables) -> None:
    """Sources, and names of documents, which are files of their own."""
    if not job.draft.done(SOURCES):
        job.draft.add(SOURCES).write_text(dump_sources(rows.sources), encoding="utf-8")
        with job.draft.add(names_file(ROWS)).open("w", encoding="utf-8") as file:
            file.writelines(run.dumps() for run in rows.names)
        job.draft.commit(SOURCES)


def _tell(job: Job[UpdateConfig], before: RowTables, kept: KeptRows, documents: int, carried: bool) -> None:
    """How much goes, and what stays of it in the keys of others, which a state carried there."""
    job.reporter.info(f"forgetting {documents:,} of {before.documents:,} documents, {before.rows - kept.rows:,} rows")
    if carried:
        job.reporter.warning(
            f"{job.inputs['encoder'].reference} carries a state across documents, so keys behind a forgotten one were "
            "made with what the model kept of it. Documents of a datastore built with --reset document leave nothing."
        )


# Rows that stay


def _copy(work: Work, rows: slice, keys: np.ndarray, values: np.ndarray) -> None:
    """Fill in the rows that stay, reading each shard of the datastore before once."""
    step, held = work.keys.rows_per_shard, -1
    for first, old, stop in work.plan.kept.between(rows.start, rows.stop):
        for begin in range(old // step * step, stop, step):
            if begin != held:
                held, old_keys, old_values = begin, work.keys.read(begin // step), work.values[begin : begin + step]
            a, b = max(begin, old), min(begin + step, stop)
            place = slice(first - rows.start + a - old, first - rows.start + b - old)
            keys[place], values[place] = old_keys[a - begin : b - begin], old_values[a - begin : b - begin]


def _read_again(job: ShardJob[UpdateConfig], work: Work, rows: slice, keys: np.ndarray) -> int:
    """Encode rows again that had seen, in their window, what goes: as if the text began there. Returns how many."""
    pieces = [
        (first, old, min(stop, old + int(count)))
        for (first, old, stop), count in zip(_ranges(work.plan), work.plan.reread, strict=True)
        if count and first < rows.stop and first + count > rows.start
    ]
    if not pieces:
        return 0
    encoded = _encoded_alone(job, work, [np.asarray(work.values[old:stop]) for _, old, stop in pieces])
    again = 0
    for (first, _, _), block in zip(pieces, encoded, strict=True):
        a, b = max(first, rows.start), min(first + len(block), rows.stop)
        keys[a - rows.start : b - rows.start] = block[a - first : b - first]
        require_finite(keys[a - rows.start : b - rows.start], job.inputs["encoder"])
        again += b - a
    return again


def _ranges(plan: Plan) -> Iterator[tuple[int, int, int]]:
    """Of each range that stays its first new row, and its old rows."""
    for first, (old, stop) in zip(plan.kept.new_starts[:-1].tolist(), plan.kept.ranges.tolist(), strict=True):
        yield first, old, stop


def _encoded_alone(job: ShardJob[UpdateConfig], work: Work, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Keys of short texts, each of which begins behind a lone `<eos>`: [n, d] of each text [n]."""
    eos = np.array([tokenizer_of(job.inputs[PREVIOUS]).metrics["eos_id"]])
    ids = np.concatenate([part for text in texts for part in (text, eos)])
    ends = np.cumsum([len(text) + 1 for text in texts])
    group = {f"{ROWS}/ids": ids, f"{ROWS}/doc_offsets": np.concatenate([[0], ends])}
    keys = work.encoder(group).by_document().encode(ROWS, 0, len(ids), None).keys.numpy()
    return [keys[a : b - 1] for a, b in pairwise([0, *ends.tolist()])]


# Rows that are added


def _encoders(job: ShardJob[UpdateConfig]) -> "Callable[[Any], KeyEncoder]":
    from stages.encoding.key_encoder import KeyEncoder
    from stages.encoding.split_reader import SplitReader
    from stages.models.devices import resolve_device, tune_allocator
    from stages.models.language_model import load_model

    device, windows = resolve_device(job.execution.device), job.config.windows

    @cache
    def model() -> Any:
        tune_allocator()
        return load_model(job.inputs["encoder"].path, device, windows)

    def reading(group: Any) -> KeyEncoder:
        eos = tokenizer_of(job.inputs[PREVIOUS]).metrics["eos_id"]
        reader = SplitReader(group, eos, windows, False, device, job.config.precision)
        return KeyEncoder.of(job.inputs[PREVIOUS], reader, model())

    return reading


def _encode(job: ShardJob[UpdateConfig], work: Work, number: int, output: ShardOutput) -> tuple[np.ndarray, np.ndarray]:
    """Keys [n, d] and values [n] of the tokens of the added split that a shard holds."""
    from stages.encoding.carried_state import CarriedState

    split, tokens = job.config.split, work.plan.added(number)
    assert split is not None
    encoder = work.encoder(job.inputs[ADDED].zarr("tokens.zarr"))
    state = encoder.state_behind(split, work.plan.added_before(number), work.states)
    encoded = encoder.encode(split, tokens.start, tokens.stop, state)
    idle = _key(number - 1) if tokens.start else None
    work.states.keep(output, _key(number), CarriedState(tokens.stop, encoded.state), idle)
    return encoded.keys.numpy(), encoded.tokens.numpy().astype(VALUE_DTYPE)
