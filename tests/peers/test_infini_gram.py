"""Matches and counts beside the engine of infini-gram (Liu et al. 2024), where it is there: pip
install infini-gram.

Its index is written here as its files are read: documents with a mark before each, and the sorted
places of all tokens.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.suffixes.matches import SortedContexts
from stages.suffixes.text import Text

infini_gram = pytest.importorskip("infini_gram.engine", reason="pip install infini-gram")
VOCABULARY, TOKENS, MARK = 7, 400, 65_535  # ids of text begin at 1: 0 is its `eos`


def engine_of(folder: Path, documents: list[np.ndarray]) -> Any:
    """Its engine over documents."""
    marked = np.concatenate([np.append(np.uint16(MARK), one) for one in documents]).astype("<u2")
    data = marked.tobytes()
    places = sorted(range(0, len(data), 2), key=lambda place: data[place:])
    width = (len(data).bit_length() + 7) // 8
    starts = np.cumsum([0, *(2 * len(one) + 2 for one in documents[:-1])])
    (folder / "tokenized.0").write_bytes(data)
    (folder / "table.0").write_bytes(b"".join(place.to_bytes(width, "little") for place in places))
    (folder / "offset.0").write_bytes(starts.astype("<u8").tobytes())
    return infini_gram.InfiniGramEngine(index_dir=str(folder), eos_token_id=0, vocab_size=MARK)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_longest_match_and_what_follows_it_are_counted_alike(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    ids = random.integers(1, VOCABULARY, TOKENS).astype(np.uint16)
    ids[200:300] = ids[50:150]
    offsets = np.array([0, 120, 121, 310, TOKENS])
    engine = engine_of(tmp_path, np.split(ids, offsets[1:-1]))
    contexts = SortedContexts.of(Text.of(ids, offsets, VOCABULARY))
    asked = random.integers(1, VOCABULARY, 80).astype(np.uint16)
    asked[20:60] = ids[210:250]
    text = Text.of(asked, np.array([0, 80]), VOCABULARY)
    places = np.arange(1, 80)
    found = contexts.best(contexts.locate(text, places), TOKENS)
    for place, matches, shared in zip(places, *found, strict=True):
        length = int(min(shared[0], place))
        longest = ids[matches[np.minimum(shared, place) >= max(length, 1)]]
        context = asked[place - length : place].tolist()
        counted = [engine.count([*context, token])["count"] for token in range(VOCABULARY)]
        if length:
            assert counted == np.bincount(longest, minlength=VOCABULARY).tolist()
        longer = asked[max(place - length - 1, 0) : place].tolist()
        assert length == place or not any(
            engine.count([*longer, token])["count"] for token in range(VOCABULARY)
        )
