"""Files, Parquet, folders laid out as data sets: what becomes which split, and what is refused."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from stages.artifacts.artifact import Artifact
from stages.errors import DataError, UsageError
from stages.text.config import TokenizeConfig
from stages.text.documents import DocumentNames
from stages.tokenization.corpora import named_files, task_files
from stages.tokenization.hub import parse_data_set
from tests.builders.hub_corpora import CARD, TRAIN
from tests.builders.tokenizing import run, tokenize

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("datasets")


def table(path: Path, texts: Sequence[str | None], column: str = "text", **others: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table({column: texts, **others}), path)
    return str(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as it comes from the hub."""
    root = tmp_path / "wiki"
    for number, texts in enumerate(TRAIN):
        table(root / f"raw/train-0{number}.parquet", texts)
    table(root / "raw/valid-00.parquet", ["the mat\n"])
    (root / "lines").mkdir()
    lines = [json.dumps({"content": text, "text": 0}) + "\n" for text in ("a b", "c")]
    (root / "lines/part.jsonl").write_text("".join(lines))
    (root / "README.md").write_text(CARD)
    return root


def sizes(artifact: Artifact) -> dict[str, tuple[int, int]]:
    """Documents and tokens of each split."""
    return {name: (s["documents"], s["tokens"]) for name, s in artifact.metrics["splits"].items()}


def test_a_data_set_has_the_splits_of_its_card(folder: Path, tmp_path: Path) -> None:
    artifact = tokenize(tmp_path / "store", {"source": [f"hf:{folder}/raw"]})
    assert sizes(artifact) == {"train": (3, 12), "valid": (1, 3)}
    assert DocumentNames.read(artifact.path, "train").of(1) == "train-00.parquet:3"


def test_its_id_is_that_of_the_same_files(folder: Path, tmp_path: Path) -> None:
    named = tokenize(tmp_path / "store", {"source": [f"hf:{folder}/raw"], "train": None})
    files = {split: sorted(map(str, folder.glob(f"raw/{split}-*"))) for split in ("train", "valid")}
    outcome = run(tmp_path / "store", files)
    assert (outcome.status, outcome.artifact.id) == ("cached", named.id)


def test_rows_are_joined_where_documents_are_found_in_them(folder: Path, tmp_path: Path) -> None:
    artifact = tokenize(tmp_path / "store", {"train": [f"hf:{folder}/raw"]}, documents="wikitext")
    text = tmp_path / "joined.txt"
    text.write_text("\n = One = \n\nthe cat sat \n")
    (tmp_path / "rest.txt").write_text("on the mat \n")
    files = {"train": [str(text), str(tmp_path / "rest.txt")]}
    assert artifact.metrics == tokenize(tmp_path / "store", files, documents="wikitext").metrics


@pytest.mark.parametrize("cut", [20, 200, 600])
def test_nothing_is_left_of_a_table_that_is_cut_short(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    with pa.ipc.new_stream(path, pa.schema([("text", pa.string())])) as stream:
        stream.write_table(pa.table({"text": ["the cat sat"] * 30}))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(DataError, match="is no intact Arrow file, or is cut short"):
        run(tmp_path / "store", {"train": [str(path)]})
    assert not list(tmp_path.glob("store/tokens/.*-partial"))


@pytest.mark.parametrize("files", ["0,2", "train-*", "-1", "3-", ""])
def test_files_are_chosen_by_their_numbers(files: str) -> None:
    with pytest.raises(ValidationError, match="first and the last file, counted from 0, as 0-9"):
        TokenizeConfig(files=files)


@pytest.mark.parametrize(("files", "count"), [("0", 1), ("0-9", 2), ("1-1", 1), (None, 2)])
def test_of_trains_files_some_may_be_chosen(
    files: str | None, count: int, folder: Path, tmp_path: Path
) -> None:
    inputs = {"train": [str(folder / "raw/train-00.parquet"), f"hf:{folder}/lines:content"]}
    artifact = tokenize(tmp_path / "store", inputs, files=files)
    assert len(artifact.manifest.outside_files) == count
    with pytest.raises(UsageError, match=r"--files 7-9: there are 2 files, numbered from 0"):
        tokenize(tmp_path / "store", inputs, files="7-9")


def test_the_id_covers_the_column_and_not_how_it_was_named(folder: Path, tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", ["x y"] * 3, other=["z"] * 3)
    text = tokenize(tmp_path / "store", {"train": [path]})
    other = tokenize(tmp_path / "store", {"train": [path]}, column="other")
    assert text.id != other.id
    assert (
        text.metrics["splits"]["train"]["tokens"],
        other.metrics["splits"]["train"]["tokens"],
    ) == (9, 6)
    assert tokenize(tmp_path / "store", {"train": [path]}, column="text").id == text.id
    lines = tokenize(tmp_path / "store", {"train": [f"hf:{folder}/lines:content"]})
    same = tokenize(
        tmp_path / "store", {"train": [str(folder / "lines/part.jsonl")]}, column="content"
    )
    assert lines.id == same.id


def test_one_split_is_one_corpus_that_is_cut(folder: Path, tmp_path: Path) -> None:
    source = [
        f"hf:{folder}/lines:content",
        table(tmp_path / "b.parquet", ["d", "e", "f"], "content"),
    ]
    artifact = tokenize(tmp_path / "store", {"source": source}, split=(0.6, 0.4), column="content")
    assert sizes(artifact) == {"train": (2, 5), "valid": (3, 6)}


@pytest.mark.parametrize(
    ("references", "settings", "error", "message"),
    [
        (
            {"source": ["hf:{}/raw", "{}/lines"]},
            {"column": "content"},
            UsageError,
            r"splits of its own \(train, valid\): name it alone",
        ),
        ({"source": ["hf:{}/raw"]}, {"split": (0.5, 0.5)}, UsageError, "splits of its own"),
        (
            {"train": ["hf:{}/raw"], "test": ["hf:{}/raw"]},
            {},
            DataError,
            "has no split test; it has train, valid",
        ),
        ({"source": ["hf:{}"]}, {}, DataError, r"available configs: \['raw', 'lines'\]\."),
        ({"source": ["hf:{}/none"]}, {}, DataError, "there is no folder"),
        (
            {"source": ["hf:{}/lines"]},
            {},
            DataError,
            'line 1: expected a JSON object with a field "text"',
        ),
        (
            {"source": ["hf:{}/raw:title"]},
            {},
            DataError,
            "has no column 'title'; columns of text there: text",
        ),
        (
            {"train": ["{}/README.md"]},
            {"column": "x"},
            UsageError,
            "--column is for Parquet, Arrow, CSV, TSV and .jsonl",
        ),
        ({"source": ["hf:@main"]}, {}, DataError, "names no data set"),
    ],
)
def test_what_does_not_fit_is_named(
    references: Mapping[str, list[str]],
    settings: dict[str, Any],
    error: type[Exception],
    message: str,
    folder: Path,
    tmp_path: Path,
) -> None:
    given = {role: [spec.format(folder) for spec in specs] for role, specs in references.items()}
    with pytest.raises(error, match=message):
        tokenize(tmp_path / "store", given, **settings)
    assert not list((tmp_path / "store").glob("tokens/[0-9a-f]*"))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "cannot be read as a data set"),
        ({"data.csv": "a,b\n1,2\n"}, r"files like data\.csv, which are not read \(\.txt, \.md, .*\)\.$"),
        ({"odd/odd.py": "1/0"}, "it is a script, and code of others is never run"),
        ({"other-00.txt": "x", "README.md": "---\nconfigs:\n- config_name: a\n  data_files:\n  - split: odd\n    path: "
          "other*\n---\n"}, "has the splits odd; read are train, validation and test"),
    ],
)  # fmt: skip
def test_folders_that_are_no_data_sets_are_told_as_such(
    files: dict[str, str], message: str, tmp_path: Path
) -> None:
    root = tmp_path / "odd"
    root.mkdir()
    for name, text in files.items():
        path = root.parent / name if "/" in name else root / name
        path.write_text(text)
    with pytest.raises(DataError, match=message):
        tokenize(tmp_path / "store", {"source": [f"hf:{root}"]})


