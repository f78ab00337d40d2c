"""Translation as typed in a terminal: tokens of pairs, and a model of them."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.cli.conftest import made

WORDS = {
    "Hund": "dog",
    "Katze": "cat",
    "Mann": "man",
    "Haus": "house",
    "rot": "red",
    "alt": "old",
    "und": "and",
}


SIZES = (
    "--set",
    "model.width=16",
    "--set",
    "model.heads=2",
    "--set",
    "model.ffn_width=32",
    "--set",
    "model.dropout=0",
)


class Pairs(NamedTuple):
    """Files of pairs, and a store of their tokens and of a model that learnt them for six epochs."""

    folder: Path
    tokens: str
    model: str


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Word by word translations: 240 pairs to learn, 12 and 12 others."""
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("pairs")
    for split, count in (("train", 240), ("valid", 12), ("test", 12)):
        chosen = [random.choice(list(WORDS), random.integers(1, 6)).tolist() for _ in range(count)]
        (folder / f"{split}.de").write_text(
            "".join(f"{' '.join(line)}\n" for line in chosen), "utf-8"
        )
        english = (" ".join(WORDS[word] for word in line) for line in chosen)
        (folder / f"{split}.en").write_text("".join(f"{line}\n" for line in english), "utf-8")
    files = [
        word for split in ("train", "valid", "test") for word in (f"--{split}", folder / split)
    ]
    store = ("--store", folder / "store")
    tokens = made(
        "tokenize", "--source", "de", "--target", "en", "--tokenizer", "word", *files, *store
    )
    training = ("--backbone", "encoder-decoder", "--epochs", 6, "--batch-tokens", 128)
    return Pairs(folder, tokens, made("train", tokens, *training, *SIZES, *store))


@pytest.fixture
def prefix(pairs: Pairs, tmp_path: Path) -> Path:
    """Where a test has these files, and their artifacts in its store."""
    shutil.copytree(pairs.folder, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def tokens(pairs: Pairs, prefix: Path) -> str:
    return pairs.tokens


@pytest.fixture
def model(pairs: Pairs, prefix: Path) -> str:
    return pairs.model


def split_arrays(tokens: Any, split: str) -> tuple[list[list[int]], list[list[int]]]:
    """Source and target sentences."""
    group = tokens.zarr("tokens.zarr")

    def sentences(ids: str, offsets: str) -> list[list[int]]:
        borders = group[f"{split}/{offsets}"][:]
        return [part.tolist() for part in np.split(group[f"{split}/{ids}"][:], borders[1:-1])]

    return sentences("source_ids", "source_offsets"), sentences("ids", "doc_offsets")
