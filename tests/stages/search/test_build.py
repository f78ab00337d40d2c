from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from stages.errors import ArtifactError, UsageError
from stages.search import build
from stages.search.automatic import index_bytes, is_lossless, resolve
from stages.search.config import IndexConfig, Keys
from stages.search.exact import ExactSearcher
from stages.search.factory import empty_index, refusals
from stages.search.keys import StoredKeys, widened
from stages.search.open import open_searcher, read_index
from stages.search.quality import Recalled, measure, recall
from stages.search.searcher import Searcher

FEW_CODES = {"index": "ivf-pq", "code_bytes": 1, "code_bits": 4}
"""Two codes of 16 centroids each: learning these takes longest."""


def stored(dtype: str = "float16", rows: int = 600, dim: int = 8) -> StoredKeys:
    keys = np.random.default_rng(0).standard_normal((rows, dim)).astype(dtype)
    return StoredKeys(keys, rows_per_shard=70)


def resolved(keys: StoredKeys, **settings: Any) -> IndexConfig:
    return resolve(IndexConfig(**settings), Keys(keys.rows, keys.dim, keys.dtype.name))


def in_parts(config: IndexConfig, keys: StoredKeys, folder: Path, sizes: list[range]) -> Path:
    trained = folder / "trained"
    build.train(config, keys, trained)
    parts = []
    for number, shards in enumerate(sizes):
        parts.append(folder / f"part-{number}")
        build.write_part(read_index(trained), keys, shards, parts[-1])
    sources = [build.FilledLists.read(part) for part in parts]
    build.merge(read_index(trained), sources, keys.rows, folder / "index.faiss")
    return folder / "index.faiss"


@pytest.mark.parametrize(
    "settings",
    [{"index": "ivf-flat"}, FEW_CODES, {"index": "PCA4,IVF9,SQ8"}],
)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_parts_make_the_same_index_as_one_piece(
    tmp_path: Path, settings: dict[str, Any], dtype: str
) -> None:
    keys = stored(dtype)
    config = resolved(keys, **settings)
    index = in_parts(config, keys, tmp_path, [range(0, 4), range(4, 5), range(5, keys.shards)])
    build.build_whole(read_index(tmp_path / "trained"), keys, tmp_path / "whole")
    searchers = [
        open_searcher(path, config.model_dump(), (keys.rows, keys.dim))
        for path in (index, tmp_path / "whole")
    ]
    queries = keys.rows_between(0, 50).astype(np.float32)
    (ids, distances), (want_ids, want_distances) = (s.search(queries, 9) for s in searchers)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_array_equal(distances, want_distances)


def test_the_same_work_gives_the_same_bytes(tmp_path: Path) -> None:
    keys = stored()
    config = resolved(keys, **FEW_CODES)
    files = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        files.append(
            in_parts(
                config, keys, tmp_path / name, [range(0, 4), range(4, keys.shards)]
            ).read_bytes()
        )
    assert files[0] == files[1]


@pytest.mark.parametrize("settings", [{"index": "ivf-flat"}, FEW_CODES, {"index": "IVF9,SQ8"}])
@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_what_is_learned_and_added_is_what_faiss_learns_and_adds(
    tmp_path: Path, settings: dict[str, Any], metric: str
) -> None:
    keys = stored()
    config = resolved(keys, metric=metric, **settings)
    own = empty_index(config, keys.dim, "float16")
    own.train(build.training_sample(keys, 600, config.seed))
    own.add(widened(keys.rows_between(0, 600)))
    build.write_index(own, tmp_path / "own")
    assert (
        in_parts(config, keys, tmp_path, [range(keys.shards)]).read_bytes()
        == (tmp_path / "own").read_bytes()
    )


def test_a_part_of_which_no_row_is_wanted_holds_none(tmp_path: Path) -> None:
    keys = stored()
    build.train(resolved(keys, index="ivf-flat"), keys, tmp_path / "trained")
    trained = read_index(tmp_path / "trained")
    assert build.write_part(trained, keys, [0, 1], tmp_path / "part", lambda rows: rows < 0) == 0


