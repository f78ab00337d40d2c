"""Opening a `tokenizer.json`: one that was written here is recognised, any other is used as it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from stages.errors import DataError
from stages.text.bpe import HuggingFaceTokenizer
from stages.text.byte import ByteTokenizer
from stages.text.char import CharTokenizer
from stages.text.tokenizer import EOS, UNK, TextTokenizer
from stages.text.word import WordTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def open_tokenizer(path: Path | str) -> TextTokenizer:
    """The tokenizer in a file of Hugging Face's format.

    Raises: DataError if the file holds none.
    """
    given = _load(Path(path))
    content = given.to_str()
    matching = (own for own in _own_kinds(given) if own.huggingface().to_str() == content)
    return next(matching, None) or HuggingFaceTokenizer(given)


def _load(path: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise DataError(f"{path} is no tokenizer in Hugging Face's JSON format: {error}.") from error


def _own_kinds(given: "Tokenizer") -> Iterator[TextTokenizer]:
    """Tokenizers made here that have the given vocabulary."""
    from tokenizers import models

    vocabulary = given.get_vocab()
    for lowercase in (False, True):
        if isinstance(given.model, models.WordLevel) and {EOS, UNK} <= vocabulary.keys():
            yield WordTokenizer(vocabulary, lowercase)
            yield CharTokenizer(vocabulary, lowercase)
        elif len(vocabulary) == ByteTokenizer.vocabulary_size:
            yield ByteTokenizer(lowercase)
