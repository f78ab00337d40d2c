"""One shard of text as ids: what each leaves in the draft's scratch folder, and what it counts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from stages.array_files import save_arrays
from stages.artifacts.output import ShardOutput
from stages.text.documents import ENDS_LINE, OPENS_DOCUMENT, OPENS_PARAGRAPH
from stages.text.given import open_tokenizer
from stages.text.spool import Pieces, Spool
from stages.text.tokenizer import TextTokenizer
from stages.text.vocabulary import words
from stages.tokenization.sources import TOKENIZER_FILE
from stages.tokenization.spooling import SPOOL, TextShard


@dataclass(frozen=True)
class Work:
    """What reading the spool takes."""

    spool: Spool
    tokenizer: TextTokenizer

    @classmethod
    def open(cls, folder: Path) -> Self:
        """That of a draft's folder."""
        return cls(Spool(folder / SPOOL), open_tokenizer(folder / TOKENIZER_FILE))


def encode_shard(folder: Path, work: Work, shard: TextShard) -> ShardOutput:
    """Save a shard's ids, and the tokens at which its documents and paragraphs begin; the record counts them."""
    pieces = work.spool.pieces(shard.text)
    ids, ends = work.tokenizer.encode(pieces)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    documents = starts[pieces.where(OPENS_DOCUMENT)]
    paragraphs = starts[pieces.where(OPENS_PARAGRAPH)]
    record = {
        "tokens": len(ids),
        "documents": len(documents),
        "paragraphs": len(paragraphs),
        "unknown": int(np.count_nonzero(ids == work.tokenizer.unk_id)),
        **_text_size(pieces),
    }
    output = ShardOutput(folder, record)
    for name, values in {"ids": ids, "documents": documents, "paragraphs": paragraphs}.items():
        save_arrays(output.add(scratch_file(shard, name)), values)
    return output


def scratch_file(shard: TextShard, name: str) -> str:
    """Where a shard leaves its `ids`, `documents` or `paragraphs`."""
    return f"scratch/{name}/{shard.key}.npy"


def _text_size(pieces: Pieces) -> dict[str, int]:
    """Characters and bytes as read, newlines included; words between white space, plus one a line."""
    return {
        "characters": sum(map(len, pieces.texts)),
        "bytes": sum(len(text.encode()) for text in pieces.texts),
        "words": sum(len(words(text)) for text in pieces.texts) + len(pieces.where(ENDS_LINE)),
    }
