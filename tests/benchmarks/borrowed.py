"""Artifacts of somebody's store, read in a store that is thrown away: nothing is written into
theirs.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import STAGES
from stages.artifacts.stage import Job
from stages.artifacts.store import Store
from stages.text.tokens import open_split
from tests.benchmarks.artificial import Artificial, ArtificialConfig, artificial

SHARD = 1 << 24


@contextmanager
def borrowed(root: Path | str) -> Iterator[Store]:
    """A store in which all artifacts of another stand, as links."""
    theirs = Store(root)
    with tempfile.TemporaryDirectory() as folder:
        for reference in theirs.references():
            link = Path(folder, reference)
            link.parent.mkdir(exist_ok=True)
            link.symlink_to((theirs.root / reference).resolve(), target_is_directory=True)
        yield Store(folder)


class Excerpt(Artificial):
    """The first tokens of splits of other tokens, of each as many as its settings say; role: `of`."""

    name = "excerpt"
    kind = "tokens"

    def run(self, job: Job[ArtificialConfig]) -> dict[str, Any]:
        source = job.inputs["of"]
        shutil.copy(source.file("tokenizer.json"), job.draft.add("tokenizer.json"))
        splits = {}
        for name, count in job.config.splits.items():
            split, known = (
                open_split(source.zarr("tokens.zarr"), name),
                source.metrics["splits"][name],
            )
            count = min(count, known["tokens"])
            ends = _until(split.paragraph_ends, count)
            arrays = {
                "ids": np.asarray(split.ids[:count]),
                "doc_offsets": _until(split.doc_offsets, count),
                "paragraph_ends": ends,
                "paragraph_hashes": np.asarray(split.paragraph_hashes[: len(ends)]),
            }
            for array, values in arrays.items():
                layout = ArrayLayout(
                    f"tokens.zarr/{name}/{array}", values.shape, values.dtype, SHARD
                )
                job.draft.write_whole(layout, values)
            units = dict.fromkeys(("tokens", "characters", "bytes", "words"), count)
            splits[name] = {
                **known,
                **units,
                "documents": len(arrays["doc_offsets"]) - 1,
                "paragraphs": len(ends),
            }
        return {**source.metrics, "splits": splits}


STAGES.targets |= {one.name: f"{__name__}:{one.__name__}" for one in (Excerpt,)}


def excerpt(store: Store, tokens: Artifact, **splits: int) -> Artifact:
    """Tokens of which only the first are there."""
    return artificial(store, Excerpt(), {"of": tokens}, splits=splits)


def _until(offsets: Any, count: int) -> np.ndarray:
    """Those that lie before a token, and it."""
    all_of_them = np.asarray(offsets[:])
    return np.append(all_of_them[all_of_them < count], count)
