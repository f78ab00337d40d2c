import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import DataError
from stages.text import spool as module
from stages.text.config import Documents
from stages.text.spool import Spool, cut_by_shares, write_spool
from tests.stages.text.helpers import examples, marked


def split_texts(folder: Path, documents: list[str], shares: list[float], given: Documents | None = None) -> list[str]:
    """The text of each split of documents of one line each."""
    pieces = iter(marked("".join(documents), "line"))
    shards = list(write_spool(pieces, 0, lambda name: folder / name))
    spool = Spool(folder)
    parts = cut_by_shares(spool, shards, shares, given)
    return ["".join("".join(spool.pieces(r).texts) for r in part) for part in parts]


def slow_split(documents: list[str], shares: list[float]) -> list[str]:
    """Try every legal cut, the first of the nearest wins."""
    total, cuts = len("".join(documents)), [0]
    for part in range(1, len(shares)):
        target = sum(shares[:part]) * total
        legal = range(cuts[-1] + 1, len(documents) - len(shares) + part + 1)
        cuts.append(min(legal, key=lambda cut: abs(len("".join(documents[:cut])) - target)))
    bounds = [*cuts, len(documents)]
    return ["".join(documents[a:b]) for a, b in itertools.pairwise(bounds)]


@examples
@given(
    lengths=st.lists(st.integers(1, 30), min_size=3, max_size=15),
    shares=st.sampled_from([[0.9, 0.05, 0.05], [0.8, 0.1, 0.1], [0.25, 0.25, 0.5], [0.05, 0.05, 0.9]]),
    shard=st.integers(1, 60),
)
def test_cuts_are_the_nearest_legal_ones(
    lengths: list[int], shares: list[float], shard: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    documents = [chr(97 + i) * length + "\n" for i, length in enumerate(lengths)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SHARD_CHARACTERS", shard)
        found = split_texts(tmp_path_factory.mktemp("spool"), documents, shares)
    assert found == slow_split(documents, shares)


def test_fewer_documents_than_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="The text has 2 documents, too few for 3 splits"):
        split_texts(tmp_path, ["a\n", "b\n"], [0.8, 0.1, 0.1])
    with pytest.raises(DataError, match="The text has 1 document, too few"):
        split_texts(tmp_path, ["a\n"], [0.8, 0.1, 0.1])


@pytest.mark.parametrize(
    ("given", "advised"),
    [
        (None, "give more files, let paragraphs or lines be documents (--documents blank-line, --documents line), or"),
        ("blank-line", "give more files, let lines be documents (--documents line), or"),
        ("line", "give more text, or"),
        ("jsonl", "give more files, or"),
    ],
)
def test_only_other_documents_than_those_that_are_given_are_advised(
    given: Documents | None, advised: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as caught:
        split_texts(tmp_path, ["a\n"], [0.8, 0.1, 0.1], given)
    assert f"splits: {advised} name the files with --train, --valid and --test." in str(caught.value)
