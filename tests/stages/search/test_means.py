from typing import Any

import faiss
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from stages.search.means import VECTORS, learn_means, nearest_means
from stages.threads import in_turn

LISTS = 12


def empty(metric: int = faiss.METRIC_L2, dim: int = 8) -> Any:
    index = faiss.index_factory(dim, f"IVF{LISTS},Flat", metric)
    index.cp.seed, index.cp.min_points_per_centroid, index.cp.max_points_per_centroid = 3, 1, 1 << 20
    return index


def learned(sample: np.ndarray, **settings: Any) -> np.ndarray:
    index = empty(**settings)
    learn_means(index, sample)
    return index.quantizer.reconstruct_n(0, LISTS)


def by_faiss(sample: np.ndarray, **settings: Any) -> np.ndarray:
    index = empty(**settings)
    index.train(sample)
    return index.quantizer.reconstruct_n(0, LISTS)


def sampled(rows: int = VECTORS + 500, dim: int = 8) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, dim)).astype(np.float32)


def nearest(vectors: np.ndarray, means: np.ndarray) -> np.ndarray:
    apart = vectors[:, None, :].astype(np.float64) - means[None, :, :]
    return np.argmin((apart**2).sum(axis=2), axis=1)


def test_means_are_those_of_lloyds_rounds() -> None:
    sample, index = sampled(), empty()
    index.cp.niter = 0
    learn_means(index, sample)
    means = index.quantizer.reconstruct_n(0, LISTS).astype(np.float64)
    assert len({sample.tolist().index(mean) for mean in means.tolist()}) == LISTS
    for _ in range(10):
        own = nearest(sample, means)
        means = np.stack([sample[own == c].mean(axis=0, dtype=np.float64) for c in range(LISTS)])
    np.testing.assert_allclose(learned(sample), means, rtol=0, atol=1e-5)


@pytest.mark.parametrize("metric", [faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT])
@pytest.mark.parametrize("dim", [8, 500])
def test_means_are_those_of_faiss(metric: int, dim: int) -> None:
    sample = sampled(dim=dim)
    np.testing.assert_array_equal(learned(sample, metric=metric, dim=dim), by_faiss(sample, metric=metric, dim=dim))


@pytest.mark.parametrize("metric", [faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT])
def test_empty_clusters_are_split_from_others_as_faiss_splits_them(metric: int) -> None:
    sample = np.repeat(sampled(7), 30, axis=0)
    found = learned(sample, metric=metric)
    np.testing.assert_array_equal(found, by_faiss(sample, metric=metric))
    assert len(np.unique(found, axis=0)) == LISTS


@pytest.mark.parametrize("threads", [1, 2])
def test_means_are_the_same_for_any_number_of_threads(threads: int) -> None:
    sample = sampled(3 * VECTORS)
    with threadpool_limits(threads):
        found = learned(sample)
    np.testing.assert_array_equal(found, learned(sample))


def test_the_nearest_mean_is_that_of_the_least_distance() -> None:
    vectors, means, index = sampled(), sampled(LISTS), empty()
    index.quantizer.add(means)
    distances, numbers = nearest_means(index.quantizer, vectors, in_turn)
    np.testing.assert_array_equal(numbers, nearest(vectors, means))
    np.testing.assert_allclose(distances, ((vectors - means[numbers]) ** 2).sum(axis=1), rtol=1e-4)