def test_a_null_in_the_middle_leaves_nothing_made(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", ["x", None, "y"])
    with pytest.raises(DataError, match=r"a\.parquet, row 1 \(from 0\): 'text' is null"):
        tokenize(tmp_path / "store", {"train": [path]})
    assert not list((tmp_path / "store").glob("tokens/[0-9a-f]*"))


def test_names_are_taken_apart() -> None:
    found = parse_data_set("hf:a/b/c-1@v1.0:body")
    assert (found.name, found.config, found.revision, found.column) == (
        "a/b",
        "c-1",
        "v1.0",
        "body",
    )
    converted = parse_data_set("hf:a/b@refs/convert/parquet")
    assert (converted.name, converted.config, converted.revision) == (
        "a/b",
        None,
        "refs/convert/parquet",
    )
    assert (parse_data_set("hf:old").name, parse_data_set("hf:old:x").column) == ("old", "x")


@pytest.mark.parametrize("place", ["../secret.txt", "{}/secret.txt", "raw/link.txt"])
def test_files_outside_of_the_folder_are_not_read(place: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("a key\n")
    (folder / "raw/link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "README.md").write_text(
        f"---\nconfigs:\n- config_name: a\n  data_files: {place.format(tmp_path)}\n---\n"
    )
    with pytest.raises(
        DataError,
        match=r"names a file outside of its folder \(.*(secret|link)\.txt\): copy it there",
    ):
        parse_data_set(f"hf:{folder}").files()


def test_links_into_the_cache_of_the_hub_are_followed(tmp_path: Path) -> None:
    snapshot = tmp_path / "datasets--me--wiki/snapshots/0123"
    blob = table(tmp_path / "datasets--me--wiki/blobs/abc", ["the cat\n"])
    snapshot.mkdir(parents=True)
    (snapshot / "train.parquet").symlink_to(blob)
    assert parse_data_set(f"hf:{snapshot}").files() == {"train": [str(snapshot / "train.parquet")]}


def test_named_files_that_are_empty_are_left_out_as_those_of_a_folder_are(tmp_path: Path) -> None:
    """Most projects have an empty `__init__.py`; all of them failed."""
    full, empty = tmp_path / "a.py", tmp_path / "__init__.py"
    full.write_text("x = 1\n")
    empty.write_text("")
    sentences: list[str] = []
    specs = {"source": [str(empty), str(full)]}
    found = named_files(TokenizeConfig(), specs, left_out=sentences.append)
    assert [file.path for file in found["source"]] == [str(full)]
    assert sentences == [f"1 of 2 files are empty, and are not read: {empty}"]
    alone = named_files(TokenizeConfig(), {"source": [str(empty)]})
    assert [file.path for file in alone["source"]] == [str(empty)]


def test_an_empty_train_of_a_task_is_named(tmp_path: Path) -> None:
    (tmp_path / "news").mkdir()
    (tmp_path / "news" / "train.jsonl").write_text("")
    with pytest.raises(DataError, match=r"train\.jsonl is empty; expected records"):
        task_files([str(tmp_path / "news")])
