"""Sub-words: byte-level BPE trained here, and any tokenizer given as a Hugging Face file."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Self

import numpy as np

from stages.errors import DataError
from stages.interrupts import stoppable
from stages.text.config import LARGEST_VOCABULARY
from stages.text.spool import Pieces
from stages.text.tokenizer import EOS, UNK, TextTokenizer, TrainableTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LONGEST_WORD = 1000
"""Characters of a run that merges are learnt from as one word."""
_LONG_RUN = re.compile(rf"\w{{{LONGEST_WORD + 1},}}|(?:[^\w\s]|_){{{LONGEST_WORD + 1},}}|\s{{{LONGEST_WORD + 1},}}")
BATCH_CHARACTERS = 2**18
"""Text encoded at once: an encoding takes a hundred times the memory of its ids."""


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Turn whatever the library raises into a DataError that begins with `what`.

    It raises bare Exceptions, and where its Rust code panics a BaseException of a class that cannot be imported.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise DataError(f"{what}: {error}.") from error
        raise


class HuggingFaceTokenizer(TextTokenizer):
    """A tokenizer of Hugging Face's library, with `<eos>` after each document.

    Lines are encoded one by one; `<eos>` is added to a vocabulary that lacks it.
    """

    kind = "given"
    eos_after = "document"

    def __init__(self, tokenizer: "Tokenizer") -> None:
        from tokenizers import processors

        tokenizer.no_truncation()
        tokenizer.no_padding()
        if tokenizer.token_to_id(EOS) is None:
            tokenizer.add_special_tokens([EOS])
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.eos_id = vocabulary[EOS]
        self.unk_id = vocabulary.get(getattr(tokenizer.model, "unk_token", None) or UNK)
        self.vocabulary_size = max(vocabulary.values()) + 1
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {EOS}", special_tokens=[(EOS, self.eos_id)]
        )
        self._tokenizer = tokenizer

    def encode_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        ids = [np.zeros(0, np.int64)]
        counts = [np.zeros(0, np.int64)]
        for batch in _batches(texts):
            with library_errors("The tokenizer cannot read the text"):
                batch_ids, batch_counts = self._encode_batch(batch)
            ids.append(batch_ids)
            counts.append(batch_counts)
        return np.concatenate(ids), np.concatenate(counts)

    def _encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ids = [np.array(encoding.ids, np.int64) for encoding in encodings]
        return np.concatenate(ids), np.array(list(map(len, ids)), np.int64)

    def huggingface(self) -> "Tokenizer":
        return self._tokenizer


class BpeTokenizer(HuggingFaceTokenizer, TrainableTokenizer):
    """Byte-level BPE (GPT-2's pattern within lines); a newline belongs to the line that it ends."""

    kind = "bpe"

    @classmethod
    def train(cls, texts: Iterable[Pieces], vocab_size: int | None, lowercase: bool, min_count: int = 1) -> Self:
        from tokenizers import pre_tokenizers, trainers

        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size or LARGEST_VOCABULARY,
            special_tokens=[EOS],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer = _bpe_layout(lowercase)
        batches = (list(_words_cut(batch)) for p in texts for batch in _batches(p.texts))
        stoppable(lambda stop: tokenizer.train_from_iterator(takewhile(lambda _: not stop.is_set(), batches), trainer))
        return cls(tokenizer)


def _bpe_layout(lowercase: bool) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.BPE())
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    lines = pre_tokenizers.Split("\n", "merged_with_previous")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([lines, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _words_cut(texts: Iterable[str]) -> Iterator[str]:
    """The same texts, cut where words are longer than `LONGEST_WORD`: learning takes quadratic time in their length.

    Such a word is an unbroken run of letters and digits, of signs, or of white space, in one line.
    """
    for text in texts:
        start = 0
        for run in _LONG_RUN.finditer(text) if len(text) > LONGEST_WORD else ():
            for cut in range(run.start() + LONGEST_WORD, run.end(), LONGEST_WORD):
                yield text[start:cut]
                start = cut
        yield text[start:]


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    start = characters = 0
    for number, text in enumerate(texts, start=1):
        characters += len(text)
        if characters >= BATCH_CHARACTERS or number == len(texts):
            yield texts[start:number]
            start, characters = number, 0
