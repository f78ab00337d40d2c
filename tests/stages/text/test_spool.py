"""Text on disk between two passes, and where it is cut into splits."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import DataError
from stages.text.config import Documents
from stages.text.documents import ENDS_LINE, OPENS_DOCUMENT, MarkedPiece
from stages.text.spool import Spool, SpoolShard, TextRange, cut_by_shares, write_spool
from tests.builders.limits import limit
from tests.oracles import text as oracle
from tests.stages.text.helpers import examples, marked

TEXT = "eins\n\nzwölf drei\nvier\n\n fünf\nsechs"


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, shard_characters=8)


def write(folder: Path, *texts: str) -> list[SpoolShard]:
    shards: list[SpoolShard] = []
    for text in texts:
        shards += write_spool(iter(marked(text)), len(shards), lambda name: folder / name)
    return shards


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    shards = write(tmp_path, TEXT, TEXT)
    spool = Spool(tmp_path)
    read = [spool.pieces(TextRange(shard.number, 0, shard.pieces)) for shard in shards]
    assert [shard.number for shard in shards] == list(range(len(shards))) and len(shards) > 4
    assert [text for pieces in read for text in pieces.texts] == oracle.lines(TEXT) * 2
    assert (
        np.concatenate([pieces.marks for pieces in read]).tolist()
        == [p.marks for p in marked(TEXT)] * 2
    )
    for shard, pieces in zip(shards, read, strict=True):
        assert shard.characters == sum(map(len, pieces.texts))
        assert shard.pieces == len(pieces.texts)
        assert shard.documents == len(pieces.where(OPENS_DOCUMENT))
        lengths, marks = spool.layout(shard.number)
        assert lengths.tolist() == list(map(len, pieces.texts))
        assert marks.tolist() == pieces.marks.tolist()


def test_part_of_a_shard(tmp_path: Path) -> None:
    shards = write(tmp_path, TEXT)
    whole, part = (
        Spool(tmp_path).pieces(r) for r in (TextRange(0, 0, shards[0].pieces), TextRange(0, 1, 2))
    )
    assert list(part.texts) == whole.texts[1:2]
    assert part.marks.tolist() == whole.marks[1:2].tolist()


def test_hashes_of_all_paragraphs_in_order(tmp_path: Path) -> None:
    write(tmp_path, TEXT, TEXT)
    expected = list(map(oracle.paragraph_hash, oracle.paragraphs(TEXT))) * 2
    assert Spool(tmp_path).hashes(0, 6).tolist() == expected
    assert Spool(tmp_path).hashes(2, 5).tolist() == expected[2:5]


def test_many_short_lines_make_no_large_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, shard_characters=1000, shard_pieces=3)

    def lines() -> Iterator[MarkedPiece]:
        yield from (MarkedPiece("\n", ENDS_LINE) for _ in range(7))

    assert [s.pieces for s in write_spool(lines(), 0, lambda name: tmp_path / name)] == [3, 3, 1]


def split_texts(
    folder: Path, documents: list[str], shares: list[float], given: Documents | None = None
) -> list[str]:
    """The text of each split of documents of one line each."""
    pieces = iter(marked("".join(documents), "line"))
    shards = list(write_spool(pieces, 0, lambda name: folder / name))
    spool = Spool(folder)
    parts = cut_by_shares(spool, shards, shares, given)
    return ["".join("".join(spool.pieces(r).texts) for r in part) for part in parts]


def slow_split(documents: list[str], shares: list[float]) -> list[str]:
    """Try every legal cut, the first of the nearest wins."""
    total, cuts = len("".join(documents)), [0]
    for part in range(1, len(shares)):
        target = sum(shares[:part]) * total
        legal = range(cuts[-1] + 1, len(documents) - len(shares) + part + 1)
        cuts.append(min(legal, key=lambda cut: abs(len("".join(documents[:cut])) - target)))
    bounds = [*cuts, len(documents)]
    return ["".join(documents[a:b]) for a, b in itertools.pairwise(bounds)]


@examples
@given(
    lengths=st.lists(st.integers(1, 30), min_size=3, max_size=15),
    shares=st.sampled_from(
        [[0.9, 0.05, 0.05], [0.8, 0.1, 0.1], [0.25, 0.25, 0.5], [0.05, 0.05, 0.9]]
    ),
    shard=st.integers(1, 60),
)
def test_cuts_are_the_nearest_legal_ones(
    lengths: list[int], shares: list[float], shard: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    documents = [chr(97 + i) * length + "\n" for i, length in enumerate(lengths)]
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, shard_characters=shard)
        found = split_texts(tmp_path_factory.mktemp("spool"), documents, shares)
    assert found == slow_split(documents, shares)


def test_fewer_documents_than_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="The text has 2 documents, too few for 3 splits"):
        split_texts(tmp_path, ["a\n", "b\n"], [0.8, 0.1, 0.1])
    with pytest.raises(DataError, match="The text has 1 document, too few"):
        split_texts(tmp_path, ["a\n"], [0.8, 0.1, 0.1])


@pytest.mark.parametrize(
    ("given", "advised"),
    [
        (
            None,
            "give more files, let paragraphs or lines be documents (--documents blank-line, --documents line), or",
        ),
        ("blank-line", "give more files, let lines be documents (--documents line), or"),
        ("line", "give more text, or"),
        ("jsonl", "give more files, or"),
    ],
)
def test_only_other_documents_than_those_that_are_given_are_advised(
    given: Documents | None, advised: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as caught:
        split_texts(tmp_path, ["a\n"], [0.8, 0.1, 0.1], given)
    assert f"splits: {advised} name" in str(caught.value)
