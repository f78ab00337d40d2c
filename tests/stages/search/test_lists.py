"""Lists that stay in their file: what is written and read is what FAISS writes and reads."""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from stages.errors import ArtifactError
from stages.search.lists import InvertedLists, write_with_lists
from stages.search.open import open_searcher, read_index, stays_on_disk

DIM = 8
KINDS = pytest.mark.parametrize(
    "factory", ["IVF16,Flat", "IVF16,SQfp16", "IVF16,PQ4x4", "IVF300,Flat"]
)


def filled(factory: str, rows: int = 400, metric: int = faiss.METRIC_L2) -> Any:
    """An index; of 300 lists fewer than half hold keys."""
    keys = np.random.default_rng(0).standard_normal((rows, DIM), np.float32)
    index = faiss.index_factory(DIM, factory, metric)
    faiss.extract_index_ivf(index).cp.min_points_per_centroid = 1
    index.train(keys)
    index.add(keys[:100] if "300" in factory else keys)
    return index


def written(index: Any, folder: Path) -> Path:
    faiss.write_index(index, str(folder / "index.faiss"))
    return folder / "index.faiss"


@KINDS
def test_lists_in_a_file_are_those_in_memory(factory: str, tmp_path: Path) -> None:
    index = filled(factory)
    own, other = (
        InvertedLists(one) for one in (index, read_index(written(index, tmp_path), mapped=True))
    )
    assert not own.mapped
    assert other.mapped
    np.testing.assert_array_equal(own.sizes, other.sizes)
    for number in own.filled:
        np.testing.assert_array_equal(own.ids(number), other.ids(number))
        np.testing.assert_array_equal(own.codes(number), other.codes(number))
        np.testing.assert_array_equal(own.keys(number), other.keys(number))
        half = slice(int(own.sizes[number]) // 2, None)
        for lists in (own, other):
            np.testing.assert_array_equal(own.ids(number)[half], lists.ids(number, half))
            np.testing.assert_array_equal(own.codes(number)[half], lists.codes(number, half))


@pytest.mark.parametrize(
    "factory", ["IVF16,Flat", "IVF16,SQfp16", "IVF16,PQ4x4", "IVF300,Flat", "PCA4,IVF9,SQ8"]
)
def test_an_index_is_written_as_faiss_writes_it(factory: str, tmp_path: Path) -> None:
    index = filled(factory)
    path, ivf = written(index, tmp_path), faiss.extract_index_ivf(index)
    lists, empty = InvertedLists(ivf), filled(factory)
    empty.reset()
    pairs = ((lists.codes(n), lists.ids(n)) for n in lists.filled)
    write_with_lists(empty, index.ntotal, lists.sizes, pairs, tmp_path / "ours")
    assert (tmp_path / "ours").read_bytes() == path.read_bytes()


# Searching them


def little_memory(monkeypatch: pytest.MonkeyPatch, size: int = 10_000) -> None:
    monkeypatch.setattr("stages.search.open.free_memory_bytes", lambda: size)


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize(
    "factory", ["IVF16,Flat", "IVF16,SQfp16", "IVF16,PQ4x4", "IVF16_HNSW4,Flat"]
)
@pytest.mark.parametrize("width", [1, 151])
def test_what_is_found_is_the_same(
    factory: str,
    metric: str,
    device: str,
    width: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = filled(
        factory, metric=faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
    )
    path, settings, rows = (
        written(index, tmp_path),
        {"metric": metric, "probe": 3},
        np.arange(0, 400, 5),
    )
    queries = np.random.default_rng(1).standard_normal((80, DIM), np.float32)
    exclude = np.stack([rows - width // 2, rows + (width + 1) // 2], axis=1)
    held = open_searcher(path, settings, (400, DIM), device).search(queries, 30, exclude)
    little_memory(monkeypatch)
    searcher: Any = open_searcher(path, settings, (400, DIM), device)
    assert searcher.lists.mapped
    read = searcher.search(queries, 30, exclude)
    np.testing.assert_array_equal(held[0], read[0])
    np.testing.assert_array_equal(held[1], read[1])


def test_an_index_stays_on_the_disk_if_it_is_large_and_has_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(filled("IVF16,Flat"), tmp_path)
    assert not stays_on_disk(path)
    little_memory(monkeypatch, 2 * path.stat().st_size)
    assert not stays_on_disk(path)
    little_memory(monkeypatch, 2 * path.stat().st_size - 2)
    assert stays_on_disk(path)
    faiss.write_index(faiss.IndexFlatL2(2000), str(path))
    little_memory(monkeypatch, 2)
    assert not stays_on_disk(path)


@pytest.mark.parametrize("damage", ["rows", "length"])
def test_what_is_wrong_with_a_large_file_is_said(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(filled("IVF16,Flat"), tmp_path)
    raw = path.read_bytes()
    path.write_bytes(raw[:-8] + np.int64(400).tobytes() if damage == "rows" else raw[:-9])
    little_memory(monkeypatch)
    with pytest.raises(
        ArtifactError,
        match=r"names rows .* to 400 of 400" if damage == "rows" else "memlm build-index",
    ):
        open_searcher(path, {"metric": "l2", "probe": 3}, (400, DIM))
