"""Pairs of sentences: what is read, what is dropped, what is said of bad files, and the arrays that
come of it.
"""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from stages.artifacts.artifact import Artifact
from stages.errors import DataError, UsageError
from stages.text.config import TokenizeConfig
from stages.tokenization.sources import TOKENIZER_FILE
from tests.builders.limits import limit
from tests.builders.tokenizing import Crash, crash_after, run, write
from tests.stages.notes import Notes

GERMAN = ["ein Hund", "eine Katze schläft", "zwei Hunde"]
ENGLISH = ["a dog", "a cat is sleeping", "two dogs"]
LANGUAGES = {"source_language": "de", "target_language": "en"}


def files(
    folder: Path,
    split: str = "train",
    german: list[str] | None = None,
    english: list[str] | None = None,
) -> str:
    """A prefix with two files beside it."""
    write(folder / f"{split}.de", "".join(f"{line}\n" for line in german or GERMAN))
    write(folder / f"{split}.en", "".join(f"{line}\n" for line in english or ENGLISH))
    return str(folder / split)


def pairs(
    folder: Path, spoken: Notes | None = None, references: Any = None, **settings: Any
) -> Artifact:
    named = references or {split: [files(folder, split)] for split in ("train", "valid")}
    return run(folder / "store", named, spoken, **LANGUAGES, **settings).artifact


def sentences(tokens: Artifact, split: str, side: str) -> list[list[int]]:
    """Ids of each sentence, by the offsets."""
    group: Any = tokens.zarr("tokens.zarr")
    ids, offsets = (
        (f"{split}/source_ids", f"{split}/source_offsets")
        if side == "source"
        else (f"{split}/ids", f"{split}/doc_offsets")
    )
    borders = group[offsets][:]
    assert borders[-1] == len(group[ids])
    return [group[ids][int(a) : int(b)].tolist() for a, b in pairwise(borders)]


@pytest.mark.parametrize("tokenizer", ["word", "bpe", "char", "byte"])
def test_a_document_is_a_sentence_with_its_end_and_decodes_to_the_raw_line(
    tokenizer: str, tmp_path: Path
) -> None:
    from tokenizers import Tokenizer

    minimum = {"min_count": 1} if tokenizer == "word" else {}
    tokens = pairs(tmp_path, tokenizer=tokenizer, **minimum)
    assert tokens.metrics["examples"] == "pairs"
    decoder = Tokenizer.from_file(str(tokens.file(TOKENIZER_FILE)))
    for side, wanted in (("source", GERMAN), ("target", ENGLISH)):
        found = sentences(tokens, "train", side)
        assert [ids[-1] for ids in found] == [tokens.metrics["eos_id"]] * 3
        assert tokens.metrics["eos_id"] not in {id for ids in found for id in ids[:-1]}
        text = [decoder.decode(ids[:-1]) for ids in found]
        joined = [line.replace(" ", "") for line in text] if tokenizer == "char" else text
        assert joined == (
            [line.replace(" ", "") for line in wanted] if tokenizer == "char" else wanted
        )


def test_figures_of_both_sides(tmp_path: Path) -> None:
    test = files(tmp_path, "test", ["ein Hund", "ein Hund", "neu"], ["a dog", "a hound", "new"])
    tokens = pairs(
        tmp_path,
        references={"train": [files(tmp_path)], "test": [test]},
        tokenizer="word",
        min_count=1,
    )
    train, scored = (tokens.metrics["splits"][split] for split in ("train", "test"))
    counted = (
        "documents",
        "tokens",
        "source_tokens",
        "longest",
        "longest_source",
        "words",
        "empty_dropped",
    )
    assert [train[name] for name in counted] == [3, 11, 10, 5, 4, 11, 0]
    assert (scored["sources_in_train"], scored["pairs_in_train"]) == (
        pytest.approx(2 / 3),
        pytest.approx(1 / 3),
    )
    assert scored["source_unknown_rate"] == pytest.approx(1 / 8) and "pairs_in_train" not in train


def test_one_vocabulary_is_learnt_of_both_sides_of_train(tmp_path: Path) -> None:
    test = files(tmp_path, "test", ["nie gesehen"], ["never seen"])
    tokens = pairs(
        tmp_path,
        references={"train": [files(tmp_path)], "test": [test]},
        tokenizer="word",
        min_count=1,
    )
    vocabulary = json.loads(tokens.file(TOKENIZER_FILE).read_text("utf-8"))["model"]["vocab"]
    assert vocabulary.keys() == {"<eos>", "<unk>", *" ".join(GERMAN + ENGLISH).split()}


