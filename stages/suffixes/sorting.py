"""The phases of making an index of sorted contexts, and opening it; see `work`."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from stages.array_files import map_arrays, save_arrays
from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import PREVIOUS
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import ShardJob
from stages.search.config import IndexConfig
from stages.suffixes import AT_ONCE
from stages.suffixes.indexing import GROUP, TEXT
from stages.suffixes.matches import SortedContexts
from stages.suffixes.plan import CUT, KEEP, SORT, WRITE, ContextPart, ContextPlan
from stages.suffixes.shards import (
    DocumentRanges,
    KeptDocuments,
    RankedContexts,
    borders,
    group_by_shard,
    keep_order,
    match_documents,
    merge_orders,
    new_ranges,
    places_of_shard,
    rank_contexts,
)
from stages.suffixes.text import Order, Text, opened, sort_contexts
from stages.text.tokens import TokenSplit, open_split
from stages.threads import slices

KEPT_FILES = (Path("scratch", "kept-order.bin"), Path("scratch", "kept-shared.bin"))


@dataclass(frozen=True)
class SortedParts:
    """The text, and what the phases before have written."""

    plan: ContextPlan
    text: Text
    folder: Path

    @cached_property
    def kept_order(self) -> SortedContexts:
        """The order of the contexts of kept documents."""
        rows = len(self.text) - len(self.plan.sorted)
        order_dtype = self.plan.order.dtype
        if not rows:
            # An empty file cannot be mapped.
            return SortedContexts(self.text, np.zeros(0, order_dtype), np.zeros(0, np.uint8))
        order_path, shared_path = (self.folder / path for path in KEPT_FILES)
        order = np.memmap(order_path, order_dtype, "r", shape=(rows,))
        shared = np.memmap(shared_path, np.uint8, "r", shape=(rows,))
        return SortedContexts(self.text, np.asarray(order), np.asarray(shared))

    @cached_property
    def cut(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For every part of CUT: places grouped by shard, and the number of places for each shard."""
        files = (map_arrays(self.folder / _file(part), 2) for part in self.plan.parts(CUT))
        return [(places, counts) for places, counts in files]

    @cached_property
    def new(self) -> list[RankedContexts]:
        """New contexts in order, one item for each sorted shard."""
        return [
            RankedContexts(*map_arrays(self.folder / _file(part), 5))
            for part in self.plan.parts(SORT)
        ]


def _file(part: ContextPart) -> Path:
    return Path("scratch", f"{part.key}.npy")


def staying_documents(job: ShardJob[IndexConfig]) -> tuple[KeptDocuments | None, DocumentRanges]:
    """The documents that stay from the previous index, and the tokens to sort."""
    if PREVIOUS not in job.inputs:
        rows = int(job.inputs[TEXT].metrics["splits"][job.config.split]["tokens"])
        return None, DocumentRanges(np.array([0]), np.array([rows]))

    old, new = _both(job)
    old_offsets = np.asarray(old.doc_offsets[:])
    new_offsets = np.asarray(new.doc_offsets[:])
    before = (opened(old.ids), old_offsets)
    now = (opened(new.ids), new_offsets)
    stay = match_documents(before, now)
    return stay, new_ranges(new_offsets, stay.now)


def _both(job: ShardJob[IndexConfig]) -> Iterator[TokenSplit]:
    """The text of the previous index, and the new text."""
    previous = job.inputs[PREVIOUS]
    for tokens, split in (
        (previous.input(TEXT), previous.config["split"]),
        (job.inputs[TEXT], job.config.split),
    ):
        yield open_split(tokens.zarr("tokens.zarr"), str(split))


def _keep(
    job: ShardJob[IndexConfig], parts: SortedParts, part: ContextPart, output: ShardOutput
) -> None:
    assert parts.plan.stay is not None
    group = job.inputs[PREVIOUS].zarr(GROUP)
    blocks = (
        (np.asarray(group["order"][rows]), np.asarray(group["shared"][rows]))
        for rows in slices(group["order"].shape[0], AT_ONCE)
    )
    offsets = [np.asarray(text.doc_offsets[:]) for text in _both(job)]
    with (
        output.add(KEPT_FILES[0]).open("wb") as orders,
        output.add(KEPT_FILES[1]).open("wb") as links,
    ):
        for order, shared in keep_order(blocks, parts.plan.stay, *offsets):
            orders.write(order.astype(parts.plan.order.dtype).tobytes())
            links.write(shared.tobytes())


def _cut(
    job: ShardJob[IndexConfig], parts: SortedParts, part: ContextPart, output: ShardOutput
) -> None:
    plan = parts.plan
    bounds = borders(parts.text, plan.sorted, len(plan.parts(SORT)))
    contexts = np.arange(part.contexts.start, part.contexts.stop)
    places, counts = group_by_shard(bounds, plan.sorted.places(contexts))
    save_arrays(output.add(_file(part)), places.astype(plan.order.dtype), counts)


def _places_to_sort(parts: SortedParts, part: ContextPart) -> np.ndarray:
    """Places of the new contexts in a sorted shard, int64."""
    if parts.cut:
        return places_of_shard(parts.cut, part.number)
    # All new contexts are one shard, which needs no cut.
    new = parts.plan.sorted
    return new.places(np.arange(len(new)))


def _sort(
    job: ShardJob[IndexConfig], parts: SortedParts, part: ContextPart, output: ShardOutput
) -> None:
    plan = parts.plan
    contexts = sort_contexts(parts.text, _places_to_sort(parts, part))
    ranked = rank_contexts(parts.text, contexts, parts.kept_order)

    # Places and ranks fit the type of the order, which is narrower than int64 for most texts.
    dtype = plan.order.dtype
    narrow = ranked._replace(places=ranked.places.astype(dtype), rank=ranked.rank.astype(dtype))
    save_arrays(output.add(_file(part)), *narrow)


def _write(
    job: ShardJob[IndexConfig], parts: SortedParts, part: ContextPart, output: ShardOutput
) -> None:
    plan = parts.plan
    rows = plan.order.rows(part.number)
    kept_order = Order(parts.kept_order.order, parts.kept_order.shared)
    order, shared = merge_orders(parts.text, rows.start, rows.stop, parts.new, kept_order)
    output.write(plan.order, part.number, order.astype(plan.order.dtype))
    output.write(plan.shared, part.number, shared)


PHASES = {KEEP: _keep, CUT: _cut, SORT: _sort, WRITE: _write}


def text_of(tokens: Artifact, split: str) -> Text:
    """The text of a split, with its document borders; large arrays are memory-mapped."""
    tokens_of_split = open_split(tokens.zarr("tokens.zarr"), split)
    offsets = np.asarray(tokens_of_split.doc_offsets[:])
    return Text.of(tokens_of_split.ids, offsets, int(tokens.metrics["vocabulary_size"]))


def open_contexts(index: Artifact) -> SortedContexts:
    """Open the sorted contexts of an index; large arrays are memory-mapped."""
    group = index.zarr(GROUP)
    text = text_of(index.input(TEXT), str(index.config["split"]))
    return SortedContexts(text, opened(group["order"]), opened(group["shared"]))
