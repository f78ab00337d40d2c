"""Forecast of `tokenize`: how many tokens a text has, and how large the artifact is.

A sample is scaled up. A vocabulary of words grows with the text, so nothing is known of a large
one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from stages.artifacts.stage import Inputs
from stages.forecasts import Cost, Forecast, Work
from stages.text.config import TokenizeConfig
from stages.text.documents import OPENS_DOCUMENT, OPENS_PARAGRAPH, MarkedPiece
from stages.text.records import TextFile, beginnings
from stages.text.spool import Pieces, batches
from stages.text.survey import text_bytes
from stages.text.tokenizer import EosRule, TextTokenizer
from stages.text.tokens import SPLITS
from stages.tokenization.aligned import SIDES, aligned_text
from stages.tokenization.assembly import array_layout
from stages.tokenization.corpora import ONE_CORPUS
from stages.tokenization.encoded import eos_rule, vocabulary_figures
from stages.tokenization.sources import TOKENIZER, TOKENIZER_FILE, text_files
from stages.tokenization.spooling import chosen_tokenizer

SAMPLE_BYTES = 4_000_000
"""Largest sample of a split, in bytes, taken in equal parts from its files."""
WORDS_BYTES = 64_000_000
"""Text of which the words are counted, all of them."""
SPLIT_WORD_BYTES = 5
"""Bytes of disk for each word while a vocabulary is made: its place, and its share of the shard's
words.
"""
COUNTS = ("tokens", "documents", "paragraphs", "bytes")


class TokenizeForecast(Forecast[TokenizeConfig]):
    """Counts all of a small text, and a sample of a large one."""

    def cost(self, config: TokenizeConfig, inputs: Inputs) -> Cost:
        found = _count_pairs(config, inputs) if config.is_aligned else _count_text(config, inputs)
        if found is None:
            return Cost()
        splits, tokenizer = found.splits, found.tokenizer
        tokens = sum(split["tokens"] + split.get("source_tokens", 0) for split in splits.values())
        words = (
            splits["train"]["tokens"] if config.tokenizer == "word" and not config.is_aligned else 0
        )
        return Cost(
            files=_files(splits, tokenizer),
            metrics={"splits": splits, **vocabulary_figures(config, tokenizer)},
            scratch=found.bytes + 2 * tokens * tokenizer.dtype.itemsize + SPLIT_WORD_BYTES * words,
            approximate=found.approximate,
            copies={TOKENIZER_FILE: TOKENIZER} if TOKENIZER in inputs else {},
        )

    def work(self, config: TokenizeConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        """Count the bytes of text."""
        read = sum(int(split["bytes"]) for split in metrics["splits"].values())
        return Work(
            read, "bytes", config.model_dump(include={"tokenizer", "lowercase", "documents"})
        )


class Found(NamedTuple):
    """Figures of a text that is not tokenized yet."""

    splits: dict[str, dict[str, int]]
    tokenizer: TextTokenizer
    bytes: int
    approximate: bool


def _count_text(config: TokenizeConfig, inputs: Inputs) -> Found | None:
    """Count a part of each split, and scale it up; None for a vocabulary of words of a large text."""
    everything = {role: text_files(inputs, config, role) for role in (ONE_CORPUS, *SPLITS)}
    texts = {role: files for role, files in everything.items() if files}
    sizes = {role: text_bytes(files) for role, files in texts.items()}
    learnt = next((role for role in (ONE_CORPUS, "train") if role in texts), "")
    if config.tokenizer == "word" and sizes.get(learnt, 0) > WORDS_BYTES:
        return None
    most = max(sizes.values()) if config.tokenizer == "word" else SAMPLE_BYTES
    documents = config.documents or "file"
    tokenizer = chosen_tokenizer(config, inputs, _pieces(texts.get(learnt, []), documents, most))
    counted = {
        role: _counts(_pieces(files, documents, most), tokenizer) for role, files in texts.items()
    }
    figures = {
        role: _scaled(counts, sizes[role] / max(1, counts["bytes"]))
        for role, counts in counted.items()
    }
    part = any(counts["bytes"] < sizes[role] for role, counts in counted.items())
    shares = dict(zip(SPLITS, config.split or (), strict=False)) if ONE_CORPUS in figures else {}
    for split, share in shares.items():
        figures[split] = {name: round(count * share) for name, count in figures[ONE_CORPUS].items()}
    approximate = figures.pop(ONE_CORPUS, None) is not None or part
    return Found(figures, tokenizer, sum(sizes.values()), approximate)


def _count_pairs(config: TokenizeConfig, inputs: Inputs) -> Found:
    """Count all pairs: only the beginnings of two files are sure to belong together, so no sample
    is drawn.
    """
    pairs = aligned_text(inputs, config)
    learnt = (
        part for side in SIDES if "train" in pairs for part in _cut(pairs["train"].pieces(side))
    )
    tokenizer = chosen_tokenizer(config, inputs, learnt)
    rule = eos_rule(tokenizer, aligned=True)
    splits, size = {}, 0
    for split, text in pairs.items():
        counted = {side: _counts(_cut(text.pieces(side)), tokenizer, rule) for side in SIDES}
        splits[split] = _scaled(counted["target"]) | {"source_tokens": counted["source"]["tokens"]}
        size += sum(counts["bytes"] for counts in counted.values())
    return Found(splits, tokenizer, size, False)


def _counts(
    parts: Iterable[Pieces], tokenizer: TextTokenizer, rule: EosRule | None = None
) -> Counter[str]:
    """Counts of some text, by their names in `COUNTS`."""
    found = Counter[str]()
    for pieces in parts:
        found["tokens"] += len(tokenizer.encode(pieces, rule)[0])
        found["documents"] += len(pieces.where(OPENS_DOCUMENT))
        found["paragraphs"] += len(pieces.where(OPENS_PARAGRAPH))
        found["bytes"] += sum(len(text.encode()) for text in pieces.texts)
    return found


def _scaled(counts: Counter[str], factor: float = 1.0) -> dict[str, int]:
    return {name: round(counts[name] * factor) for name in COUNTS}


def _pieces(files: list[TextFile], documents: str, most: int) -> Iterator[Pieces]:
    """The beginning of each file, in pieces like the shards of a spool."""
    for file in files:
        yield from _cut(beginnings([file], documents, most / len(files)))


def _cut(pieces: Iterable[MarkedPiece]) -> Iterator[Pieces]:
    """Text in parts as large as shards of a spool."""
    for batch in batches(pieces):
        yield Pieces(
            [piece.text for piece in batch], np.array([piece.marks for piece in batch], np.uint8)
        )


def _files(splits: dict[str, dict[str, int]], tokenizer: TextTokenizer) -> dict[str, int]:
    files = {TOKENIZER_FILE: len(tokenizer.huggingface().to_str(pretty=True).encode())}
    for split, counts in splits.items():
        rows = {
            "ids": (counts["tokens"], tokenizer.dtype),
            "doc_offsets": (counts["documents"] + 1, np.dtype(np.int64)),
            "paragraph_ends": (counts["paragraphs"], np.dtype(np.int64)),
            "paragraph_hashes": (counts["paragraphs"], np.dtype(np.uint64)),
        }
        if "source_tokens" in counts:
            rows["source_ids"] = (counts["source_tokens"], tokenizer.dtype)
            rows["source_offsets"] = (counts["documents"] + 1, np.dtype(np.int64))
        layouts = [
            array_layout(f"{split}/{name}", count, dtype) for name, (count, dtype) in rows.items()
        ]
        files |= {f"{layout.name}/c/0": layout.stored_bytes for layout in layouts}
    return files