def test_another_seed_gives_another_index(tmp_path: Path) -> None:
    keys = stored()
    for seed in (0, 1):
        build.train(
            resolved(keys, index="ivf-flat", seed=seed, train_keys=300), keys, tmp_path / str(seed)
        )
    assert (tmp_path / "0").read_bytes() != (tmp_path / "1").read_bytes()


def test_lists_of_half_precision_keys_lose_nothing(tmp_path: Path) -> None:
    keys = stored("float16")
    config = resolved(keys, index="ivf-flat", lists=8, probe=8)
    path = in_parts(config, keys, tmp_path, [range(keys.shards)])
    searcher = open_searcher(path, config.model_dump(), (keys.rows, keys.dim))
    ids, distances = searcher.search(keys.rows_between(0, 600).astype(np.float32), 1)
    np.testing.assert_array_equal(ids[:, 0], np.arange(600))
    np.testing.assert_array_equal(distances, 0)
    assert searcher.lossless
    assert path.stat().st_size < 600 * (2 * 8 + 8) + 4096


@pytest.mark.parametrize("kind", ["SQfp16", "IVF4,SQfp16", "HNSW8_SQfp16"])
def test_keys_that_half_precision_cannot_hold_are_refused(tmp_path: Path, kind: str) -> None:
    """FAISS holds them as infinity, and answers -1 to every query (its issue 5286)."""
    keys = stored("float32", rows=200)
    large = StoredKeys(keys.rows_between(0, 200) * np.float32(1e5), rows_per_shard=70)
    config = resolved(large, index=kind)
    with pytest.raises(UsageError, match="numbers up to 65,504"):
        build.add_keys(build.trained_index(config, large), large)
    if kind.startswith("IVF"):
        with pytest.raises(UsageError, match="numbers up to 65,504"):
            in_parts(config, large, tmp_path, [range(large.shards)])


@pytest.mark.parametrize("kind", ["SQbf16", "IVF4,SQ8", "flat", "IVF4,PQ4x4", "hnsw"])
def test_large_keys_are_found_by_kinds_that_hold_them(kind: str) -> None:
    keys = stored("float32", rows=200)
    large = StoredKeys(keys.rows_between(0, 200) * np.float32(1e5), rows_per_shard=70)
    index = build.trained_index(resolved(large, index=kind), large)
    build.add_keys(index, large)
    _, rows = index.search(large.rows_between(0, 30), 1)
    assert (rows >= 0).all()


def test_half_of_the_largest_offset_is_held_as_a_residual() -> None:
    """Keys far from 0 and near each other: residuals are small, so nothing is refused."""
    keys = stored("float32", rows=200)
    far = StoredKeys(keys.rows_between(0, 200) + np.float32(1e5), rows_per_shard=70)
    index = build.trained_index(resolved(far, index="IVF4,SQfp16"), far)
    build.add_keys(index, far)
    assert index.ntotal == 200


def test_a_missing_part_is_noticed(tmp_path: Path) -> None:
    keys = stored()
    config = resolved(keys, index="ivf-flat")
    with pytest.raises(ArtifactError, match="560 of 600 keys"):
        in_parts(config, keys, tmp_path, [range(0, keys.shards - 1)])


def test_a_file_that_is_no_index_is_named(tmp_path: Path) -> None:
    (tmp_path / "index.faiss").write_bytes(b"nothing of the kind")
    with pytest.raises(ArtifactError, match=r"index\.faiss.*memlm build-index"):
        open_searcher(tmp_path / "index.faiss", {"metric": "l2", "probe": None}, (1, 1))


def test_kinds_without_lists_grow_in_one_piece(tmp_path: Path) -> None:
    keys = stored()
    for kind in ("flat", "hnsw", "IVF8,PQ4x4fs,RFlat", "IVF8,FlatDedup"):
        build.train(resolved(keys, index=kind), keys, tmp_path / "trained")
        index = read_index(tmp_path / "trained")
        assert not build.grows_in_parts(index)
        build.build_whole(index, keys, tmp_path / "index")
        assert read_index(tmp_path / "index").ntotal == 600


