"""What people call documents."""

from pathlib import Path

import pytest

from stages.errors import UsageError
from stages.text.documents import NamedRun
from stages.updating.change import resolve_documents, spelled_numbers

NAMES = [
    NamedRun(2, "mary.txt"),
    NamedRun(1, None),
    NamedRun(1, "12"),
    NamedRun(2, "john.txt"),
    NamedRun(1, "mary.txt"),
]


def meant(*words: str) -> list[int]:
    return resolve_documents(words, NAMES, 7).tolist()


def test_documents_are_meant_by_number_range_and_name() -> None:
    assert meant("3", "1-2", "2") == [1, 2, 3]
    assert meant("mary.txt") == [0, 1, 6]
    assert meant("name:12", "6") == [3, 6]
    assert meant() == []


def test_a_file_holds_one_on_each_line(tmp_path: Path) -> None:
    file = tmp_path / "gone.txt"
    file.write_text("john.txt\n\n0-1\nname:12\n")
    assert meant(f"@{file}", "6") == [0, 1, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("mray.txt", r"No document is called 'mray.txt'; did you mean 'mary.txt'\?"),
        ("JOHN.rst.gz", r"did you mean 'john.txt'\?"),
        ("x", "No document is called 'x'; known are 'mary.txt', '12', 'john.txt'$"),
        ("7", "There is no document 7: the datastore has 0 to 6"),
        ("12", "There is no document 12: the datastore has 0 to 6"),
        ("2-1", "There is no document 2-1"),
        ("@/nowhere", "/nowhere, which names documents, cannot be read: No such file"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(word: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        meant(word)


def test_numbers_are_spelled_as_they_are_read() -> None:
    chosen = resolve_documents(["0-2", "4", "6"], NAMES, 7)
    assert spelled_numbers(chosen) == ("0-2", "4", "6")
    assert resolve_documents(spelled_numbers(chosen), (), 7).tolist() == chosen.tolist()


def test_names_in_a_file_stand_on_lines_ended_by_line_feeds_alone(tmp_path: Path) -> None:
    names = [NamedRun(1, "a\x0cb.txt"), NamedRun(1, "c\u2028d.txt"), NamedRun(1, "e.txt")]
    (tmp_path / "names").write_text("a\x0cb.txt\nc\u2028d.txt\r\n\n", newline="")
    assert resolve_documents((f"@{tmp_path / 'names'}",), names, 3).tolist() == [0, 1]
