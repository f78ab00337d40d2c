from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stages.text import spool as module
from stages.text.documents import ENDS_LINE, OPENS_DOCUMENT, MarkedPiece
from stages.text.spool import Spool, SpoolShard, TextRange, write_spool
from tests.oracles import text as oracle
from tests.stages.text.helpers import marked

TEXT = "eins\n\nzwölf drei\nvier\n\n fünf\nsechs"


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARD_CHARACTERS", 8)


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
    assert np.concatenate([pieces.marks for pieces in read]).tolist() == [p.marks for p in marked(TEXT)] * 2
    for shard, pieces in zip(shards, read, strict=True):
        assert shard.characters == sum(map(len, pieces.texts))
        assert shard.pieces == len(pieces.texts)
        assert shard.documents == len(pieces.where(OPENS_DOCUMENT))
        lengths, marks = spool.layout(shard.number)
        assert lengths.tolist() == list(map(len, pieces.texts))
        assert marks.tolist() == pieces.marks.tolist()


def test_part_of_a_shard(tmp_path: Path) -> None:
    shards = write(tmp_path, TEXT)
    whole, part = (Spool(tmp_path).pieces(r) for r in (TextRange(0, 0, shards[0].pieces), TextRange(0, 1, 2)))
    assert list(part.texts) == whole.texts[1:2]
    assert part.marks.tolist() == whole.marks[1:2].tolist()


def test_hashes_of_all_paragraphs_in_order(tmp_path: Path) -> None:
    write(tmp_path, TEXT, TEXT)
    expected = list(map(oracle.paragraph_hash, oracle.paragraphs(TEXT))) * 2
    assert Spool(tmp_path).hashes(0, 6).tolist() == expected
    assert Spool(tmp_path).hashes(2, 5).tolist() == expected[2:5]


def test_many_short_lines_make_no_large_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARD_CHARACTERS", 1000)
    monkeypatch.setattr(module, "SHARD_PIECES", 3)

    def lines() -> Iterator[MarkedPiece]:
        yield from (MarkedPiece("\n", ENDS_LINE) for _ in range(7))

    assert [s.pieces for s in write_spool(lines(), 0, lambda name: tmp_path / name)] == [3, 3, 1]
