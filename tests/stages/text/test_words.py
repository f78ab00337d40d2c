from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from stages.errors import UsageError
from stages.text import TOKENIZERS
from stages.text import words as words_module
from stages.text.huggingface import HuggingFaceTokenizer
from stages.text.spool import Pieces
from stages.text.tokenizer import TextTokenizer
from stages.text.words import last_words
from tests.oracles.last_word import last_word, span_by_prefixes
from tests.oracles.text import WHITE_SPACE, documents, lines
from tests.stages.text.helpers import as_pieces, examples

ALPHABET = "aetv'-.,(é世🌍 \t\x1c\x85\xa0\u2009\u3000"
TRAIN = (
    f"the cat's tale , and the evenings of a teetotaller (a vet) ate\u3000at\xa0eve .\n\n{ALPHABET}\n"
    "antediluvian attestation \u2028 été\n"
)
KINDS = ["word", "char", "byte", "bpe"]
PASSAGES = st.lists(st.text(st.sampled_from(ALPHABET), max_size=30), min_size=1, max_size=6)


def metaspace() -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    every_byte = [f"<0x{byte:02X}>" for byte in range(256)]
    made.train_from_iterator(
        [TRAIN], trainers.BpeTrainer(vocab_size=360, special_tokens=["<unk>"], show_progress=False)
    )
    made.add_tokens([token for token in every_byte if made.token_to_id(token) is None])
    return made


def byte_level_with_specials() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([TRAIN], trainer)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    made.add_tokens([AddedToken("été")])
    return made


