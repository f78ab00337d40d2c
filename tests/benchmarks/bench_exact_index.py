"""Build, change and search an exact index of a made text within little memory: `… --tokens 20
--limit 400`.

The limit is of what a process allocates (RLIMIT_DATA); what is mapped from files is not counted.
Words follow Zipf's law, and a tenth of the text stands there twice. The changed text lacks the
first tenth, and has another one behind.
"""

import argparse
import resource
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution, Job
from stages.artifacts.store import Store
from stages.index import BuildIndex, IndexConfig
from stages.suffixes.sorting import open_contexts
from stages.suffixes.text import Text
from tests.benchmarks.timing import timed
from tests.stages.small_store import SmallTokens, TokensConfig

T = TypeVar("T")
VOCABULARY, DOCUMENT, QUERIES, AT_ONCE = 32_000, 1_000, 20_000, 1 << 20


class MadeTokens(SmallTokens):
    """A split `train` of documents of the same length; `seed` is how many are left out, of a tenth
    more.
    """

    def run(self, job: Job[TokensConfig]) -> dict[str, Any]:
        tokens, first = job.config.lengths["valid"], job.config.seed * DOCUMENT
        chances = 1 / np.arange(2, VOCABULARY + 2)
        random = np.random.default_rng(0)
        bounds = np.cumsum(chances / chances.sum())
        ids = np.searchsorted(bounds, random.random(tokens + tokens // 10, np.float32)).astype(
            np.uint16
        )
        ids[tokens // 2 : tokens // 2 + tokens // 10] = ids[
            tokens // 4 : tokens // 4 + tokens // 10
        ]
        ends = np.arange(DOCUMENT, tokens + 1, DOCUMENT)
        arrays = {
            "ids": ids[first : first + tokens],
            "doc_offsets": np.append(0, ends),
            "paragraph_ends": ends,
            "paragraph_hashes": ends.astype(np.uint64),
        }
        for name, values in arrays.items():
            layout = ArrayLayout(f"tokens.zarr/train/{name}", values.shape, values.dtype, AT_ONCE)
            job.draft.write_whole(layout, values)
        figures = super().run(
            replace(job, config=job.config.model_copy(update={"lengths": {"valid": 9}}))
        )
        counts = dict.fromkeys(("tokens", "words", "characters", "bytes"), tokens) | {
            "documents": len(ends)
        }
        splits = figures["splits"] | {"train": {**counts, "unknown_rate": 0.0}}
        return figures | {"vocabulary_size": VOCABULARY, "splits": splits}


def main() -> int:
    """Print what each step takes of the processor and the clock; the changed index must be the one
    built anew.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=float, default=2, help="millions")
    parser.add_argument("--limit", type=int, help="MB that the process may allocate")
    asked = parser.parse_args()
    tokens = int(1e6 * asked.tokens) // (10 * DOCUMENT) * 10 * DOCUMENT
    with TemporaryDirectory(prefix="memlm-exact-") as folder:
        store = Store(Path(folder, "store"))
        first, second = (made_text(store, tokens, seed) for seed in (0, tokens // DOCUMENT // 10))
        if asked.limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (asked.limit << 20, asked.limit << 20))
        before = shown(f"{tokens:,} tokens sorted", lambda: built(store, first))
        anew = shown("the changed text sorted anew", lambda: built(store, second))
        changed = shown("its index changed", lambda: built(store, second, before))
        arrays = [name for name in anew.manifest.files if name.startswith("contexts")]
        assert all(anew.manifest.files[name] == changed.manifest.files[name] for name in arrays)
        contexts = shown("opened", lambda: open_contexts(changed))
        places = np.random.default_rng(1).integers(0, tokens, QUERIES)
        asking = Text(contexts.text.ids, contexts.text.lengths, VOCABULARY)
        shown(
            f"{QUERIES:,} contexts, 64 matches each",
            lambda: contexts.best(contexts.locate(asking, places), 64),
        )
    return 0


def made_text(store: Store, tokens: int, left_out: int) -> Artifact:
    config = TokensConfig(lengths={"valid": tokens}, seed=left_out)
    return make(MadeTokens(), config, {}, store, Execution()).artifact


def built(store: Store, tokens: Artifact, before: Artifact | None = None) -> Artifact:
    references = {
        "source": tokens.reference,
        "update": None if before is None else before.reference,
    }
    return make(
        BuildIndex(), IndexConfig(index="exact"), references, store, Execution("cpu")
    ).artifact


def shown(name: str, call: Callable[[], T]) -> T:
    taken, out = timed(call)
    print(f"{name}: {taken.cpu:.1f} s of processor, {taken.wall:.1f} s", flush=True)
    return out


if __name__ == "__main__":
    sys.exit(main())
