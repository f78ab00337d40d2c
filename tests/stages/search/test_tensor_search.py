import numpy as np
import pytest
import torch

from stages.search.keys import StoredKeys
from stages.search.scan import QueryBlock
from stages.search.tensor_search import KeysOnDevice, TensorQueries, TensorSearch, WithAll
from stages.search.tensors import NUMBERS, TensorKeys, rows_of, scores_of
from stages.threads import slices

DIM = 5


def numbers(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, DIM)).astype(np.float32)


def asked(queries: np.ndarray, metric: str, exclude: np.ndarray | None = None) -> TensorQueries:
    return TensorQueries(queries, numbers(1, 7)[0], metric, exclude, "cpu", NUMBERS)


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_limits_are_those_of_the_cpu(metric: str) -> None:
    """Around an origin of 0, as the CPU moves no keys."""
    queries, kth, radius = numbers(9), np.linspace(-3, 40, 9).astype(np.float32), np.float32(5)
    origin = np.zeros(DIM, np.float32)
    own = QueryBlock(queries, origin, metric, None)
    want = own.allowed(own.reach(kth - own.constant, radius), radius)
    given = TensorQueries(queries, origin, metric, None, "cpu", NUMBERS)
    found = given.limit(torch.from_numpy(kth), slice(0, 9), torch.tensor(radius))
    np.testing.assert_allclose(found, want, rtol=1e-6)


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("width", [0, 2, 90])
def test_keys_may_pass_in_any_parts(metric: str, width: int) -> None:
    keys, queries = torch.from_numpy(numbers(200)), numbers(6, 1)
    exclude = np.stack([np.arange(6) * 20, np.arange(6) * 20 + width], axis=1)
    found = []
    for step in (200, 30, 3):
        search = TensorSearch(asked(queries, metric, exclude), 4, 8, 200)
        result = torch.empty(6, 4, dtype=torch.int64)
        pieces = [TensorKeys(torch.arange(p.start, p.stop), keys[p]) for p in slices(200, step)]
        search.run(
            (WithAll(search.queries, piece, 100) for piece in reversed(pieces)),
            lambda which, pairs, result=result: result[which].copy_(pairs),
        )
        assert search.complete.all()
        found.append(result)
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()
    rows = rows_of(found[0], 200).numpy()
    assert not ((rows >= exclude[:, :1]) & (rows < exclude[:, 1:])).any()


def test_where_there_are_no_keys_nothing_is_found() -> None:
    search, result = (
        TensorSearch(asked(numbers(3), "l2"), 2, 8, 0),
        torch.empty(3, 2, dtype=torch.int64),
    )
    search.run([], lambda which, pairs: result[which].copy_(pairs))
    assert (rows_of(result, 9) == -1).all() and (scores_of(result) == torch.inf).all()
    assert search.complete.all()


class Given:
    """Rough scores and exact ones of the same keys: a comparison of one query at the origin."""

    step, radius = 9, torch.tensor(1.0)

    def __init__(self, rough: list[float], exact: list[float]) -> None:
        vectors = torch.tensor(exact).sqrt()[:, None] * torch.eye(1, DIM)
        self.keys, self._rough = (
            TensorKeys(torch.arange(len(exact)), vectors),
            torch.tensor([rough]),
        )

    def nearest(self, which: slice, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        found = self._rough.topk(min(count, len(self.keys.rows)), largest=False)
        return found.values, found.indices


@pytest.mark.parametrize(
    ("rough", "complete"),
    [
        ([1, 2, 3, 4, 5], True),
        ([1, 1, 3, 4, 5], False),  # others may be as near as the last candidate
        ([1, 1 + 1e-6, 3, 4, 5], False),  # within rounding
        ([1, 1 + 1e-4, 3, 4, 5], True),
        ([1, torch.inf, torch.inf, torch.inf, torch.inf], True),
    ],
)
def test_a_query_is_complete_if_what_is_left_out_is_farther_whatever_rounding_does(
    rough: list[float], complete: bool
) -> None:
    queries = TensorQueries(
        np.zeros((1, DIM), np.float32), np.zeros(DIM, np.float32), "l2", None, "cpu", NUMBERS
    )
    search, scores = TensorSearch(queries, 1, 1, 5), list[float]()
    some = Given(rough, [1.0, 1.0, 1.0, 4.0, 5.0])
    search.run([some], lambda which, pairs: scores.extend(scores_of(pairs).flatten().tolist()))
    assert (search.count, scores) == (2, [1.0])
    assert bool(search.complete) == complete


KEY_BYTES = 3 * 2 + 8


class Counted(StoredKeys):
    """Keys that remember which shards were read."""

    def __init__(self, keys: np.ndarray) -> None:
        super().__init__(keys, rows_per_shard=10)
        self.seen: list[int] = []

    def read(self, shard: int) -> np.ndarray:
        self.seen.append(shard)
        return super().read(shard)


@pytest.mark.parametrize("held", [0, 1, 2, 3])
@pytest.mark.parametrize("step", [4, 10, 100])
def test_shards_stay_on_a_device_while_there_is_room(
    held: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.search.tensors.RESIDENT_ELSEWHERE", 10 * held * KEY_BYTES)
    monkeypatch.setattr("stages.search.tensors.PIECE_NUMBERS", 3 * step)
    keys = np.random.default_rng(0).standard_normal((25, 3)).astype(np.float16)
    stored = Counted(keys)
    on_device = KeysOnDevice(stored, "cpu")
    for expected in ([0, 1, 2], [shard for shard in range(3) if shard >= held]):
        stored.seen.clear()
        pieces = list(on_device)
        assert stored.seen == expected
        assert max(len(piece.rows) for piece in pieces) <= step
        np.testing.assert_array_equal(
            np.concatenate([piece.rows for piece in pieces]), np.arange(25)
        )
        np.testing.assert_array_equal(np.concatenate([piece.vectors for piece in pieces]), keys)
        assert all(piece.vectors.numpy().dtype == np.float16 for piece in pieces)
