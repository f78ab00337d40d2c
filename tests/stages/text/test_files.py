"""Files by name, their text in blocks, and lines cut into pieces."""

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import DataError
from stages.text import files as blocks
from stages.text.files import PYDOCS, file_digest, format_of, pieces, pydoc_topics, text_blocks
from stages.tokenization.corpora import find_files
from tests.builders.limits import limit
from tests.oracles import text as oracle
from tests.stages.text.helpers import examples


def test_files_and_the_builtin_corpus_stand_for_themselves(tmp_path: Path) -> None:
    odd_name = tmp_path / "wiki.tokens"
    odd_name.write_text("a")
    assert find_files([PYDOCS, str(odd_name)]) == [PYDOCS, str(odd_name)]


def test_a_pattern_that_no_shell_has_expanded_is_matched(tmp_path: Path) -> None:
    for name in ("t/b.txt", "t/a.txt", "t/c.md", "t/sub/d.txt", "odd[1].txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text\n")
    found = find_files([f"{tmp_path}/t/*.txt", f"{tmp_path}/odd[1].txt", f"{tmp_path}/t/**"])
    inside = ["t/a.txt", "t/b.txt", "odd[1].txt", "t/a.txt", "t/b.txt", "t/c.md", "t/sub/d.txt"]
    assert [str(Path(path).relative_to(tmp_path)) for path in found] == inside
    (tmp_path / "to*nothing").symlink_to("nowhere")
    for nothing in ("t/*.rst", "no\0where/*", "to*nothing"):
        with pytest.raises(DataError):
            find_files([f"{tmp_path}/{nothing}"])


def packed(name: str, content: bytes) -> bytes:
    packers = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}
    return packers.get(Path(name).suffix, bytes)(content)


