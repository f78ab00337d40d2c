"""The phases of making an index of sorted contexts, and opening it; see `work`."""

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
    positions_of_shard,
    rank_contexts,
)
from stages.suffixes.text import Order, Text, opened, sort_contexts
from stages.text.tokens import TokenSplit, open_split
from stages.threads import slices

KEPT_ORDER = Path("scratch", "kept-order.bin")
KEPT_SHARED = Path("scratch", "kept-shared.bin")


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
        order = np.memmap(self.folder / KEPT_ORDER, order_dtype, "r", shape=(rows,))
        shared = np.memmap(self.folder / KEPT_SHARED, np.uint8, "r", shape=(rows,))
        return SortedContexts(self.text, np.asarray(order), np.asarray(shared))

    @cached_property
    def cut(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For every part of CUT: positions grouped by shard, and the number of positions for each shard."""
        groups = []
        for part in self.plan.parts(CUT):
            positions, counts = map_arrays(self.folder / _file(part), 2)
            groups.append((positions, counts))
        return groups

    @cached_property
    def new(self) -> list[RankedContexts]:
        """New contexts in order, one item for each sorted shard."""
        ranked = []
        for part in self.plan.parts(SORT):
            arrays = map_arrays(self.folder / _file(part), len(RankedContexts._fields))
            ranked.append(RankedContexts(*arrays))
        return ranked


def _file(part: ContextPart) -> Path:
    return Path("scratch", f"{part.key}.npy")


def staying_documents(job: ShardJob[IndexConfig]) -> tuple[KeptDocuments | None, DocumentRanges]:
    """The documents that stay from the previous index, and the tokens to sort."""
    new = job.inputs[TEXT]
    if PREVIOUS not in job.inputs:
        rows = int(new.metrics["splits"][job.config.split]["tokens"])
        return None, DocumentRanges(np.array([0]), np.array([rows]))

    old_ids, old_offsets = _documents(_previous_split(job))
    new_ids, new_offsets = _documents(_new_split(job))
    stay = match_documents((old_ids, old_offsets), (new_ids, new_offsets))
    return stay, new_ranges(new_offsets, stay.now)


def _previous_split(job: ShardJob[IndexConfig]) -> TokenSplit:
    """The text of the previous index."""
    previous = job.inputs[PREVIOUS]
    return open_split(previous.input(TEXT).zarr("tokens.zarr"), str(previous.config["split"]))


def _new_split(job: ShardJob[IndexConfig]) -> TokenSplit:
    return open_split(job.inputs[TEXT].zarr("tokens.zarr"), str(job.config.split))


def _documents(split: TokenSplit) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of a split, and the offsets of its documents, int64 [D + 1]."""
    return opened(split.ids), np.asarray(split.doc_offsets[:])


def _keep(
    job: ShardJob[IndexConfig], parts: SortedParts, part: ContextPart, output: ShardOutput
) -> None:
    """Copy the order of kept contexts from the previous index, in the positions of the new text."""
    plan = parts.plan
    assert plan.stay is not None
    group = job.inputs[PREVIOUS].zarr(GROUP)
    old_order = group["order"]
    old_shared = group["shared"]
    blocks = (
        (np.asarray(old_order[rows]), np.asarray(old_shared[rows]))
        for rows in slices(old_order.shape[0], AT_ONCE)
    )
    old_offsets = np.asarray(_previous_split(job).doc_offsets[:])
    new_offsets = np.asarray(_new_split(job).doc_offsets[:])
    kept_blocks = keep_order(blocks, plan.stay, old_offsets, new_offsets)

    order_path = output.add(KEPT_ORDER)
    shared_path = output.add(KEPT_SHARED)
    with order_path.open("wb") as order_file, shared_path.open("wb") as shared_file:
        for order, shared in kept_blocks:
            order_file.write(order.astype(plan.order.dtype).tobytes())
            shared_file.write(shared.tobytes())


def _cut(
    job: ShardJob[IndexConfig], parts: SortedParts, part: ContextPart, output: ShardOutput
) -> None:
    """Group the positions of some new contexts by the shard that sorts them."""
    plan = parts.plan
    num_shards = len(plan.parts(SORT))
    bounds = borders(parts.text, plan.sorted, num_shards)

    contexts = np.arange(part.contexts.start, part.contexts.stop)
    positions, counts = group_by_shard(bounds, plan.sorted.positions(contexts))
    save_arrays(output.add(_file(part)), positions.astype(plan.order.dtype), counts)


def _positions_to_sort(parts: SortedParts, part: ContextPart) -> np.ndarray:
    """Positions of the new contexts in a sorted shard, int64."""
    if parts.cut:
        return positions_of_shard(parts.cut, part.number)
    # All new contexts are one shard, which needs no cut.
    new = parts.plan.sorted
    return new.positions(np.arange(len(new)))


def _sort(
    job: ShardJob[IndexConfig], parts: SortedParts, part: ContextPart, output: ShardOutput
) -> None:
    """Sort the new contexts of one shard, and rank them among the kept ones."""
    plan = parts.plan
    contexts = sort_contexts(parts.text, _positions_to_sort(parts, part))
    ranked = rank_contexts(parts.text, contexts, parts.kept_order)

    # Positions and ranks fit the type of the order, which is narrower than int64 for most texts.
    dtype = plan.order.dtype
    positions = ranked.positions.astype(dtype)
    rank = ranked.rank.astype(dtype)
    narrow = ranked._replace(positions=positions, rank=rank)
    save_arrays(output.add(_file(part)), *narrow)


def _write(
    job: ShardJob[IndexConfig], parts: SortedParts, part: ContextPart, output: ShardOutput
) -> None:
    """Merge new and kept contexts into some rows of the index."""
    plan = parts.plan
    rows = plan.order.rows(part.number)
    kept_order = Order(parts.kept_order.order, parts.kept_order.shared)
    merged = merge_orders(parts.text, rows.start, rows.stop, parts.new, kept_order)
    output.write(plan.order, part.number, merged.positions.astype(plan.order.dtype))
    output.write(plan.shared, part.number, merged.shared)


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
