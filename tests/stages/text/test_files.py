import gzip
import lzma
from pathlib import Path

import pytest
import zstandard

from stages.errors import DataError
from stages.text.files import PYDOCS, file_digest, format_of, pydoc_topics
from stages.text.finding import find_files


def test_files_and_the_builtin_corpus_stand_for_themselves(tmp_path: Path) -> None:
    odd_name = tmp_path / "wiki.tokens"
    odd_name.write_text("a")
    assert find_files([PYDOCS, str(odd_name)]) == [PYDOCS, str(odd_name)]


def packed(name: str, content: bytes) -> bytes:
    packers = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}
    return packers.get(Path(name).suffix, bytes)(content)


def test_directories_are_searched_in_order_of_path(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.jsonl.zst", "a/b.txt.gz", "a.txt.xz", "notes.md", ".hidden.txt", ".git/x.txt"):
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
    assert sentence.startswith("3 of 12 files") and all(name in sentence for name in wrong)
    assert find_files([str(tmp_path / "latin.txt")]) == [str(tmp_path / "latin.txt")]  # its reader refuses it
    for number in range(9):
        (tmp_path / f"{number}.txt").write_bytes(b"")
    with pytest.raises(DataError, match=r"0\.txt \(empty\).* and 7 more"):
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
    for name, content in (wrong | {"good.txt.gz": good, "good.jsonl": b'{"text": "a", "body": 3}\n'}).items():
        (tmp_path / name).write_bytes(content)
    heard: list[str] = []
    found = find_files([str(tmp_path)], left_out=heard.append)
    assert [Path(path).name for path in found] == ["good.jsonl", "good.txt.gz"]
    (sentence,) = heard
    assert "broken.jsonl (line 2: no valid JSON" in sentence and "and 1 more" in sentence
    found = find_files([str(tmp_path)], column="body")
    assert [Path(path).name for path in found] == ["good.txt.gz", "without.jsonl"]


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.tex").write_text("x")
    with pytest.raises(DataError, match=r"holds no \.txt, \.md, .* \(also compressed: .*\.parquet or \.arrow file"):
        find_files([str(tmp_path)])
    with pytest.raises(DataError, match=r"nowhere\.txt does not exist"):
        find_files([str(tmp_path / "nowhere.txt")])
    with pytest.raises(DataError, match="no regular file"):
        find_files(["/dev/null"])
    with pytest.raises(DataError, match="empty name"):
        find_files([""])


@pytest.mark.parametrize(
    ("name", "format"), [("a.txt", "txt"), ("a.jsonl.xz", "jsonl"), ("a.tokens.gz", "txt"), (PYDOCS, "pydocs")]
)
def test_names_tell_the_format(name: str, format: str) -> None:
    assert format_of(name) == format


def test_pydocs_come_in_alphabetical_order() -> None:
    from pydoc_data.topics import topics

    texts = list(pydoc_topics())
    assert len(texts) == len(topics) > 50
    assert texts[0] == topics[min(topics)] and texts[-1] == topics[max(topics)]
    assert file_digest(PYDOCS) == file_digest(PYDOCS)


def test_a_folder_of_other_text_says_how_to_name_it(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "c.PNG", "d.PNG", "e.PNG", ".f.tex", "sub/g.tex"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\0" if name.endswith("PNG") else b"text\n")
    with pytest.raises(DataError) as caught:
        find_files([str(tmp_path)])
    assert str(caught.value).endswith(f" file; it has 2 .py files: name them ({tmp_path}/*.py).")
    (tmp_path / "a.py").unlink()
    (tmp_path / "b.py").unlink()
    with pytest.raises(DataError) as caught:
        find_files([str(tmp_path)])
    assert str(caught.value).endswith(f"it has 1 .tex file: name them ($(find {tmp_path} -name '*.tex')).")
    (tmp_path / "sub/g.tex").unlink()
    with pytest.raises(DataError, match=r"or \.arrow file\.$"):
        find_files([str(tmp_path)])
