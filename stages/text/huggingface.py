"""Hugging Face tokenizers: byte-level BPE trained here, any `tokenizer.json`, and those of
pretrained models.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from threading import Event
from typing import Self

import numpy as np
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from stages.errors import DataError, content_of
from stages.interrupts import stoppable
from stages.text.config import LARGEST_VOCABULARY
from stages.text.documents import ENDS_DOCUMENT
from stages.text.simple_tokenizers import ByteTokenizer, CharTokenizer, SplitText, WordTokenizer
from stages.text.spool import Pieces
from stages.text.tokenizer import EOS, UNK, EosRule, TextTokenizer, TrainableTokenizer

LONGEST_WORD = 1000
"""Longest word, in characters, for learning merges; longer runs are cut."""
_LONG_RUN = re.compile(
    rf"\w{{{LONGEST_WORD + 1},}}|(?:[^\w\s]|_){{{LONGEST_WORD + 1},}}|\s{{{LONGEST_WORD + 1},}}"
)
BATCH_CHARACTERS = 2**18
"""Characters encoded at once: an encoding takes a hundred times the memory of its ids."""
_WORD_BEGINS = re.compile(r"(?<=\S)(?= \S)")
"""Where GPT-2's pattern cuts any text: before a single space. Several stay whole, as they are
before an added token.
"""


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Turn any exception of the library into a DataError that begins with `what`.

    The library raises bare Exceptions. If its Rust code panics, it raises a BaseException of a
    class that cannot be imported.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise DataError(f"{what}: {error}.") from error
        raise


class LibraryTokenizer(TextTokenizer):
    """A tokenizer of Hugging Face's library, with the id of the token after each document."""

    eos_after = "document"

    def __init__(self, tokenizer: Tokenizer, eos_id: int) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.eos_id = eos_id
        self.unk_id = vocabulary.get(getattr(tokenizer.model, "unk_token", None) or UNK)
        self.vocabulary_size = max(vocabulary.values()) + 1
        self._tokenizer = tokenizer

    def huggingface(self) -> Tokenizer:
        return self._tokenizer


class HuggingFaceTokenizer(LibraryTokenizer):
    """Encodes lines one by one; `<eos>` is added to a vocabulary that lacks it."""

    kind = "given"

    def __init__(self, tokenizer: Tokenizer) -> None:
        if tokenizer.token_to_id(EOS) is None:
            tokenizer.add_special_tokens([EOS])
        super().__init__(tokenizer, tokenizer.get_vocab()[EOS])
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {EOS}", special_tokens=[(EOS, self.eos_id)]
        )
        self._by_word = _cuts_as_bpe(tokenizer)

    def encode_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        if not self._by_word:
            return self._encode(texts)

        # A distinct word is encoded once, which takes less than half the time.
        split = SplitText.of(texts, lowercase=False, cut=_WORD_BEGINS.split)
        word_ids, sizes = self._encode(split.words)
        word_starts = np.cumsum(sizes) - sizes

        # [places]: ids of the word at each place of the texts
        starts = word_starts[split.places]
        lengths = sizes[split.places]
        ends = np.cumsum(lengths)

        # [tokens]: number of the token within its word
        total = lengths.sum()
        within = np.arange(total) - np.repeat(ends - lengths, lengths)
        ids = word_ids[np.repeat(starts, lengths) + within]

        # tokens up to the end of each text
        last_places = np.cumsum(split.counts) - 1
        counts = np.diff(ends[last_places], prepend=0)
        return ids, counts

    def _encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        ids = list[int]()
        counts = list[int]()
        for batch in _batches(texts):
            with library_errors("The tokenizer cannot read the text"):
                # The fast variant computes no offsets, which are not needed here.
                encodings = self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            for encoding in encodings:
                counts.append(len(encoding))
                ids.extend(encoding.ids)
        return np.array(ids, np.int64), np.array(counts, np.int64)


