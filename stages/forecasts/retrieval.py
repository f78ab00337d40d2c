"""Forecasts for the stages that make a memory: datastore, index, neighbours, packed batches."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.kinds import ADDED, PREVIOUS
from stages.artifacts.stage import Inputs
from stages.datastore import DatastoreConfig, layouts_of
from stages.encoding.window_settings import STATES_KEPT, state_bytes
from stages.examples.cutting import WindowedConfig
from stages.forecasts import Cost, Forecast, Work
from stages.index import INDEX_FILE, PART_BYTES
from stages.lineage.indexes import described_keys
from stages.models.config import model_of, shape_of
from stages.neighbors import NeighborsConfig, query_layouts
from stages.pack import PackConfig, array_layouts, whole_segments
from stages.search import EXACT
from stages.search.automatic import grows_whole, index_bytes, is_lossless, memory_to_search
from stages.search.config import IndexConfig
from stages.suffixes.indexing import (
    CONTEXTS_PER_SHARD,
    GROUP,
    SORTING_BYTES,
    TEXT,
    opened_bytes,
    scratch_bytes,
)
from stages.updating.change import Change
from stages.updating.config import TAKEN_OVER, UpdateConfig
from stages.updating.plan import bytes_of_sources_and_names, longer_layouts, row_layouts


class DatastoreForecast(Forecast[DatastoreConfig]):
    """The number of rows is known from the manifest of the tokens."""

    def cost(self, config: DatastoreConfig, inputs: Inputs) -> Cost:
        layouts = layouts_of(config, inputs)
        rows, dim = layouts.keys.shape
        state = state_bytes(inputs["encoder"], config.windows, rows)
        return Cost(
            files={layout.name: layout.stored_bytes for layout in layouts},
            metrics={"rows": rows, "dim": dim, "dtype": config.dtype, "key": config.key},
            scratch=STATES_KEPT * state,
            memory=4 * inputs["encoder"].metrics["parameters"] + state,
            host=state,
            remedy="--fraction stores a part of the split"
            + (", --dtype float16" if config.dtype == "float32" else ""),
        )

    def work(self, config: DatastoreConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        """Count the tokens of all windows. A model that pools reads one window for every row."""
        signature = config.model_dump(
            include={*WindowedConfig.model_fields, "dtype", "precision", "key"}
        )
        signature |= {"model": shape_of(inputs["encoder"])}
        window = config.windows.context if model_of(inputs["encoder"]).pools else 1
        return Work(metrics["rows"] * window, "tokens", signature)


class UpdateForecast(Forecast[UpdateConfig]):
    """The number of rows follows from manifests; the added split is not read."""

    def cost(self, config: UpdateConfig, inputs: Inputs) -> Cost:
        encoder, change = inputs["encoder"], Change.of(config, inputs)
        added = _counts_added(change)
        layouts = row_layouts(config, encoder, change.left.rows + added["tokens"])
        files = {
            layout.name: layout.stored_bytes
            for layout in (*layouts, *longer_layouts(change.left, added))
        }
        keys, (rows, dim) = layouts.keys, layouts.keys.shape
        state = state_bytes(encoder, config.windows, rows)
        copied = 2 * min(keys.rows_per_shard * keys.row_bytes, keys.nbytes)
        return Cost(
            files=files | bytes_of_sources_and_names(change.left, change.tokens, change.split),
            metrics={
                **{"rows": rows, "dim": dim, "dtype": config.dtype, "key": config.key},
                **{"forgotten": change.before.rows - change.left.rows, "added": added["tokens"]},
            },
            scratch=STATES_KEPT * state,
            memory=copied
            + (4 * int(encoder.metrics["parameters"]) + state if ADDED in inputs else 0),
            remedy="fewer documents to --add",
        )

    def work(self, config: UpdateConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        """Count the tokens that are encoded, or, where none are added, the rows that are copied."""
        signature = config.model_dump(include={*TAKEN_OVER, "precision"})
        signature |= {"model": shape_of(inputs["encoder"]), "adds": ADDED in inputs}
        copied = metrics["rows"] - metrics["added"]
        if ADDED in inputs:
            return Work(metrics["added"], "tokens", signature, copied)
        return Work(copied, "rows", signature)


def _counts_added(change: Change) -> dict[str, int]:
    """Count the tokens that are added, and the rows of each table."""
    counted = ("tokens", "documents", "paragraphs")
    if change.tokens is None:
        return dict.fromkeys((*counted, "runs"), 0)
    split = change.tokens.metrics["splits"][change.split]
    return {"runs": 1, **{name: int(split[name]) for name in counted}}


class IndexForecast(Forecast[IndexConfig]):
    """The size follows from the kind of index. For a factory string of FAISS it is not known."""

    def cost(self, config: IndexConfig, inputs: Inputs) -> Cost:
        if config.index == EXACT:
            return _cost_of_text(int(inputs[TEXT].metrics["splits"][config.split]["tokens"]))
        keys = described_keys(inputs["datastore"])
        size = index_bytes(config, keys)
        if size is None:
            return Cost(metrics={"rows": keys.rows, "dim": keys.dim})
        held = size if grows_whole(config) else PART_BYTES
        return Cost(
            files={INDEX_FILE: size},
            metrics={
                "rows": keys.rows,
                "dim": keys.dim,
                "bytes": size,
                "lossless": is_lossless(config),
            },
            scratch=0 if grows_whole(config) else size,
            memory=max(held, 4 * keys.dim * int(config.train_keys or 0)),
            remedy="" if config.index == "ivf-pq" else "--index ivf-pq holds codes instead of keys",
        )

    def work(self, config: IndexConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        settings = {"index", "metric", "code_bytes", "code_bits", "links", "recall"}
        signature = config.model_dump(include=settings) | {
            "dim": metrics.get("dim"),
            "changed": PREVIOUS in inputs,
        }
        unit = "tokens" if config.index == EXACT else "keys"
        return Work(metrics["rows"], unit, signature, scale=metrics["rows"])


def _cost_of_text(rows: int) -> Cost:
    """Cost of an exact index: the places of tokens, and the lengths that neighbouring contexts
    share.
    """
    place = 8 if rows >= 2**32 else 4
    files = {f"{GROUP}/order": rows * place, f"{GROUP}/shared": rows}
    return Cost(
        files=files,
        metrics={"rows": rows, "bytes": sum(files.values())},
        scratch=scratch_bytes(rows, place),
        memory=opened_bytes(rows) + SORTING_BYTES * min(rows, CONTEXTS_PER_SHARD),
    )


class NeighborsForecast(Forecast[NeighborsConfig]):
    """There is one query for each token of every split that is read."""

    def cost(self, config: NeighborsConfig, inputs: Inputs) -> Cost:
        index = inputs["index"]
        splits = inputs["queries"].metrics["splits"]
        tokens = {split: int(splits[split]["tokens"]) for split in config.queries or ()}
        layouts = query_layouts(config, index.metrics["dim"], tokens)
        memory = memory_to_search(index.config["index"], index.metrics.get("bytes"))
        return Cost(
            files={layout.name: layout.stored_bytes for layout in layouts},
            metrics={
                "k": config.k,
                "splits": {s: {"queries": count, "missing": 0.0} for s, count in tokens.items()},
            },
            scratch=0,
            memory=memory,
            host=memory,
            remedy="a smaller --k, or --queries with fewer splits",
        )

    def work(self, config: NeighborsConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        """Count the queries. An encoder that pools takes longer than the search, so its shape is in
        the signature.
        """
        index = inputs["index"]
        signature = config.model_dump(include={"k", "probe", "exact", "candidates", "precision"})
        signature |= {"index": index.config["index"], "dim": index.metrics["dim"]}
        encoder = index.find("encoder")
        if model_of(encoder).pools:
            signature |= {
                "model": shape_of(encoder),
                "context": index.find("datastore").config["context"],
            }
        queries = sum(split["queries"] for split in metrics["splits"].values())
        return Work(queries, "queries", signature, scale=index.metrics["rows"])


MATCH_BYTES = 16
"""Bytes of one match of a segment, its id and score, while segments are packed."""


class PackForecast(Forecast[PackConfig]):
    """The number of segments is known from the manifest of the tokens."""

    def cost(self, config: PackConfig, inputs: Inputs) -> Cost:
        segments = whole_segments(config, inputs)
        files = {name: layout.stored_bytes for name, layout in array_layouts(segments).items()}
        matches = MATCH_BYTES * segments * min(config.k, segments - 1)
        return Cost(files=files, metrics={"segments": segments}, scratch=matches)

    def work(self, config: PackConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        signature = config.model_dump(include={"segment_length", "k", "bm25"})
        return Work(metrics["segments"], "segments", signature, scale=metrics["segments"])
