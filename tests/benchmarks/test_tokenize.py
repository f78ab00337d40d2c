"""What `bench_tokenize` compares gives the same ids."""

import re
from pathlib import Path

import numpy as np

from tests.benchmarks.bench_tokenize import Run, library, ours, table, write_text


def test_the_library_gives_the_ids_that_ours_stores(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    write_text(text, 0.01)
    vocabulary = (
        ours(text, tmp_path / "made", None, tokenizer="bpe", vocab_size=300) / "tokenizer.json"
    )
    library(text, tmp_path, vocabulary)
    import zarr

    made = ours(text, tmp_path / "given", vocabulary, tokenizer="given")
    stored = np.asarray(zarr.open_group(made / "tokens.zarr", mode="r")["train/ids"])
    np.testing.assert_array_equal(stored[:-1], np.load(tmp_path / "ids.npy"))


def test_figures_are_compared_on_the_last_text() -> None:
    one, two = Run(1.0, 2.0, 30.0), Run(2.0, 3.0, 33.0)
    ways = ("floor", "peer", "ours", "two workers")
    lines = list(
        table(
            {"small": dict.fromkeys(ways, one), "large": {**dict.fromkeys(ways, one), "ours": two}}
        )
    )
    (speed,) = (line for line in lines if line.startswith("speed, ours / peer"))
    assert re.findall(r"\d\.\d+", f"{speed} {lines[-1]}") == ["2.00", "1.50", "1.100"]
