"""Which files the arrays of an artifact need, by their metadata alone."""

import json
from collections.abc import Collection, Iterator
from itertools import islice, product
from math import ceil
from pathlib import Path

from stages.errors import ArtifactError


def missing_shards(folder: Path, files: Collection[str]) -> Iterator[str]:
    """Names that a table of files lacks, of shards that its arrays need: they would be read as zeros.

    Raises: ArtifactError for an array whose metadata tells no layout of shards.
    """
    for metadata in files:
        if Path(metadata).name == "zarr.json":
            yield from _shard_files(folder, Path(metadata), len(files)) - set(files)


def _shard_files(folder: Path, metadata: Path, most: int) -> set[str]:
    """The shards of an array, none of a group; more than `most` are cut short, since some must be missing."""
    try:
        content = json.loads((folder / metadata).read_bytes())
        if content["node_type"] == "group":
            return set()
        grid = content["chunk_grid"]["configuration"]["chunk_shape"]
        counts = [min(ceil(rows / shard), most + 1) for rows, shard in zip(content["shape"], grid, strict=True)]
        places = product(*map(range, counts)) if all(counts) else iter(())
        return {Path(metadata.parent, "c", *map(str, place)).as_posix() for place in islice(places, most + 1)}
    except (ValueError, KeyError, TypeError, RecursionError, ArithmeticError) as error:
        raise ArtifactError(f"{folder / metadata} describes no array: {type(error).__name__}: {error}") from None