def test_directories_are_searched_in_order_of_path(tmp_path: Path) -> None:
    for name in (
        "b.txt",
        "a/z.jsonl.zst",
        "a/b.txt.gz",
        "a.txt.xz",
        "notes.md",
        ".hidden.txt",
        ".git/x.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(packed(name, b'{"text": "x"}'))
    found = [str(Path(path).relative_to(tmp_path)) for path in find_files([str(tmp_path)])]
    assert found == ["a/b.txt.gz", "a/z.jsonl.zst", "a.txt.xz", "b.txt"]


def test_markdown_and_rest_are_text_but_what_describes_records_is_not(tmp_path: Path) -> None:
    for name in ("README.md", "guide/a.rst", "guide/b.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text\n")
    found = [str(Path(path).relative_to(tmp_path)) for path in find_files([str(tmp_path)])]
    assert found == ["README.md", "guide/a.rst", "guide/b.txt"]
    (tmp_path / "guide/c.jsonl").write_text('{"text": "a"}\n')
    found = [str(Path(path).relative_to(tmp_path)) for path in find_files([str(tmp_path)])]
    assert found == ["guide/b.txt", "guide/c.jsonl"]


def test_a_bad_file_among_others_is_left_out_and_named(tmp_path: Path) -> None:
    wrong = {
        "empty.txt": b"",
        "latin.txt": "Gr\u00fc\u00dfe".encode("latin-1"),
        "nul.txt": b"a\0b",
    }
    for name, content in (wrong | {f"{n}.txt": b"text\n" for n in range(9)}).items():
        (tmp_path / name).write_bytes(content)
    heard: list[str] = []
    found = find_files([str(tmp_path)], left_out=heard.append)
    assert [Path(path).stem for path in found] == list("012345678")
    (sentence,) = heard
    assert (
        sentence.startswith("3 of 12")
        and all(name in sentence for name in wrong)
        and "iconv" in sentence
    )
    assert find_files([str(tmp_path / "latin.txt")]) == [
        str(tmp_path / "latin.txt")
    ]  # its reader refuses it
    for number in range(9):
        (tmp_path / f"{number}.txt").write_bytes(b"")
    with pytest.raises(DataError, match=r"0\.txt \(empty\).* and 7 more"):
        find_files([str(tmp_path)])


def test_a_folder_of_other_files_is_told_with_their_pattern(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("text\n")
    (tmp_path / "a.py").write_text("a = 1\n")
    heard: list[str] = []
    find_files([str(tmp_path)], left_out=heard.append)
    assert heard == [], "no more code than text"
    (tmp_path / "b.py").write_text("b = 1\n")
    (read,) = find_files([str(tmp_path)], left_out=heard.append)
    (sentence,) = heard
    assert Path(read).name == "README.md"
    assert "also has 2 .py files" in sentence and f"{tmp_path}/**/*.py" in sentence


def test_notebooks_of_a_folder_are_not_advised_as_text(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text('{"cells": []}')
    with pytest.raises(
        DataError, match=r"1 \.ipynb file: a\.ipynb is a notebook, not text; .*nbconvert"
    ):
        find_files([str(tmp_path)])


def test_bad_records_and_damaged_files_among_others_are_left_out_and_named(tmp_path: Path) -> None:
    good = gzip.compress(b"text\n" * 100)
    wrong = {
        "broken.jsonl": b'{"text": "a"}\n{"text": \n',
        "without.jsonl": b'{"body": "a"}\n',
        "cut.txt.gz": good[:-4],
        "damaged.txt.xz": b"\xfd7zXZ\0 no more",
        "empty.txt.gz": gzip.compress(b""),
        "none.parquet": b"PAR1",
    }
    for name, content in (
        wrong | {"good.txt.gz": good, "good.jsonl": b'{"text": "a", "body": 3}\n'}
    ).items():
        (tmp_path / name).write_bytes(content)
    heard: list[str] = []
    found = find_files([str(tmp_path)], left_out=heard.append)
    assert [Path(path).name for path in found] == ["good.jsonl", "good.txt.gz"]
    (sentence,) = heard
    assert "broken.jsonl (line 2" in sentence and "and 1 more" in sentence
    found = find_files([str(tmp_path)], column="body")
    assert [Path(path).name for path in found] == ["good.txt.gz", "without.jsonl"]


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.tex").write_text("x")
    with pytest.raises(
        DataError, match=r"holds no \.txt, \.md, .* \(also compressed: .*\.parquet or \.arrow file"
    ):
        find_files([str(tmp_path)])
    with pytest.raises(DataError, match=r"nowhere\.txt does not exist"):
        find_files([str(tmp_path / "nowhere.txt")])
    with pytest.raises(DataError, match="no regular file"):
        find_files(["/dev/null"])
    with pytest.raises(DataError, match="empty name"):
        find_files([""])


@pytest.mark.parametrize(
    ("name", "format"),
    [("a.txt", "txt"), ("a.jsonl.xz", "jsonl"), ("a.tokens.gz", "txt"), (PYDOCS, "pydocs")],
)
def test_names_tell_the_format(name: str, format: str) -> None:
    assert format_of(name) == format


def test_pydocs_come_in_alphabetical_order() -> None:
    from pydoc_data.topics import topics

    texts = list(pydoc_topics().values())
    assert len(texts) == len(topics) > 50
    assert texts[0] == topics[min(topics)] and texts[-1] == topics[max(topics)]
    assert file_digest(PYDOCS) == file_digest(PYDOCS)


def test_a_folder_of_other_text_says_how_to_name_it(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "c.PNG", "d.PNG", "e.PNG", ".f.tex", "sub/g.tex"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\0" if name.endswith("PNG") else b"text\n")
    with pytest.raises(DataError) as caught:
        find_files([str(tmp_path)])
    assert " 2 .py " in str(caught.value) and f"('{tmp_path}/**/*.py')" in str(caught.value)
    assert len(find_files([f"{tmp_path}/**/*.py"])) == 2
    (tmp_path / "a.py").unlink()
    (tmp_path / "b.py").unlink()
    with pytest.raises(DataError) as caught:
        find_files([str(tmp_path)])
    assert " 1 .tex " in str(caught.value) and f"('{tmp_path}/**/*.tex')" in str(caught.value)
    assert find_files([f"{tmp_path}/**/*.tex"]) == [f"{tmp_path}/sub/g.tex"]
    (tmp_path / "sub/a.tex").write_bytes(b"\0\0")
    with pytest.raises(DataError, match=r" 2 \.tex "):
        find_files([str(tmp_path)])
    (tmp_path / "sub/a.tex").unlink()
    (tmp_path / "sub/g.tex").unlink()
    with pytest.raises(DataError, match=r"or \.arrow file\.$"):
        find_files([str(tmp_path)])


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
    limit(monkeypatch, raw_block=block)
    monkeypatch.setattr(blocks, "COMPRESSED_BLOCK", block)
    assert read(write(tmp_path, TEXT.encode(), suffix)) == TEXT


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("block", [5, 1 << 18])
def test_members_follow_each_other(
    suffix: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "COMPRESSED_BLOCK", block)
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(
        COMPRESS[suffix](b"one\n") + COMPRESS[suffix](b"two\n") + b"\0" * 512 * (suffix != ".zst")
    )
    assert read(path) == "one\ntwo\n"


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_text_that_expands_a_thousand_times_comes_in_small_blocks(
    suffix: str, tmp_path: Path
) -> None:
    path = write(tmp_path, b"\n" * 3_000_000, suffix)
    found = [len(block) for block in text_blocks(str(path), file_digest(str(path)))]
    assert sum(found) == 3_000_000 and max(found) <= blocks.RAW_BLOCK


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("missing", [1, 9, 300])
def test_truncated_files_are_refused(suffix: str, missing: int, tmp_path: Path) -> None:
    path = write(tmp_path, bytes(Random(0).choices(range(33, 127), k=2000)), suffix)
    data = path.read_bytes()[:-missing]
    path.write_bytes(data)
    with pytest.raises(
        DataError, match=rf"a\.txt\{suffix} is truncated: it ends at byte {len(data)},"
    ):
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
    with pytest.raises(
        DataError,
        match=r"is UTF-16: it begins with its byte order mark; .* iconv -f UTF-16 -t UTF-8",
    ):
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
    limit(monkeypatch, raw_block=block)
    with pytest.raises(DataError, match=message):
        read(write(tmp_path, data))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"%PDF-1.4\nall of it in ASCII\n", "a PDF"),
        (b"PK\x03\x04\0", "a zip, Word or EPUB file"),
        (b"\x89PNG\r\n", "a picture"),
        (b"\x1f\x8b\x08\0", "a gzip file"),
    ],
)
@pytest.mark.parametrize(("suffix", "where"), [("", ""), (".gz", " of its decompressed text")])
def test_books_that_are_no_text_are_named(
    data: bytes, kind: str, suffix: str, where: str, tmp_path: Path
) -> None:
    with pytest.raises(
        DataError, match=f"is {kind}.*, not plain text{where}; save it as a text file"
    ):
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


texts = st.text(st.sampled_from("ab \n\t\r\u2028é"), max_size=200)


@examples
@given(texts, st.integers(1, 30))
def test_lines_are_those_of_newlines_alone_whatever_the_blocks(text: str, block: int) -> None:
    found = list(pieces(text[i : i + block] for i in range(0, len(text), block)))
    assert [piece.text for piece in found] == oracle.lines(text)
    assert all(piece.starts_line and piece.ends_line for piece in found)


@examples
@given(texts, st.integers(1, 30), st.integers(1, 40))
def test_long_lines_are_cut_alike_whatever_the_blocks(text: str, block: int, longest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, longest_piece=longest)
        found = list(pieces(text[i : i + block] for i in range(0, len(text), block)))
        assert found == list(pieces([text]))
    assert "".join(piece.text for piece in found) == text
    assert all(len(piece.text.rstrip("\n")) <= longest for piece in found)
    assert sum(piece.ends_line for piece in found) == len(oracle.lines(text))


def test_the_cut_comes_before_the_last_single_space_in_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit(monkeypatch, longest_piece=10)
    assert [p.text for p in pieces(["aa bb cc  dd eee\n"])] == ["aa bb", " cc  dd", " eee\n"]
    assert [p.text for p in pieces(["x" * 25])] == ["x" * 10, "x" * 10, "x" * 5]
