import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import zstandard

from stages.errors import DataError
from stages.text import blocks
from stages.text.blocks import text_blocks
from stages.text.files import file_digest

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}
TEXT = "Grüße, 世界 🌍\r\nzweite Zeile\u2028noch eine\n" * 50


def read(path: Path) -> str:
    return "".join(text_blocks(str(path), file_digest(str(path))))


def write(folder: Path, data: bytes, suffix: str = "") -> Path:
    path = folder / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](data))
    return path


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("block", [1, 7, 1 << 18])
def test_text_is_read_whole_whatever_the_block_size(
    suffix: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "RAW_BLOCK", block)
    monkeypatch.setattr(blocks, "COMPRESSED_BLOCK", block)
    assert read(write(tmp_path, TEXT.encode(), suffix)) == TEXT


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("block", [5, 1 << 18])
def test_members_follow_each_other(suffix: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "COMPRESSED_BLOCK", block)
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](b"one\n") + COMPRESS[suffix](b"two\n") + b"\0" * 512 * (suffix != ".zst"))
    assert read(path) == "one\ntwo\n"


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_text_that_expands_a_thousand_times_comes_in_small_blocks(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path, b"\n" * 3_000_000, suffix)
    found = [len(block) for block in text_blocks(str(path), file_digest(str(path)))]
    assert sum(found) == 3_000_000 and max(found) <= blocks.RAW_BLOCK


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("missing", [1, 9, 300])
def test_truncated_files_are_refused(suffix: str, missing: int, tmp_path: Path) -> None:
    path = write(tmp_path, bytes(Random(0).choices(range(33, 127), k=2000)), suffix)
    data = path.read_bytes()[:-missing]
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"a\.txt\{suffix} is truncated: it ends at byte {len(data)},"):
        read(path)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_corrupt_files_are_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(b"this was never compressed")
    with pytest.raises(DataError, match=rf"a\.txt\{suffix} is no intact \{suffix} file"):
        read(path)


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    assert read(write(tmp_path, b"\xef\xbb\xbfa\xef\xbb\xbf")) == "a\ufeff"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["abc", "\u0416\u0416"])
def test_utf_16_is_called_so(encoding: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is UTF-16: it begins with its byte order mark; .* iconv -f UTF-16 -t UTF-8"):
        read(write(tmp_path, f"\ufeff{text}".encode(encoding)))


@pytest.mark.parametrize("block", [1, 4, 1 << 18])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"good\n\xff\xfe bad", r"not UTF-8 at byte 5:"),
        ("gut ü".encode() + b"\xc3", r"not UTF-8 at byte 6:"),
        (b"latin caf\xe9 au lait", r"not UTF-8 at byte 9:"),
        (b"abc\0def", r"looks binary: it has a zero byte \(NUL\) at byte 3;"),
    ],
)
def test_the_byte_that_is_no_text_is_named(
    block: int, data: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "RAW_BLOCK", block)
    with pytest.raises(DataError, match=message):
        read(write(tmp_path, data))


@pytest.mark.parametrize(
    ("data", "kind"), [(b"%PDF-1.4\nall of it in ASCII\n", "a PDF"), (b"PK\x03\x04\0", "a zip, Word or EPUB file")]
)
@pytest.mark.parametrize(("suffix", "where"), [("", ""), (".gz", " of its decompressed text")])
def test_books_that_are_no_text_are_named(data: bytes, kind: str, suffix: str, where: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"is {kind}, not plain text{where}; save it as a text file"):
        read(write(tmp_path, data, suffix))


def test_offsets_of_compressed_files_are_those_of_their_text(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="at byte 1 of its decompressed text"):
        read(write(tmp_path, b"a\xff", ".gz"))


def test_a_file_that_changes_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, b"before")
    digest = file_digest(str(path))
    path.write_bytes(b"after")
    with pytest.raises(DataError, match="changed while it was being read"):
        list(text_blocks(str(path), digest))