def word_piece(pre_tokenizer: pre_tokenizers.PreTokenizer) -> Tokenizer:
    vocabulary = [
        "[UNK]",
        *"aetv'-.,(é\x1c世🌍",
        *(f"##{c}" for c in "aetv'-.,(é\x1c世🌍"),
        "tea",
        "##te",
        "eve",
    ]
    made = Tokenizer(
        models.WordPiece({token: id for id, token in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = pre_tokenizer
    made.decoder = decoders.WordPiece()
    return made


GIVEN: dict[str, Callable[[], Tokenizer]] = {
    "byte-level": byte_level_with_specials,
    "metaspace": metaspace,
    "word-piece": lambda: word_piece(pre_tokenizers.WhitespaceSplit()),
}
MADE: dict[str, TextTokenizer] = {
    **{
        kind: TOKENIZERS.load(kind).train([as_pieces(TRAIN)], 300 if kind == "bpe" else None, False)
        for kind in KINDS
    },
    **{name: HuggingFaceTokenizer(make()) for name, make in GIVEN.items()},
}


def encoded(tokenizer: TextTokenizer, parts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Ids and offsets of documents; each is tokenized as a file of its own."""
    ids = [
        tokenizer.encode(as_pieces(part))[0] if part else np.zeros(0, tokenizer.dtype)
        for part in parts
    ]
    return np.concatenate(ids), np.cumsum([0, *map(len, ids)])


def stands_for(tokenizer: TextTokenizer, ids: np.ndarray) -> str:
    """The text of some tokens, by the library's own decoder, all white space as spaces.

    Added tokens stand for themselves: the byte-level decoder takes their letters for bytes.
    """
    library = tokenizer.huggingface()
    added = {id: token.content for id, token in library.get_added_tokens_decoder().items()}
    runs = [(known, list(run)) for known, run in groupby(ids.tolist(), key=added.get)]
    parts = [
        library.decode(run, skip_special_tokens=False) if known is None else known * len(run)
        for known, run in runs
    ]
    return WHITE_SPACE.sub(" ", "".join(parts))


@pytest.mark.parametrize("kind", MADE)
@examples
@example(passages=["été"])
@given(passages=PASSAGES)
def test_the_span_decodes_to_the_last_word_of_the_text(kind: str, passages: list[str]) -> None:
    tokenizer = MADE[kind]
    parts = [passage + "\n" for passage in passages]
    ids, offsets = encoded(tokenizer, parts)
    for part, (start, stop), end in zip(
        parts, last_words(ids, offsets, tokenizer), offsets[1:], strict=True
    ):
        word = last_word(part)
        if word is None:
            assert start == stop == end
        elif kind not in ("word", "word-piece") or word in tokenizer.huggingface().get_vocab():
            assert stands_for(tokenizer, ids[start:stop]).strip(" ") == word
        elif kind == "word":
            assert ids[start:stop].tolist() == [tokenizer.unk_id]


@pytest.mark.parametrize("kind", ["char", "byte", "bpe"])
@examples
@given(passages=PASSAGES)
def test_spans_are_those_found_on_the_text(kind: str, passages: list[str]) -> None:
    tokenizer = MADE[kind]
    parts = [passage + "\n" for passage in passages]
    ids, offsets = encoded(tokenizer, parts)
    spans = last_words(ids, offsets, tokenizer)
    written = written_bytes(tokenizer)
    for number, part in enumerate(parts):
        own = ids[offsets[number] : offsets[number + 1]].tolist()
        expected = span_by_prefixes(part, [written[id] for id in own])
        if expected is not None:
            assert (spans[number] - offsets[number]).tolist() == list(expected)


def written_bytes(tokenizer: TextTokenizer) -> dict[int, bytes]:
    """The bytes of every token, by GPT-2's rule for byte-level vocabularies."""
    vocabulary = tokenizer.huggingface().get_vocab()
    if tokenizer.kind == "char":
        return {id: token.encode() for token, id in vocabulary.items()}
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {
        id: bytes(ord(c) if ord(c) < 256 else others[ord(c) - 256] for c in token)
        if id != tokenizer.eos_id
        else b""
        for token, id in vocabulary.items()
    }


@pytest.mark.parametrize(
    ("kind", "text", "word"),
    [
        ("word", "the vet\n", ["<unk>"]),
        ("word", "the eve \n", ["eve"]),
        ("word", "tale\n\n \n", ["tale"]),
        ("char", "the cat's  \n", list("cat's")),
        ("char", "ate\n", list("ate")),
        ("word-piece", "tea tetea\n", ["t", "##e", "##te", "##a"]),
        ("word-piece", "tea dog\n", ["[UNK]"]),
        ("byte-level", "a été\n", ["été"]),
        ("byte-level", "a v<|endoftext|> \n", ["v"]),
    ],
)
def test_tokens_of_the_last_word(kind: str, text: str, word: list[str]) -> None:
    tokenizer = MADE[kind]
    ids, offsets = encoded(tokenizer, [text])
    ((start, stop),) = last_words(ids, offsets, tokenizer)
    assert [tokenizer.huggingface().id_to_token(id) for id in ids[start:stop].tolist()] == word


def test_a_word_may_be_many_tokens_and_its_last_one_take_white_space_along() -> None:
    made = byte_level_with_specials()
    made.add_tokens([AddedToken(".\t"), AddedToken("a e")])
    tokenizer = HuggingFaceTokenizer(made)
    ids, offsets = encoded(tokenizer, ["a vvvv.\t", "v\n"])
    (start, stop), _ = last_words(ids, offsets, tokenizer)
    assert stands_for(tokenizer, ids[start:stop]) == "vvvv. "
    assert stop - start > 2


def test_a_word_that_begins_inside_a_token_is_refused() -> None:
    made = byte_level_with_specials()
    made.add_tokens([AddedToken("a e")])
    tokenizer = HuggingFaceTokenizer(made)
    last_words(*encoded(tokenizer, ["a e v\n"]), tokenizer)
    with pytest.raises(UsageError, match=r"begins inside token \d+ \('a e'\)"):
        last_words(*encoded(tokenizer, ["v\n", "v a eve\n"]), tokenizer)


def split_off_punctuation() -> Tokenizer:
    return word_piece(pre_tokenizers.BertPreTokenizer())


def unmarked() -> Tokenizer:
    made = Tokenizer(models.BPE({"a": 0, ".": 1, "x": 2}, []))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def line_ends_unknown() -> Tokenizer:
    made = TOKENIZERS.load("char").train([Pieces(["a b"], np.array([11], np.uint8))], None, False)
    return Tokenizer.from_str(made.huggingface().to_str())


def spaces_stripped() -> Tokenizer:
    made = metaspace()
    made.normalizer = normalizers.Replace(" ", "")
    return made


@pytest.mark.parametrize(
    "make", [split_off_punctuation, unmarked, line_ends_unknown, spaces_stripped]
)
def test_a_tokenizer_that_loses_white_space_is_refused(make: Callable[[], Tokenizer]) -> None:
    with pytest.raises(
        UsageError, match=r"do not tell where words begin and end: .* word, char, byte and bpe"
    ):
        last_words(np.array([0]), np.array([0, 1]), HuggingFaceTokenizer(make()))


@pytest.mark.parametrize("kind", ["word", "char", "bpe"])
@pytest.mark.parametrize("block", [1, 2, 3, 7, 50])
def test_spans_do_not_depend_on_how_much_is_read_at_once(
    kind: str, block: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tokenizer = MADE[kind]
    parts = ["", *lines(TRAIN), "", TRAIN, "\u3000" * 9, "eve" + " \u3000" * 9, "x\u3000" * 9, ""]
    ids, offsets = encoded(tokenizer, parts)
    expected = last_words(ids, offsets, tokenizer)
    stored = zarr.create_array(tmp_path / "ids", data=ids)
    monkeypatch.setattr(words_module, "BLOCK_TOKENS", block)
    np.testing.assert_array_equal(last_words(stored, zarr.array(offsets), tokenizer), expected)
    assert (expected[:, 0] == expected[:, 1]).tolist() == [
        last_word(part) is None for part in parts
    ]


def test_no_more_is_read_of_a_long_document_than_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ids:
        read = 0

        def __getitem__(self, where: slice) -> np.ndarray:
            self.read += where.stop - where.start
            return ids[where]

    tokenizer = MADE["byte"]
    ids, offsets = encoded(tokenizer, ["ate " * 5000 + "evening\n"])
    monkeypatch.setattr(words_module, "BLOCK_TOKENS", 6)
    counting = Ids()
    ((start, stop),) = last_words(counting, offsets, tokenizer)
    assert bytes(ids[start:stop].tolist()) == b"evening"
    assert counting.read == 6 + 12


def test_documents_of_a_line_each() -> None:
    """`--documents line`: the word tokenizer ends each with <eos>, and blank lines belong to the
    one before.
    """
    text = "the tale\nand a teetotaller \n\n ate\n"
    tokenizer = MADE["word"]
    ids, ends = tokenizer.encode(as_pieces(text, "line"))
    offsets = np.array([0, 3, 8, 10])
    assert ends.tolist() == [3, 7, 8, 10]
    spans = last_words(ids, offsets, tokenizer)
    names = [tokenizer.huggingface().id_to_token(int(ids[start])) for start, _ in spans]
    assert names == [last_word(part) for part in documents(text, "line")]
    assert np.diff(spans).tolist() == [[1]] * 3