def test_recall_counts_true_neighbours_among_those_found() -> None:
    true, found = np.array([[1, 2, 3], [4, 5, -1]]), np.array([[2, 1, 9], [5, 7, -1]])
    assert recall(found, true, 1) == 0
    assert recall(found, true, 2) == 3 / 4
    assert recall(found, true, 3) == 3 / 5
    assert recall(found, np.full((2, 1), -1), 1) == 1


@pytest.mark.parametrize("k", [1, 3, 8])
def test_the_error_of_recall_is_that_of_a_mean_over_queries(k: int) -> None:
    random = np.random.default_rng(0)
    true = np.stack([random.permutation(40)[:8] for _ in range(50)])
    found = np.stack(
        [random.permutation(np.concatenate([row[:5], 100 + row[:5]]))[:8] for row in true]
    )
    shares = np.array(
        [len({*f[:k].tolist()} & {*t[:k].tolist()}) / k for f, t in zip(found, true, strict=True)]
    )
    recalled = Recalled(found, true)
    assert recalled.pool(k) == pytest.approx(shares.mean())
    assert recalled.standard_error(k) == pytest.approx(shares.std(ddof=1) / np.sqrt(50))
    assert Recalled(true, true).standard_error(k) == 0
    assert Recalled(found[:1], true[:1]).standard_error(k) == 0
    assert Recalled(found, np.full_like(true, -1)).standard_error(k) == 0


def test_measured_recall_is_that_of_the_lists_read(tmp_path: Path) -> None:
    keys = stored(rows=600)
    config = resolved(keys, index="ivf-flat", lists=8, probe=8)
    searcher: Searcher = open_searcher(
        in_parts(config, keys, tmp_path, [range(keys.shards)]),
        config.model_dump(),
        (keys.rows, keys.dim),
    )
    figures = measure(searcher, keys, queries=100, seed=0)
    assert figures["queries"] == 100
    assert set(figures["recall"]) == {"1", "4", "8", "64"}
    assert figures["recall"]["64"] == 1
    by_probe = [figures["recall_by_probe"][p]["8"] for p in ("1", "2", "4", "8")]
    assert by_probe == sorted(by_probe)
    assert by_probe[0] < 0.9 < by_probe[-1] == 1
    assert searcher.search(keys.rows_between(0, 1).astype(np.float32), 600)[0].min() == 0


@pytest.mark.parametrize(
    ("kind", "dtype"), [("ivf-flat", "float16"), ("ivf-flat", "float32"), ("IVF8,SQ8", "float16")]
)
@pytest.mark.parametrize("rows", [40, 600])
def test_recall_by_lists_read_is_that_of_searches_in_so_many(
    kind: str, dtype: str, rows: int, tmp_path: Path
) -> None:
    keys = stored(rows=rows, dtype=dtype)
    config = resolved(keys, index=kind, probe=6, **({"lists": 8} if kind == "ivf-flat" else {}))
    file = in_parts(config, keys, tmp_path, [range(keys.shards)])
    searcher: Any = open_searcher(file, config.model_dump(), (keys.rows, keys.dim))
    sample = np.sort(np.random.default_rng(1).choice(rows, 30, replace=False))
    itself = np.stack([sample, sample + 1], axis=1)
    true = ExactSearcher(keys, "l2").search(keys.take(sample), 8, itself)[0]
    table = measure(searcher, keys, queries=30, seed=0)["recall_by_probe"]
    assert searcher.probe == 6
    for probe, shares in table.items():
        searcher.probe = int(probe)
        found = searcher.attempt(keys.take(sample), 8, itself, effort=0).ids
        for k, pool in shares.items():
            if int(k) <= 8:
                assert pool == pytest.approx(recall(found, true, int(k)), abs=1e-4)


