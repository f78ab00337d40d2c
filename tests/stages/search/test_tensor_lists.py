from collections.abc import Iterator

import numpy as np
import pytest
import torch

from stages.search.ranking import NO_ROW
from stages.search.tensor_lists import BlocksOnDevice, TensorLists, WithLists, block_width
from stages.search.tensor_search import TensorQueries
from stages.search.tensors import NUMBERS

DIM = 3
SIZES = np.array([5, 0, 1, 12, 4])


class MadeLists:
    """Lists of these sizes; their rows rise in each, and `read` remembers which were asked for
    keys.
    """

    def __init__(self, sizes: np.ndarray = SIZES) -> None:
        random = np.random.default_rng(0)
        self.sizes, self.read = sizes, list[int]()
        self.vectors = random.standard_normal((sizes.sum(), DIM)).astype(np.float16)
        rows = random.permutation(sizes.sum())
        self.rows = [np.sort(own) for own in np.split(rows, np.cumsum(sizes)[:-1])]

    def ids(self, number: int, part: slice = slice(None)) -> np.ndarray:
        return self.rows[number][part]

    def keys(self, number: int, part: slice = slice(None)) -> np.ndarray:
        self.read.append(number)
        return self.vectors[self.ids(number, part)]

    def pieces(self, step: int, width: int, like: TensorQueries) -> Iterator[BlocksOnDevice]:
        total = int((-(-self.sizes // width)).sum())
        for start in range(0, total, step):
            yield BlocksOnDevice(
                self, range(start, min(start + step, total)), width, torch.float16, like
            )  # type: ignore[arg-type]


def queries(n: int, exclude: np.ndarray | None = None, metric: str = "l2") -> TensorQueries:
    vectors = np.random.default_rng(1).standard_normal((n, DIM)).astype(np.float32)
    return TensorQueries(vectors, np.full(DIM, 0.5, np.float32), metric, exclude, "cpu", NUMBERS)


@pytest.mark.parametrize(
    ("sizes", "width"),
    [([0, 0], 16), ([1, 9], 16), ([100, 160], 32), ([0, 512], 128), ([9000], 256)],
)
def test_the_width_of_a_block_follows_the_usual_length_of_a_list(
    sizes: list[int], width: int
) -> None:
    assert block_width(np.array(sizes)) == width


@pytest.mark.parametrize("step", [1, 2, 3, 99])
def test_blocks_hold_every_key_once_and_are_filled_up_with_none(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.search.tensor_lists.BROUGHT", 4)
    lists, width, found = MadeLists(), 4, []
    for blocks in lists.pieces(step, width, queries(1)):
        rows, vectors = blocks.keys.rows.numpy(), blocks.keys.vectors.numpy()
        filled = rows == NO_ROW
        np.testing.assert_array_equal(np.isinf(blocks.bias.numpy().ravel()), filled)
        np.testing.assert_array_equal(vectors[~filled], lists.vectors[rows[~filled]])
        moved = vectors[~filled].astype(np.float32) - np.float32(0.5)
        np.testing.assert_allclose(
            blocks.bias.numpy().ravel()[~filled], (moved**2).sum(axis=1), rtol=1e-5
        )
        assert float(blocks.radius) == pytest.approx(
            float(np.sqrt((moved**2).sum(axis=1).max())), rel=1e-5
        )
        for number in range(5):
            first, count = int(blocks.firsts[number]), int(blocks.counts[number])
            own = rows[first * width : (first + count) * width]
            found += [(number, row) for row in own[own != NO_ROW].tolist()]
        assert int(blocks.counts[-1]) == 0
    assert found == [(number, row) for number in range(5) for row in lists.rows[number].tolist()]


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("step", [2, 99])
@pytest.mark.parametrize("hidden", [0, 70])
@pytest.mark.parametrize("batch", [1, 1 << 26])
def test_each_query_has_the_scores_of_its_own_lists(
    metric: str, step: int, hidden: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.search.tensor_lists.BATCH", batch)
    monkeypatch.setattr("stages.search.tensor_lists.HEIGHTS", (2, 4))
    lists = MadeLists(6 * SIZES)
    exclude = np.stack([np.arange(7), np.arange(7) + hidden], axis=1)
    asked = queries(7, exclude, metric)
    probed = np.array([[0, 3], [3, 0], [1, 2], [4, -1], [-1, -1], [2, 3], [3, 4]])
    found: list[dict[int, float]] = [{} for _ in range(7)]
    for blocks in lists.pieces(step, 4, asked):
        some = WithLists(asked, torch.from_numpy(probed), blocks, 1 << 20)
        for which in (slice(0, 3), slice(3, 7)):
            rough, places = some.nearest(which, 999)
            rows = blocks.keys.rows[places].numpy()
            for query, scores, own in zip(
                range(which.start, which.stop), rough.numpy(), rows, strict=True
            ):
                found[query] |= {
                    int(row): float(s) for row, s in zip(own, scores, strict=True) if s < np.inf
                }
    for query, numbers in enumerate(probed):
        rows = np.concatenate(
            [lists.rows[number] for number in numbers if number >= 0] or [np.empty(0, int)]
        )
        seen = rows[(rows < exclude[query, 0]) | (rows >= exclude[query, 1])]
        moved = lists.vectors[seen].astype(np.float32) - np.float32(0.5)
        want = moved @ asked.factors[query].numpy() + (
            (moved**2).sum(axis=1) if metric == "l2" else 0
        )
        assert sorted(found[query]) == sorted(seen.tolist())
        np.testing.assert_allclose(
            [found[query][row] for row in seen.tolist()], want, rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("centres", [True, False])
@pytest.mark.parametrize("held", [0, 2, 99])
def test_lists_that_fit_stay_and_each_query_probes_the_nearest(
    centres: bool, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = MadeLists()
    middles = np.random.default_rng(2).standard_normal((5, DIM)).astype(np.float32)
    asked = queries(40)
    order = ((asked.vectors.numpy()[:, None] - middles) ** 2).sum(axis=2).argsort(axis=1)
    monkeypatch.setattr("stages.search.tensors.RESIDENT_ELSEWHERE", held * 16 * (2 * DIM + 12))
    monkeypatch.setattr("stages.search.tensors.PIECE_NUMBERS", 16 * DIM)
    on_device = TensorLists(
        lists, middles if centres else None, lambda _, probe: order[:, :probe], "cpu"
    )  # type: ignore[arg-type]
    for expected in ([0, 2, 3, 4], [0, 2, 3, 4][held:]):
        lists.read.clear()
        some = list(on_device.comparisons(asked, 2))
        assert lists.read == expected
        np.testing.assert_array_equal(
            np.sort(some[0]._lists, axis=1), np.sort(order[:, :2], axis=1)
        )
    (every,) = {tuple(np.unique(part._lists).tolist()) for part in on_device.comparisons(asked, 5)}
    assert every == (0, 1, 2, 3, 4)


def test_lists_without_keys_are_searched_too() -> None:
    on_device = TensorLists(
        MadeLists(np.array([0, 0])), np.zeros((2, DIM), np.float32), lambda *_: np.empty(0), "cpu"
    )  # type: ignore[arg-type]
    assert list(on_device.comparisons(queries(3), 1)) == []