def test_compressed_files_records_and_several_prefixes_give_the_same_pairs(tmp_path: Path) -> None:
    plain = pairs(tmp_path, references={"train": [files(tmp_path)]})
    for name in ("train.de", "train.en"):
        (tmp_path / f"z{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    zipped = pairs(tmp_path, references={"train": [str(tmp_path / "ztrain")]})
    both = zip(GERMAN, ENGLISH, strict=True)
    records = [{"de": de, "en": en} for de, en in both]
    nested = [records[0], *({"id": 7, "translation": record} for record in records[1:])]
    lines = write(tmp_path / "pairs.jsonl", "\n\n".join(json.dumps(record) for record in nested))
    recorded = pairs(tmp_path, references={"train": [lines]})
    first, rest = (
        files(tmp_path, "a", GERMAN[:1], ENGLISH[:1]),
        files(tmp_path, "b", GERMAN[1:], ENGLISH[1:]),
    )
    parted = pairs(tmp_path, references={"train": [first, rest]})
    for other in (zipped, recorded, parted):
        for side in ("source", "target"):
            assert sentences(other, "train", side) == sentences(plain, "train", side)


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    odd = ["one\u2028two", "form\ffeed", "next\x85line"]
    write(tmp_path / "train.de", "".join(f"{line}\r\n" for line in odd))
    write(tmp_path / "train.en", "x\ny\nz")
    tokens = pairs(tmp_path, references={"train": [str(tmp_path / "train")]}, tokenizer="byte")
    found = [bytes(ids[:-1]).decode() for ids in sentences(tokens, "train", "source")]
    assert found == odd


def test_a_blank_side_is_dropped_from_train_and_an_error_where_text_is_scored(
    tmp_path: Path,
) -> None:
    german, english = [*GERMAN, " ", "da", ""], [*ENGLISH, "here", "", "\t"]
    spoken = Notes()
    tokens = pairs(tmp_path, spoken, {"train": [files(tmp_path, "train", german, english)]})
    assert (
        tokens.metrics["splits"]["train"]["documents"]
        == 3
        == tokens.metrics["splits"]["train"]["empty_dropped"]
    )
    assert any("both: 3" in warning for warning in spoken.warnings)
    scored = {"train": [files(tmp_path)], "test": [files(tmp_path, "test", german, english)]}
    with pytest.raises(DataError, match=r"test\.de, line 4: there is no text"):
        pairs(tmp_path, references=scored)
    both = {
        "train": [files(tmp_path)],
        "test": [files(tmp_path, "test", [*GERMAN, ""], [*ENGLISH, " "])],
    }
    assert pairs(tmp_path, references=both).metrics["splits"]["test"]["documents"] == 3


def test_files_of_unequal_length_name_the_line_without_a_partner(tmp_path: Path) -> None:
    longer = files(tmp_path, "train", [*GERMAN, "vier", "fünf"], ENGLISH)
    with pytest.raises(
        DataError, match=r"train\.de 5 lines and .*train\.en 3 lines.*Line 4 of .*train\.de has no"
    ):
        pairs(tmp_path, references={"train": [longer]})


def test_bad_bytes_and_records_name_their_line(tmp_path: Path) -> None:
    prefix = files(tmp_path)
    (tmp_path / "train.en").write_bytes(b"a\nb\nc\xe9\n")
    with pytest.raises(DataError, match=r"train\.en is not UTF-8 at byte 5: .*, in line 3;"):
        pairs(tmp_path, references={"train": [prefix]})
    for record, wrong in (
        ({"de": "x"}, '"en" that is a string'),
        ({"de": "x\ny", "en": "z"}, "of one line"),
    ):
        file = write(tmp_path / "pairs.jsonl", f'{{"de": "a", "en": "b"}}\n{json.dumps(record)}\n')
        with pytest.raises(DataError, match=rf"pairs\.jsonl, line 2: .*{wrong}"):
            pairs(tmp_path, references={"train": [file]})


def test_a_prefix_without_files_shows_those_beside_it(tmp_path: Path) -> None:
    files(tmp_path)
    with pytest.raises(
        DataError, match=r"train\.fr does not exist.*train\.de, train\.en\. .*before \.fr"
    ):
        run(
            tmp_path / "store",
            {"train": [str(tmp_path / "train")]},
            source_language="fr",
            target_language="en",
        )
    write(tmp_path / "train.de.gz", "")
    with pytest.raises(DataError, match="both there"):
        pairs(tmp_path, references={"train": [str(tmp_path / "train")]})


def test_the_same_file_on_both_sides_is_warned_of(tmp_path: Path) -> None:
    spoken = Notes()
    pairs(
        tmp_path, spoken, {"train": [files(tmp_path, "train", GERMAN, [*GERMAN[:2], "two dogs"])]}
    )
    assert any("2 of 3" in warning for warning in spoken.warnings)


@pytest.mark.parametrize(
    "settings",
    [
        {"source_language": "de"},
        {"target_language": "de"},
        {"source_language": "de", "target_language": "de"},
        {**LANGUAGES, "documents": "line"},
        {**LANGUAGES, "split": (0.9, 0.1)},
    ],
)
def test_half_a_pair_of_languages_and_other_cuts_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TokenizeConfig(**settings)


def test_files_that_are_named_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--train PREFIX"):
        pairs(tmp_path, references={"source": [files(tmp_path)]})


@pytest.mark.parametrize("done", [0, 1, 3, 5])
def test_a_crash_changes_nothing(
    done: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, shard_pieces=1)
    named = {"train": [files(tmp_path)], "valid": [files(tmp_path, "valid")]}
    whole = run(tmp_path / "whole", named, **LANGUAGES).artifact
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_after(patch, "run_shard", done)
        run(tmp_path / "store", named, **LANGUAGES)
    again = run(tmp_path / "store", named, **LANGUAGES).artifact
    assert again.manifest.files == whole.manifest.files


def test_offsets_join_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
    whole = pairs(tmp_path / "a")
    limit(monkeypatch, shard_pieces=1)
    cut = pairs(tmp_path / "b")
    for side in ("source", "target"):
        assert sentences(cut, "train", side) == sentences(whole, "train", side)
    np.testing.assert_array_equal(
        *(one.zarr("tokens.zarr")["valid/paragraph_hashes"][:] for one in (cut, whole))
    )
