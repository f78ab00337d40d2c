"""A survey of a text: its size, its documents, its script, its tokens, and the vocabulary chosen
for it.
"""

import gzip
import json
from pathlib import Path

import pytest

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.text.sample import sample_text
from stages.text.survey import (
    SAMPLE_BYTES,
    bpe_vocabulary,
    holds_unknown,
    lacks_words,
    record_sizes,
    survey,
    text_bytes,
    token_bytes,
)
from stages.tokenize import Tokenize, TokenizeConfig
from tests.builders.records import text_file
from tests.builders.surveyed import written
from tests.stages.small_text import story

TEXT = "one\ntwo\n\nthree\n\n\nfour é\n"


def test_files_paragraphs_and_lines_are_counted_and_measured(tmp_path: Path) -> None:
    found = survey([written(tmp_path, "a.txt", TEXT), written(tmp_path, "b.txt", "five\n")])
    assert (found.characters, found.bytes) == (len(TEXT) + 5, len(TEXT.encode()) + 5)
    assert [(cut.setting, cut.count, cut.largest) for cut in found.cuts] == [
        (None, 2, len(TEXT)),
        ("blank-line", 4, len("one\ntwo\n\n")),
        ("line", 5, len("three\n\n\n")),
    ]


@pytest.mark.parametrize(
    ("longest", "fewest", "setting"),
    [
        (30, 1, None),
        (9, 1, "blank-line"),
        (8, 1, "line"),
        (7, 1, "none"),
        (30, 2, "blank-line"),
        (30, 4, "line"),
        (30, 5, "none"),
    ],
)
def test_the_coarsest_cut_of_enough_documents_none_too_long_is_taken(
    tmp_path: Path, longest: int, fewest: int, setting: str | None
) -> None:
    cut = survey([written(tmp_path, "a.txt", TEXT)]).cut_below(longest, fewest)
    assert ("none" if cut is None else cut.setting) == setting


def test_records_are_documents(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"text": text}) for text in ["a b\n\nc", "d"])
    found = survey([written(tmp_path, "a.jsonl", lines)])
    assert [(cut.count, cut.largest) for cut in found.cuts] == [(2, 6), (3, 5), (3, 5)]


@pytest.mark.parametrize(
    "text",
    [
        "我们在一起的时候。\n他说：“好吧。”\n",
        "吾輩は猫である。名前はまだ無い。\n",
        "ฉันชอบอ่านหนังสือมาก\n",
        "ACGT" * 1000,
        "我们在一起 and 他们也在一起\n",
    ],
)
def test_text_without_spaces_lacks_words(text: str) -> None:
    assert lacks_words([text, text])


@pytest.mark.parametrize(
    "text",
    [
        "It was the best of times.\n",
        "나는 고양이로소이다 이름은 아직 없다\n",
        "epäjärjestelmällisyys on pitkä\n",
        "Быть или не быть\n",
        "我们 在 一起 。\n他 说 ： “ 好吧 。 ”\n",
    ],
)
def test_text_with_spaces_has_them(text: str) -> None:
    assert not lacks_words([text])


@pytest.mark.parametrize("sample", [SAMPLE_BYTES, 20_000])
def test_the_number_of_tokens_is_foretold(tmp_path: Path, sample: int) -> None:
    text = tmp_path / "text.txt"
    text.write_text(story(3000, 0))
    config = TokenizeConfig(tokenizer="bpe", vocab_size=300)
    store = Store(tmp_path / "store")
    made = make(Tokenize(), config, {"train": [str(text)]}, store, Execution()).artifact
    tokens = made.metrics["splits"]["train"]["tokens"] - 1
    files = [text_file(text)]
    size = text.stat().st_size
    told = size / token_bytes(sample_text(files, record_sizes(files), sample))(300)
    assert told == pytest.approx(tokens, rel=0.001 if sample > size else 0.05)


@pytest.mark.parametrize(
    ("text_bytes", "types"),
    [
        (0, 512),
        (50_000, 512),
        (255_000, 1024),
        (1_115_394, 2048),
        (10_797_148, 8192),
        (100_000_000, 16_384),
        (540_000_000, 32_768),
        (10**12, 32_768),
    ],
)
def test_a_vocabulary_grows_with_the_root_of_the_text(text_bytes: int, types: int) -> None:
    assert bpe_vocabulary(text_bytes) == types


def test_the_text_is_measured_whatever_it_is_packed_in(tmp_path: Path) -> None:
    text = "größer\n世界\n"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text, "title": "left out"}))
    files = [text_file(tmp_path / name) for name in ("a.txt", "a.txt.gz", "a.jsonl")]
    assert text_bytes(files) == 3 * len(text.encode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("the <unk> of\n", True), ("<unk>", True), ("a<unk> <unk>b\n", False), ("unk <UNK>\n", False)],
)
def test_unknown_words_that_the_text_itself_has(text: str, expected: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "before\n" * 9}) + "\n" + json.dumps({"text": text}))
    assert holds_unknown([text_file(path)]) == expected
