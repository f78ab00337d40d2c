"""Small work as typed in a terminal, and the artifacts that it makes."""

from pathlib import Path

import pytest

from tests.cli.conftest import Memlm

SMALL = [
    *("--steps", "2", "--segment-length", "16", "--batch-tokens", "32"),
    *("--set", "model.layers=1", "--set", "model.width=16", "--set", "model.heads=2"),
]


class Lineage:
    """References of the first three stages on one text."""

    def __init__(self, memlm: Memlm, text: Path) -> None:
        self.tokens = memlm("tokenize", "--train", text, "--name", "small").reference
        self.model = memlm("train", self.tokens, *SMALL).reference
        self.datastore = memlm("build-datastore", self.model).reference


@pytest.fixture
def made(memlm: Memlm, text: Path) -> Lineage:
    return Lineage(memlm, text)
