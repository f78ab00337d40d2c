"""Commands open as many files as there are artifacts, not more for each; seconds:
`tests.benchmarks.bench_store`.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memlm_cli.lineage_tree import lineage_tree, parents_first
from tests.benchmarks.bench_store import CHAIN, fill
from tests.cli.conftest import Memlm

_counting: list[list[str]] = []


def _opened(event: str, values: tuple[Any, ...]) -> None:
    if event == "open":
        for files in _counting:
            files.append(str(values[0]))


sys.addaudithook(_opened)


@contextmanager
def opened_below(folder: Path) -> Iterator[list[str]]:
    """Files of a folder that are opened meanwhile."""
    files: list[str] = []
    _counting.append(files)
    yield files
    _counting.remove(files)
    files[:] = [file for file in files if file.startswith(str(folder))]


@pytest.mark.parametrize(
    "command",
    [
        ("list",),
        ("list", "model"),
        ("graph",),
        ("gc", "--dry-run", "--unnamed"),
        ("list", "--json"),
    ],
)
def test_files_opened_grow_with_artifacts(
    memlm: Memlm, tmp_path: Path, command: tuple[str, ...]
) -> None:
    counts = []
    for artifacts in (20, 40):
        fill(tmp_path / str(artifacts), artifacts)
        with opened_below(tmp_path) as files:
            assert memlm("artifacts", *command, "--store", tmp_path / str(artifacts)).code == 0
        counts.append(len(files))
    assert counts[1] - counts[0] <= 2 * 20


@pytest.mark.parametrize("artifacts", [5, 100])
def test_a_reference_by_name_opens_one_name(memlm: Memlm, tmp_path: Path, artifacts: int) -> None:
    fill(tmp_path / "store", artifacts)
    with opened_below(tmp_path / "store" / "names") as files:
        assert memlm("artifacts", "show", "model/name-0").code == 4  # its files are not there
    assert len(files) == 1


def test_a_deep_lineage_is_drawn(memlm: Memlm, tmp_path: Path) -> None:
    fill(tmp_path / "store", 2 * len(CHAIN))
    lines = memlm("artifacts", "graph").out.splitlines()
    assert [line.index("0" * 11) for line in lines[: len(CHAIN)]] == [7, 10, 18, 18, 23]


@dataclass(frozen=True)
class Node:
    """An artifact of a made-up lineage."""

    reference: str
    parents: set[str]

    @property
    def needed(self) -> set[str]:
        return self.parents


def test_lineages_of_any_depth_and_crafted_circles_are_put_in_order() -> None:
    chain = [Node(f"model/{n}", {f"model/{n - 1}"}) for n in range(3000)]
    assert parents_first(chain[::-1]) == chain
    circle = [Node(f"model/{n}", {f"model/{(n + 1) % 3}"}) for n in range(3)]
    assert {a.reference for a in parents_first(circle)} == {a.reference for a in circle}
    assert len(lineage_tree(circle, {}).splitlines()) == 3