@pytest.mark.parametrize("rows", [600, 60_000])
def test_a_full_disk_is_no_truncated_index(rows: int) -> None:
    keys = stored(rows=rows)
    with pytest.raises(OSError, match="No space left"):
        build.build_whole(
            empty_index(resolved(keys, index="flat"), keys.dim, "float16"), keys, Path("/dev/full")
        )


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ("PCA9,Flat", "PCA9 would widen keys of width 8; PCA8 is the most"),
        ("PCAR16,IVF4,Flat", "PCAR8 is the most"),
        ("NSG16", "choose hnsw"),
        ("IVF4_NSG16,Flat", "choose hnsw"),
    ],
)
def test_what_faiss_would_refuse_only_with_keys_is_refused_before_work(
    index: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        resolved(stored(), index=index)


def test_what_faiss_refuses_of_keys_is_bad_usage() -> None:
    with pytest.raises(UsageError, match="too few keys; choose another --index"), refusals():
        raise RuntimeError("Error in virtual void faiss::Index::train: Error: too few keys")


@pytest.mark.parametrize("kind", ["flat", "ivf-flat", "hnsw"])
@pytest.mark.parametrize(("rows", "dim"), [(599, 8), (600, 7)])
def test_an_index_of_other_keys_is_damage(tmp_path: Path, kind: str, rows: int, dim: int) -> None:
    keys = stored()
    config = resolved(keys, index=kind)
    build.train(config, keys, tmp_path / "trained")
    build.build_whole(read_index(tmp_path / "trained"), keys, tmp_path / "whole")
    open_searcher(tmp_path / "whole", config.model_dump(), (keys.rows, keys.dim))
    with pytest.raises(
        ArtifactError, match=r"whole holds nothing that memlm wrote .*index of 600 keys"
    ):
        open_searcher(tmp_path / "whole", config.model_dump(), (rows, dim))


def test_lists_that_name_rows_that_there_are_not_are_damage(tmp_path: Path) -> None:
    keys = stored()
    config = resolved(keys, index="ivf-flat")
    build.train(config, keys, tmp_path / "trained")
    index: Any = read_index(tmp_path / "trained")
    index.add_with_ids(widened(keys.read(0))[:1], np.array([4_000_000_000]))
    index.ntotal = keys.rows
    faiss.write_index(index, str(tmp_path / "index"))
    with pytest.raises(ArtifactError, match="names rows 4000000000 to 4000000000 of 600"):
        open_searcher(tmp_path / "index", config.model_dump(), (keys.rows, keys.dim))


def test_a_factory_string_without_end_is_refused_before_faiss_parses_it() -> None:
    with pytest.raises(UsageError, match="at most 200 letters, not 100,000"):
        resolved(stored(), index="PCA4," * 20_000)


@pytest.mark.parametrize(
    ("settings", "dtype"),
    [
        *(
            ({"index": kind}, dtype)
            for kind in ("flat", "hnsw", "ivf-flat")
            for dtype in ("float16", "float32")
        ),
        ({"index": "ivf-pq", "code_bytes": 2, "code_bits": 4}, "float16"),
        ({"index": "ivf-pq", "code_bytes": 1}, "float32"),
    ],
)
def test_the_size_of_an_index_is_known_before_it_is_built(
    tmp_path: Path, settings: dict[str, Any], dtype: str
) -> None:
    keys = stored(dtype, rows=3000, dim=32)
    config = resolved(keys, **settings)
    build.train(config, keys, tmp_path / "trained")
    build.build_whole(read_index(tmp_path / "trained"), keys, tmp_path / "whole")
    told = index_bytes(config, Keys(keys.rows, keys.dim, dtype))
    assert told == pytest.approx((tmp_path / "whole").stat().st_size, rel=0.005)
    searcher = open_searcher(tmp_path / "whole", config.model_dump(), (keys.rows, keys.dim))
    assert searcher.lossless == is_lossless(config)


def test_the_size_of_what_faiss_makes_of_its_own_strings_is_not_known() -> None:
    keys = stored()
    assert (
        index_bytes(resolved(keys, index="PCA4,IVF9,SQ8"), Keys(keys.rows, keys.dim, "float16"))
        is None
    )
