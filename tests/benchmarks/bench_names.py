"""What a longer memory gains on names, by how far back each was used last: of two reports of the
same weights.

    memlm evaluate MODEL --long-length 0 --save-token-scores
    memlm evaluate MODEL --long-length 8192 --save-token-scores
    python -m tests.benchmarks.bench_names REPORT REPORT [--store STORE --limits 768 8192]

A name is a word of three letters or more that is capital wherever its book has it. A row for all
tokens, and one for the names last used within each limit, as reach of attention and of the memory,
and farther back. It has their words and tokens, nats a token of both reports, and what the second
gains, with the 95 % interval over tokens.
"""

import argparse
import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stages.artifacts.store import Store
from stages.evaluation.figures.token_scores import open_scores
from stages.lineage.corpus import token_text
from stages.numbers import bucket_label


class Word(NamedTuple):
    """Tokens [start, stop) of a book, and what they spell."""

    start: int
    stop: int
    text: str


class Name(NamedTuple):
    """A word that is a name, and how many tokens before it the same was used last."""

    word: Word
    back: int


def words_of(pieces: Sequence[str]) -> Iterator[Word]:
    """Runs of letters; a token that begins with no letter begins the next."""
    starts = [place for place, piece in enumerate(pieces) if not piece[:1].isalpha()]
    for start, stop in pairwise(sorted({0, *starts, len(pieces)})):
        yield Word(start, stop, "".join(pieces[start:stop]).strip())


def names_of(words: Sequence[Word]) -> Iterator[Name]:
    """Those that were used before, in order."""
    small = {word.text.lower() for word in words if word.text[:1].islower()}
    last = dict[str, int]()
    for word in words:
        text = word.text
        if (
            len(text) < 3
            or not text.isalpha()
            or text.isupper()
            or not text[0].isupper()
            or text.lower() in small
        ):
            continue
        if text in last:
            yield Name(word, word.start - last[text])
        last[text] = word.start


def gained(first: np.ndarray, second: np.ndarray) -> dict[str, float]:
    """Nats a token, what the second gains, and half of its 95 % interval."""
    gain = first - second
    return {
        "first": round(float(first.mean()), 4),
        "second": round(float(second.mean()), 4),
        "gain": round(float(gain.mean()), 4),
        "interval": round(float(1.96 * gain.std() / len(gain) ** 0.5), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", nargs=2)
    parser.add_argument("--store", default="memlm-store")
    parser.add_argument(
        "--limits", type=int, nargs="+", default=[768, 8192], help="positions back, rising"
    )
    given = parser.parse_args()
    store = Store(given.store)
    scores = [open_scores(store.get(reference, "report"), "final") for reference in given.reports]
    tokens, split = scores[0].tokens, scores[0].split
    arrays = tokens.zarr("tokens.zarr")[split]
    ids, offsets = arrays["ids"][:], arrays["doc_offsets"][:]
    if (
        not len(ids) == len(scores[0]) == len(scores[1])
        or (scores[0].targets[:] != scores[1].targets[:]).any()
    ):
        parser.error("the reports must be of the same tokens, all of them scored")
    nll = [one.nll(0, len(ids)) for one in scores]
    rows = [{"name": "all", "tokens": len(ids), **gained(*nll)}]
    ends = [*given.limits, None]
    labels = [
        f"names, {bucket_label(low, high)} back"
        for low, high in zip([0, *given.limits], ends, strict=True)
    ]
    text, groups = token_text(tokens), dict[str, list[np.ndarray]]((label, []) for label in labels)
    for first, last in pairwise(offsets.tolist()):
        for word, back in names_of(list(words_of(text.pieces(ids[first:last].tolist())))):
            groups[labels[bisect_left(given.limits, back)]].append(
                first + np.arange(word.start, word.stop)
            )
    for name, found in groups.items():
        if found:
            at = np.concatenate(found)
            row = {"name": name, "words": len(found), "tokens": len(at)}
            rows.append(row | gained(*(one[at] for one in nll)))
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
