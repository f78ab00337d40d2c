"""Tokenizers give the ids that Hugging Face's library gives; vocabularies."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import WhitespaceSplit

from stages.errors import DataError, UsageError
from stages.text import TOKENIZERS, huggingface
from stages.text.huggingface import BpeTokenizer, HuggingFaceTokenizer, open_tokenizer
from stages.text.simple_tokenizers import SplitText, WordTokenizer
from stages.text.spool import Pieces
from stages.text.tokenizer import TextTokenizer, by_frequency, lower, words
from tests.builders.limits import limit
from tests.oracles import text as oracle
from tests.stages.text.helpers import as_pieces, examples

TRAIN = (
    "The cat sat on the mat .\n\n The  dog\tate the cat's food <unk> , <eos> too .\r\n"
    "Größe ΣΊΣΥΦΟΣ 世界 🌍 İ x\x1cy\u2028z\n the the cat\n"
)
ANY_TEXT = st.text(st.sampled_from("theca's <unk>.\n\t\r\x1c\u2028üΣß世🌍0"), max_size=80)
KINDS = ["word", "char", "byte", "bpe"]
TOKENIZERS_MADE = {
    (kind, lowercase): TOKENIZERS.load(kind).train(
        [as_pieces(TRAIN)], 300 if kind == "bpe" else None, lowercase
    )
    for kind in KINDS
    for lowercase in (False, True)
}


def encode(tokenizer: TextTokenizer, text: str, rule: str = "file") -> list[int]:
    return tokenizer.encode(as_pieces(text, rule))[0].tolist()


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@examples
@given(text=ANY_TEXT)
def test_the_saved_tokenizer_gives_the_same_ids(kind: str, lowercase: bool, text: str) -> None:
    tokenizer = TOKENIZERS_MADE[kind, lowercase]
    document = text + "\n"
    assert encode(tokenizer, document) == tokenizer.huggingface().encode(document).ids


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_opened_as_what_it_is(
    kind: str, lowercase: bool, tmp_path: Path
) -> None:
    tokenizer = TOKENIZERS_MADE[kind, lowercase]
    tokenizer.save(tmp_path / "a.json")
    opened = open_tokenizer(tmp_path / "a.json")
    opened.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert (opened.eos_after, opened.eos_id, opened.unk_id, opened.vocabulary_size) == (
        tokenizer.eos_after,
        tokenizer.eos_id,
        tokenizer.unk_id,
        tokenizer.vocabulary_size,
    )
    assert encode(opened, TRAIN) == encode(tokenizer, TRAIN)
    assert isinstance(opened, HuggingFaceTokenizer if kind == "bpe" else type(tokenizer))


@pytest.mark.parametrize("limit", [None, 3, 6])
@examples
@given(text=ANY_TEXT)
def test_words_are_those_of_the_oracle(limit: int | None, text: str) -> None:
    tokenizer = WordTokenizer.train([as_pieces(TRAIN)], limit, False)
    types = oracle.word_vocabulary(TRAIN, limit)
    assert list(tokenizer.vocabulary) == types
    expected = [types.index(w if w in types else "<unk>") for w in oracle.word_tokens(text)]
    assert encode(tokenizer, text) == expected


@examples
@given(text=ANY_TEXT)
def test_characters_and_bytes(text: str) -> None:
    assert encode(TOKENIZERS_MADE["byte", False], text) == list(text.encode())
    characters = TOKENIZERS_MADE["char", False]
    names = {id: name for name, id in characters.huggingface().get_vocab().items()}
    known = set(TRAIN)
    assert [names[id] for id in encode(characters, text)] == [
        c if c in known else "<unk>" for c in text
    ]


INDENTED = {
    lowercase: TOKENIZERS.load("bpe").train([as_pieces(TRAIN + "    def \n" * 99)], 300, lowercase)
    for lowercase in (False, True)
}
"""Tokenizers with tokens of several spaces."""
LINES = st.lists(
    st.text(
        st.sampled_from(
            "theWLsd 'cat's'll12½Ⅷ²_.,;…\t\r\n\x0b\x0c\x1c\x85\u00a0\u2028\u3000üΣßİ世a\u0301\u200d🌍"
        ),
        max_size=60,
    )
    | st.text(max_size=20),
    max_size=6,
)


def ids_of_texts(tokenizer: TextTokenizer, texts: list[str]) -> list[list[int]]:
    ids, counts = tokenizer.encode_texts(texts)
    ends = counts.cumsum().tolist()
    return [ids[a:b].tolist() for a, b in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("added", ["new", "cat's fo"])
@pytest.mark.parametrize("lowercase", [False, True])
@example(
    [
        "a  b \n",
        "\n",
        "",
        " \t x",
        "\t  x",
        "don't DON'T 'RE'",
        "two\nlines\n",
        "<eos> at the end<eos>\n",
        "two   <eos>  new",
        "the cat's food",
    ]
)
@examples
@given(texts=LINES)
def test_bpe_encodes_a_word_once_with_the_ids_of_its_text(
    lowercase: bool, added: str, texts: list[str]
) -> None:
    library = Tokenizer.from_str(INDENTED[lowercase].huggingface().to_str())
    library.add_tokens([added])
    expected = [library.encode(text, add_special_tokens=False).ids for text in texts]
    assert ids_of_texts(HuggingFaceTokenizer(library), texts) == expected


def test_repeated_words_are_not_given_to_the_library_again(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    encode_all = HuggingFaceTokenizer._encode

    def watched(self: HuggingFaceTokenizer, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        encoded.extend(texts)
        return encode_all(self, texts)

    monkeypatch.setattr(HuggingFaceTokenizer, "_encode", watched)
    TOKENIZERS_MADE["bpe", False].encode_texts(["the cat's mat\n"] * 1000)
    assert encoded == ["the", " cat's", " mat\n"]


@examples
@given(text=ANY_TEXT)
def test_bpe_loses_nothing(text: str) -> None:
    tokenizer = TOKENIZERS_MADE["bpe", False]
    ids = encode(tokenizer, text + "end")
    assert ids[-1] == tokenizer.eos_id
    assert tokenizer.huggingface().decode(ids) == text + "end"


@pytest.mark.parametrize("kind", KINDS)
@examples
@given(text=ANY_TEXT, rule=st.sampled_from(["line", "file", "blank-line"]))
def test_pieces_end_where_their_tokens_do(kind: str, text: str, rule: str) -> None:
    tokenizer = TOKENIZERS_MADE[kind, False]
    pieces = as_pieces("a" + text, rule)
    ids, ends = tokenizer.encode(pieces)
    starts = [0, *ends[:-1].tolist()]
    for piece, mark, a, b in zip(
        pieces.texts, pieces.marks.tolist(), starts, ends.tolist(), strict=True
    ):
        alone, _ = tokenizer.encode(type(pieces)([piece], np.array([mark], np.uint8)))
        assert ids[a:b].tolist() == alone.tolist()
    assert len(ids) == ends[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_line_has_the_tokens_of_the_whole_line(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = TOKENIZERS_MADE[kind, False]
    text = "the cat  sat on\tthe mat's food 世界 . the dog ate\n"
    whole = encode(tokenizer, text)
    for longest in range(9, 50):
        limit(monkeypatch, longest_piece=longest)
        assert len(as_pieces(text).texts) > 1 or longest >= len(text) - 1
        assert encode(tokenizer, text) == whole


def test_ids_are_stored_in_as_few_bytes_as_they_need() -> None:
    large = {f"w{i}": i + 2 for i in range(2**16 - 3)} | {"<unk>": 0, "<eos>": 1}
    assert WordTokenizer(large, False).dtype == np.uint16
    assert WordTokenizer(large | {"one more": 2**16 - 1}, False).dtype == np.uint32


def test_a_foreign_tokenizer_gets_an_eos_after_each_document(tmp_path: Path) -> None:
    foreign = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2, "[CLS]": 3}, "[UNK]"))
    foreign.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    foreign.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", special_tokens=[("[CLS]", 3)]
    )
    foreign.enable_truncation(2)
    foreign.enable_padding(length=8)
    foreign.save(str(tmp_path / "foreign.json"))
    tokenizer = open_tokenizer(tmp_path / "foreign.json")
    assert (tokenizer.eos_id, tokenizer.unk_id, tokenizer.vocabulary_size) == (4, 2, 5)
    assert encode(tokenizer, "a b a\nb c\n", "line") == [0, 1, 0, 4, 1, 2, 4]
    assert tokenizer.huggingface().encode("a b a\nb c\n").ids == [0, 1, 0, 1, 2, 4]


@pytest.mark.parametrize(
    "content", ["", "{}", "no json", json.dumps({"model": {"type": "WordLevel"}})]
)
def test_a_file_that_is_no_tokenizer_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"broken\.json is no tokenizer"):
        open_tokenizer(path)


def word_level(**vocabulary: object) -> str:
    made = Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    layout = json.loads(made.to_str())
    layout["model"]["vocab"] = vocabulary
    return json.dumps(layout)


UNIGRAM = (
    '{"model": {"type": "Unigram", "unk_id": null, "vocab": [["a", 0.0]], "byte_fallback": false}}'
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (word_level(a=0), "its unknown token '<unk>' is not in its vocabulary"),
        (
            word_level(a=0, **{"<unk>": 4_000_000_000}),
            "has a token 4,000,000,000; ids below 16,777,216",
        ),
        (word_level(a="x", **{"<unk>": 1}), "is no tokenizer"),
        (word_level(a=-1, **{"<unk>": 1}), "is no tokenizer"),
        ("[" * 100_000, "is no tokenizer"),
        ('{"model":' * 100_000, "is no tokenizer"),
        ('{"model": {"type": "Unigram", "unk_id": null, "vocab": []}}', "its vocabulary is empty"),
    ],
)
def test_a_tokenizer_that_cannot_work_is_bad_data(
    content: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "odd.json"
    path.write_text(content)
    with pytest.raises(DataError, match=rf"odd\.json .*{message}"):
        open_tokenizer(path)


def test_text_that_a_tokenizer_cannot_read_is_bad_data(tmp_path: Path) -> None:
    (tmp_path / "unigram.json").write_text(UNIGRAM)
    with pytest.raises(DataError, match=r"cannot read the text: .*unk_id"):
        encode(open_tokenizer(tmp_path / "unigram.json"), "a z\n")


def test_ids_with_gaps_are_no_vocabulary_made_here(tmp_path: Path) -> None:
    path = tmp_path / "gaps.json"
    layout = json.loads(TOKENIZERS_MADE["word", False].huggingface().to_str())
    layout["model"]["vocab"]["cat"] = 70_000
    path.write_text(json.dumps(layout))
    tokenizer = open_tokenizer(path)
    assert (type(tokenizer), tokenizer.vocabulary_size) == (HuggingFaceTokenizer, 70_001)
    assert encode(tokenizer, "cat")[0] == 70_000


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_is_written_as_the_library_writes_it(kind: str, tmp_path: Path) -> None:
    TOKENIZERS_MADE[kind, False].save(tmp_path / "ours.json")
    TOKENIZERS_MADE[kind, False].huggingface().save(str(tmp_path / "theirs.json"), pretty=True)
    assert (tmp_path / "ours.json").read_bytes() == (tmp_path / "theirs.json").read_bytes()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_is_an_error_of_the_system(kind: str) -> None:
    with pytest.raises(OSError, match="No space left"):
        TOKENIZERS_MADE[kind, False].save(Path("/dev/full"))


def test_an_unknown_tokenizer_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'word'"):
        TOKENIZERS.load("words")


def test_bpe_is_the_same_in_every_process(tmp_path: Path) -> None:
    BpeTokenizer.train([as_pieces(TRAIN)], 300, False).save(tmp_path / "here.json")
    program = (
        "from tests.stages.text import test_tokenizers as t; from pathlib import Path; import sys\n"
        "t.BpeTokenizer.train([t.as_pieces(t.TRAIN)], 300, False).save(Path(sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "RAYON_NUM_THREADS": "1"}
    there = tmp_path / "there.json"
    subprocess.run([sys.executable, "-c", program, str(there)], check=True, env=environment)
    assert (tmp_path / "here.json").read_bytes() == there.read_bytes()


@examples
@given(st.lists(ANY_TEXT), st.booleans())
def test_split_text_is_encoded_as_the_text_is(texts: list[str], lowercase: bool) -> None:
    tokenizer = TOKENIZERS_MADE["word", lowercase]
    assert isinstance(tokenizer, WordTokenizer)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "words.npy")
        SplitText.of(texts, lowercase).save(file)
        split = SplitText.read(file)
    assert len(set(split.words)) == len(split.words)
    ids, counts = tokenizer.encode_split(split)
    wanted = [
        [tokenizer.vocabulary[word] for word in words(lower(text) if lowercase else text)]
        for text in texts
    ]
    assert ids.tolist() == [id for found in wanted for id in found]
    assert counts.tolist() == [len(found) for found in wanted]


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.timeout(60)
def test_a_vocabulary_in_the_making_hears_of_signals() -> None:
    """The library reads text in threads of its own, and Python's first thread, which alone hears
    signals, waits.
    """

    def endless() -> Iterator[Pieces]:
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
        while True:
            yield as_pieces("a word and another\n" * 100)

    with pytest.raises(KeyboardInterrupt):
        BpeTokenizer.train(endless(), 300, False)


@pytest.mark.parametrize("character", ["\u2028", " ", "x", "9", "_", "\u4e00", "-", "e\u0301"])
def test_merges_are_learnt_of_words_of_a_bounded_length(character: str) -> None:
    text = f"the cat {character * 3000} sat\n"
    parts = list(huggingface._words_cut([text, "short\n"]))
    assert "".join(parts) == text + "short\n"
    rule = pre_tokenizers.ByteLevel(add_prefix_space=False)
    lengths = [stop - start for part in parts for _, (start, stop) in rule.pre_tokenize_str(part)]
    assert max(lengths) <= huggingface.LONGEST_WORD + 1  # a word takes the blank before it along


@given(st.lists(st.text("ab 9_-\n", max_size=40)))
def test_texts_without_long_words_are_learnt_from_as_they_are(texts: list[str]) -> None:
    long_lines = ["the cat sat. " * 300, *texts]
    assert list(huggingface._words_cut(long_lines)) == long_lines


EVERY_CHARACTER = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]


def test_every_white_space_character_separates_words_as_in_the_library() -> None:
    # No character beyond the first plane of Unicode is white space.
    text = "".join(f"a{character}" for character in EVERY_CHARACTER if ord(character) < 0x10000)
    expected = [word for word, _ in WhitespaceSplit().pre_tokenize_str(text)]
    assert words(text) == expected == oracle.words(text)
    spaced = text.translate(dict.fromkeys(range(0x1C, 0x20)))
    assert words(spaced) == oracle.words(spaced)


def test_every_character_is_lower_cased_as_in_the_library() -> None:
    text = "".join(EVERY_CHARACTER) + "ΟΔΟΣ İ"
    assert lower(text) == Lowercase().normalize_str(text)
    assert lower("ABC xyz") == "abc xyz"


@examples
@given(st.text(st.sampled_from("ab \n\x1c\x85"), max_size=60))
def test_words(text: str) -> None:
    assert words(text) == oracle.words(text)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, ["b", "<eos>", "a", "c", "d", "<unk>"]),
        (5, ["b", "<eos>", "a", "c", "<unk>"]),
        (4, ["b", "<eos>", "<unk>", "a"]),
        (3, ["<unk>", "b", "<eos>"]),
    ],
)
def test_ids_fall_with_count_and_the_rest_is_unknown(
    limit: int | None, expected: list[str]
) -> None:
    counts = Counter({"d": 1, "c": 2, "a": 2, "b": 4, "<eos>": 3})
    assert list(by_frequency(counts, limit)) == expected
    assert list(by_frequency(counts, limit).values()) == list(range(len(expected)))


@pytest.mark.parametrize(
    ("limit", "min_count", "expected"),
    [
        (None, 2, ["b", "<eos>", "a", "c", "<unk>"]),
        (None, 3, ["<unk>", "b", "<eos>"]),
        (4, 2, ["b", "<eos>", "<unk>", "a"]),
        (None, 9, ["<unk>", "<eos>"]),
    ],
)
def test_rare_types_are_unknown(limit: int | None, min_count: int, expected: list[str]) -> None:
    counts = Counter({"d": 1, "c": 2, "a": 2, "b": 4, "<eos>": 3})
    assert list(by_frequency(counts, limit, min_count)) == expected
