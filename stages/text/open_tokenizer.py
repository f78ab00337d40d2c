"""Opening a `tokenizer.json`: one that was written here is recognised, any other is used as it is."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stages.errors import DataError
from stages.text.bpe import HuggingFaceTokenizer, library_errors
from stages.text.byte import ByteTokenizer
from stages.text.char import CharTokenizer
from stages.text.config import LARGEST_VOCABULARY
from stages.text.pretrained import PretrainedTokenizer, SpecialTokens
from stages.text.tokenizer import EOS, UNK, TextTokenizer
from stages.text.word import WordTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def open_tokenizer(path: Path | str) -> TextTokenizer:
    """The tokenizer in a file of Hugging Face's format.

    Raises: DataError if the file holds none, or one that cannot work.
    """
    given, special = load_tokenizer(Path(path)), Path(path).with_name(PretrainedTokenizer.FILE)
    if special.is_file():
        return PretrainedTokenizer(given, SpecialTokens.read(special))
    content = given.to_str()
    matching = (own for own in _own_kinds(given) if own.huggingface().to_str() == content)
    return next(matching, None) or HuggingFaceTokenizer(given)


def load_tokenizer(path: Path) -> "Tokenizer":
    """The library's tokenizer of a file, whose ids and unknown token are as they must be.

    Raises: see `open_tokenizer`.
    """
    from tokenizers import Tokenizer

    with library_errors(f"{path} is no tokenizer in Hugging Face's JSON format"):
        tokenizer: Tokenizer = Tokenizer.from_file(str(path))
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    _check_ids(path, vocabulary)
    unknown = getattr(tokenizer.model, "unk_token", None)
    if unknown is not None and unknown not in vocabulary:
        raise DataError(f"{path} is no usable tokenizer: its unknown token {unknown!r} is not in its vocabulary.")
    return tokenizer


def _check_ids(path: Path, vocabulary: Mapping[str, int]) -> None:
    # Before anything else is asked of the library, which counts from 0 to the largest id when it writes a vocabulary.
    if not vocabulary:
        raise DataError(f"{path} is no usable tokenizer: its vocabulary is empty.")
    largest = max(vocabulary.values())
    if largest >= LARGEST_VOCABULARY:
        raise DataError(
            f"{path} is no usable tokenizer: it has a token {largest:,}; ids below {LARGEST_VOCABULARY:,} are read."
        )


def _own_kinds(given: "Tokenizer") -> Iterator[TextTokenizer]:
    """Tokenizers made here that have the given vocabulary."""
    from tokenizers import models

    vocabulary = given.get_vocab()
    if set(vocabulary.values()) != set(range(len(vocabulary))):
        return
    for lowercase in (False, True):
        if isinstance(given.model, models.WordLevel) and {EOS, UNK} <= vocabulary.keys():
            yield WordTokenizer(vocabulary, lowercase)
            yield CharTokenizer(vocabulary, lowercase)
        elif len(vocabulary) == ByteTokenizer.vocabulary_size:
            yield ByteTokenizer(lowercase)
