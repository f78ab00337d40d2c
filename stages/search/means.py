"""k-means of inverted lists, and the list of each key, with the same bits as FAISS's own for any number of threads.

FAISS's own threads wait for each other, and spin where they may. Here threads of Python's compute its products,
each of a block of vectors alone.
"""

from typing import Any

import faiss
import numpy as np
import torch

from stages.threads import ThreadPool, slices, thread_pool

VECTORS = 2048
"""Vectors that a thread compares with all means at a time; products of fewer than 1,024 take twice as long each."""
PLAIN = (faiss.IndexIVFFlat, faiss.IndexIVFPQ, faiss.IndexIVFScalarQuantizer)
"""Kinds whose keys live in the lists alone."""
FLAT = (faiss.IndexFlat, faiss.IndexFlatL2, faiss.IndexFlatIP)


def has_means(index: Any) -> bool:
    """Whether an index is lists alone, and that of a key is found by comparing it with the means of all."""
    return type(index) in PLAIN and type(faiss.downcast_index(index.quantizer)) in FLAT


def nearest_means(quantizer: Any, vectors: np.ndarray, pool: ThreadPool) -> tuple[np.ndarray, np.ndarray]:
    """Distance [n] float32 and number [n] int64 of the mean next to each of some vectors [n, dim] float32."""
    distances, numbers = np.empty((len(vectors), 1), np.float32), np.empty((len(vectors), 1), np.int64)

    def find(part: slice) -> None:
        quantizer.search(vectors[part], 1, D=distances[part], I=numbers[part])

    pool(find, slices(len(vectors), VECTORS))
    return distances[:, 0], numbers[:, 0]


def learn_means(ivf: Any, sample: np.ndarray) -> None:
    """Learn the means of as many clusters as an index has lists, and put them into its quantizer.

    These are rounds of Lloyd's k-means, from vectors drawn at random, as in FAISS's `Clustering` (1.15). They end early
    where the sum of distances stays.

    Args:
        ivf: an index that `has_means`; its `cp` gives the number of rounds and the seed.
        sample: [n, dim] float32, all finite, more than lists.
    """
    means = sample[_permutation(len(sample), ivf.cp.seed + 1)[: ivf.nlist]]
    _put(ivf, means)
    before = np.float32(0)
    with thread_pool() as pool:
        for _ in range(ivf.cp.niter):
            distances, nearest = nearest_means(ivf.quantizer, sample, pool)
            sizes = np.bincount(nearest, minlength=ivf.nlist).astype(np.float32)
            # torch has one thread here, and adds in the order of the sample
            sums = torch.zeros(means.shape).index_add_(0, torch.from_numpy(nearest), torch.from_numpy(sample))
            means = sums.numpy() * (1 / np.maximum(sizes, 1))[:, None]
            split_empty(means, sizes)
            _put(ivf, means)
            # one number after the other, in float32, as FAISS adds them
            error = np.cumsum(distances)[-1]
            if error == before != 0:
                return
            before = error


def _permutation(count: int, seed: int) -> np.ndarray:
    out = np.empty(count, np.int32)
    faiss.rand_perm(faiss.swig_ptr(out), count, seed)  # type: ignore[attr-defined]
    return out


def _put(ivf: Any, means: np.ndarray) -> None:
    if ivf.cp.spherical:
        faiss.normalize_L2(means)
    ivf.quantizer.reset()
    ivf.quantizer.add(means)


def split_empty(means: np.ndarray, sizes: np.ndarray) -> None:
    """Give each empty cluster half of a larger one, which is drawn by its size; both change in place.

    The two means differ by 1/512 of each number, up in one and down in the other by turns.

    Args:
        means: [clusters, dim] float32.
        sizes: vectors in each, [clusters] float32.

    >>> means, sizes = np.array([[512, 1024], [0, 0]], np.float32), np.array([8, 0], np.float32)
    >>> split_empty(means, sizes)
    >>> means.tolist(), sizes.tolist()
    ([[511.5, 1025.0], [512.5, 1023.0]], [4.0, 4.0])
    """
    random = faiss.RandomGenerator(1234)  # type: ignore[attr-defined]
    room = np.float32(sizes.sum(dtype=np.float64) - len(sizes))
    apart = np.where(np.arange(means.shape[1]) % 2, -1, 1).astype(np.float32) / 1024
    for empty in np.flatnonzero(sizes == 0).tolist():
        taken = 0
        while random.rand_float() >= (sizes[taken] - 1) / room:
            taken = (taken + 1) % len(sizes)
        means[empty], means[taken] = means[taken] * (1 + apart), means[taken] * (1 - apart)
        sizes[empty] = sizes[taken] / 2
        sizes[taken] -= sizes[empty]
