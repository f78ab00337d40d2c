"""A recipe of four quick stages."""

from pathlib import Path

import pytest

RECIPE = """
description = "small"

[inputs]
train = "some text"

[stages.tokens]
command = "tokenize"
with = { train = "{train}" }
settings = { tokenizer = "word" }

[stages.model]
command = "train"
from = "tokens"
preset = "tiny"
settings = { steps = 2, segment_length = 16, batch_tokens = 32, model = { layers = 1, width = 16, heads = 2 } }

[stages.datastore]
command = "build-datastore"
from = "model"

[stages.index]
command = "build-index"
from = "datastore"
settings = { index = "flat" }
"""


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, list[str]]:
    """The files that the recipe asks for."""
    path = tmp_path / "text.txt"
    path.write_text("the cat sees the hen and the dog sees the cow\n" * 20, encoding="utf-8")
    return {"train": [str(path)]}