class BpeTokenizer(HuggingFaceTokenizer, TrainableTokenizer):
    """Byte-level BPE (GPT-2's pattern within lines); a newline belongs to the line that it ends."""

    kind = "bpe"

    @classmethod
    def train(
        cls, texts: Iterable[Pieces], vocab_size: int | None, lowercase: bool, min_count: int = 1
    ) -> Self:
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size or LARGEST_VOCABULARY,
            special_tokens=[EOS],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer = _bpe_layout(lowercase)
        batches = (list(_words_cut(batch)) for p in texts for batch in _batches(p.texts))

        def learn(stop: Event) -> None:
            # the library knows no interrupt: its text ends instead
            until_stopped = takewhile(lambda _: not stop.is_set(), batches)
            tokenizer.train_from_iterator(until_stopped, trainer)

        stoppable(learn)
        return cls(tokenizer)


def _bpe_layout(lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    lines = pre_tokenizers.Split("\n", "merged_with_previous")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([lines, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _cuts_as_bpe(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer cuts text as those made here, and gives a word the same ids wherever it
    stands.
    """
    layout = _bpe_layout(lowercase=tokenizer.normalizer is not None)
    cuts = (str(tokenizer.normalizer), str(tokenizer.pre_tokenizer)) == (
        str(layout.normalizer),
        str(layout.pre_tokenizer),
    )
    added = tokenizer.get_added_tokens_decoder().values()
    spaced = any(token.lstrip or token.rstrip or " " in token.content for token in added)
    return (
        cuts
        and not spaced
        and isinstance(tokenizer.model, models.BPE)
        and not tokenizer.model.dropout
    )


def _words_cut(texts: Iterable[str]) -> Iterator[str]:
    """The same texts, with words cut after `LONGEST_WORD` characters: learning takes quadratic time
    in a word's length.

    A word is an unbroken run of letters and digits, of signs, or of white space, in one line.
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
            start = number
            characters = 0


AROUND_CUT = 100
"""Characters on either side of a cut that are enough to see whether it changes a token."""


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of a pretrained model's special tokens, which never stand for text."""

    eos: int
    """Added after every document."""
    start: int
    """The first input of a split."""
    prefix: int | None
    """Token that the model expects before every window (`bos`); None: none."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file of `write`. Raises: ArtifactError if it holds something else."""
        with content_of(path):
            return cls(**json.loads(path.read_text("utf-8")))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)) + "\n", "utf-8")


class PretrainedTokenizer(LibraryTokenizer):
    """Encodes whole documents, because a token may span lines. Adds nothing to the vocabulary."""

    kind = "pretrained"
    FILE = "special-tokens.json"
    """File of the special tokens, next to `tokenizer.json`."""
    files = (FILE,)

    def __init__(self, tokenizer: Tokenizer, special: SpecialTokens) -> None:
        super().__init__(tokenizer, special.eos)
        self.special = special
        self._byte_level = "ByteLevel(" in str(tokenizer.pre_tokenizer)

    @property
    def special_ids(self) -> dict[str, int | None]:
        return {"start_id": self.special.start, "prefix_id": self.special.prefix}

    def exported(self) -> Tokenizer:
        """The tokenizer as its authors made it."""
        return self.huggingface()

    @property
    def control_tokens(self) -> dict[int, str]:
        """Special tokens by id, but for the one of unknown text, which no text has to spell."""
        unknown = getattr(self._tokenizer.model, "unk_token", None)
        added = self._tokenizer.get_added_tokens_decoder()
        return {
            id: token.content
            for id, token in added.items()
            if token.special and token.content != unknown
        }

    def encode_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return self._joined(texts)

    def may_cut(self, before: str, after: str) -> bool:
        """A byte-level tokenizer may cut between a newline without white space before it, and a
        letter.

        Other tokenizers treat the beginning of a text differently: a Metaspace puts a mark there.
        Whether the pre-tokenizer splits the text at the cut is tested on the characters around it.
        """
        newline = before.endswith("\n") and not before[-2:-1].isspace() and len(before) > 1
        if not (self._byte_level and newline and after[:1].isalpha()):
            return False
        end = before[-AROUND_CUT:]
        beginning = after[:AROUND_CUT]
        return self._parts(end + beginning) == self._parts(end) + self._parts(beginning)

    def encode(self, pieces: Pieces, rule: EosRule | None = None) -> tuple[np.ndarray, np.ndarray]:
        assert rule in (None, self.eos_after), "its library knows no other"
        ends = (pieces.where(ENDS_DOCUMENT) + 1).tolist()
        ids = []
        counts = []
        # a document is encoded as a whole, because tokens may go on past pieces
        for start, stop in pairwise([0, *ends, len(pieces.texts)]):
            document_ids, document_counts = self._joined(pieces.texts[start:stop])
            ids.append(document_ids)
            counts.append(document_counts)
        return self.closed(np.concatenate(ids), np.concatenate(counts), pieces.marks)

    def save(self, path: Path) -> None:
        super().save(path)
        self.special.write(path.with_name(self.FILE))

    def _parts(self, text: str) -> list[str]:
        """The parts of a text that are encoded separately."""
        if self._tokenizer.normalizer is not None:
            text = self._tokenizer.normalizer.normalize_str(text)
        return [part for part, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(text)]

    def _joined(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of the joined texts, int64 [T], and number of tokens that begin in each text, int64
        [P].
        """
        if not texts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        with library_errors("The tokenizer cannot read the text"):
            encoding = self._tokenizer.encode("".join(texts), add_special_tokens=False)
        ids = np.array(encoding.ids, np.int64)
        starts = np.fromiter((start for start, _ in encoding.offsets), np.int64, len(ids))

        # A token counts for the text in which it begins; places never decrease.
        rising_starts = np.maximum.accumulate(starts)
        text_ends = np.cumsum([len(text) for text in texts])
        text_of_token = np.searchsorted(text_ends, rising_starts, side="right")
        # a token that begins at the end of all is of the last text
        num_texts = len(texts)
        text_of_token = text_of_token.clip(max=num_texts - 1)
        return ids, np.bincount(text_of_token, minlength=num_texts)


def open_tokenizer(path: Path | str) -> TextTokenizer:
    """The tokenizer in a file of Hugging Face's format.

    Raises: DataError if the file holds no tokenizer, or one that cannot work.
    """
    library_tokenizer = load_tokenizer(Path(path))
    special = Path(path).with_name(PretrainedTokenizer.FILE)
    if special.is_file():
        return PretrainedTokenizer(library_tokenizer, SpecialTokens.read(special))
    content = library_tokenizer.to_str()
    # A tokenizer made here is recognized by its whole file: the same content gives the same ids.
    matching = (
        tokenizer
        for tokenizer in _own_kinds(library_tokenizer)
        if tokenizer.huggingface().to_str() == content
    )
    return next(matching, None) or HuggingFaceTokenizer(library_tokenizer)


def load_tokenizer(path: Path) -> Tokenizer:
    """The library's tokenizer from a file, with its ids and unknown token checked.

    Raises: see `open_tokenizer`.
    """
    with library_errors(f"{path} is no tokenizer in Hugging Face's JSON format"):
        tokenizer: Tokenizer = Tokenizer.from_file(str(path))
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    # Checked first: the library counts from 0 to the largest id when it writes a vocabulary.
    if not vocabulary:
        raise DataError(f"{path} is no usable tokenizer: its vocabulary is empty.")
    if (largest := max(vocabulary.values())) >= LARGEST_VOCABULARY:
        raise DataError(
            f"{path} is no usable tokenizer: it has a token {largest:,}; ids below {LARGEST_VOCABULARY:,} are read."
        )
    unknown = getattr(tokenizer.model, "unk_token", None)
    if unknown is not None and unknown not in vocabulary:
        raise DataError(
            f"{path} is no usable tokenizer: its unknown token {unknown!r} is not in its vocabulary."
        )
    return tokenizer


def _own_kinds(library_tokenizer: Tokenizer) -> Iterator[TextTokenizer]:
    """Our own tokenizers of every kind, built with the given vocabulary."""
    vocabulary = library_tokenizer.get_vocab()
    if set(vocabulary.values()) != set(range(len(vocabulary))):
        return
    for lowercase in (False, True):
        if (
            isinstance(library_tokenizer.model, models.WordLevel)
            and {EOS, UNK} <= vocabulary.keys()
        ):
            yield WordTokenizer(vocabulary, lowercase)
            yield CharTokenizer(vocabulary, lowercase)
        elif len(vocabulary) == ByteTokenizer.vocabulary_size:
            yield ByteTokenizer(lowercase)
