"""Times of many keys on many machines, by arithmetic that is done here again."""

from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.simulation import (
    Cluster,
    Measured,
    Phase,
    larger,
    measured,
    newest,
    phases,
    scales_to,
    sharded,
    total,
)
from stages.errors import UsageError
from stages.search.config import IndexConfig

GB = 10**9
FOUND = Measured(
    reference="index/x",
    rows=100_000,
    dim=100,
    dtype="float16",
    config=IndexConfig(index="ivf-flat", lists=512, probe=64, train_keys=100_000, recall_queries=1000),
    encode=1e-4,
    learn=1e-8,
    search=2e-8,
    choose=1e-6,
    k=1024,
)
FOUR = Cluster(4, 16 * GB, 1.0 * GB, 2.0 * GB)


def index(**metrics: Any) -> Any:
    datastore = SimpleNamespace(metrics={"dtype": "float16"}, manifest=SimpleNamespace(seconds=20.0))
    return SimpleNamespace(
        reference="index/x",
        config=FOUND.config.model_dump(),
        metrics={"rows": 100_000, "dim": 100, "queries_per_second": {"4": 2000.0, "1024": 500.0}, **metrics},
        manifest=SimpleNamespace(seconds=12.0, inputs={}),
        input=lambda role: datastore,
    )


def test_rates_are_those_of_an_index_and_its_datastore() -> None:
    found = measured(index())
    assert (found.rows, found.dim, found.dtype, found.k) == (100_000, 100, "float16", 1024)
    assert found.encode == 20 / 100_000
    assert found.learn == 12 / (10 * 100_000 * 512 + 100_000 * 512 + 100_000 * 1000)
    assert found.search == pytest.approx(1 / 2000 / (64 * 100_000 / 512))
    assert found.choose == pytest.approx((1 / 500 - 1 / 2000) / 1024)


def test_an_index_that_does_not_tell_is_refused() -> None:
    with pytest.raises(UsageError, match="did not measure"):
        measured(index(queries_per_second={}))
    flat = index()
    flat.config = {**flat.config, "index": "flat", "lists": None}
    with pytest.raises(UsageError, match="has no lists"):
        measured(flat)
    assert newest([index(), flat]).config["index"] == "ivf-flat"
    with pytest.raises(UsageError, match="make one first"):
        newest([flat])


def test_phases_are_work_and_bytes() -> None:
    keys, queries = 10_000_000, 20_000
    config = larger(FOUND, keys)
    assert (config.lists, config.probe) == (4096, 64)
    datastore, learn, add, merge, recall, evaluate = phases(FOUND, config, keys, queries, FOUR)
    size = keys * (2 * 100 + 8) + 4096 * (400 + 8)
    assert (datastore.seconds, datastore.stays) == (pytest.approx(1000), keys * 204)
    assert learn.seconds == pytest.approx(1e-8 * 10 * int(config.train_keys or 0) * 4096) and learn.alone
    assert (add.seconds, add.moved) == (pytest.approx(1e-8 * keys * 4096), keys * 200 + size)
    assert (merge.moved, merge.stays, merge.alone) == (2 * size, size, True)
    assert recall.seconds == pytest.approx(1e-8 * 1000 * keys) and recall.alone
    compared = 64 * keys / 4096
    assert evaluate.seconds == pytest.approx(queries * (2e-8 * compared + 1e-6 * 1024 + 1e-4))
    assert (evaluate.each, evaluate.moved) == (size, 0)


def test_an_index_larger_than_memory_is_read_for_every_block() -> None:
    keys, queries = 10_000_000, 1_000_000
    config, little = larger(FOUND, keys), FOUR._replace(memory=2 * GB)
    evaluate = phases(FOUND, config, keys, queries, little)[-1]
    blocks = -(-queries * (24 * 1024 + 800) // (512 << 20))
    assert evaluate.moved == 2 * blocks * (keys * 208 + 4096 * 408)


@pytest.mark.parametrize(
    ("phase", "seconds", "longest"),
    [
        (Phase("", 100, 0), 25, "processors"),
        (Phase("", 100, 0, alone=True), 100, "processors"),
        (Phase("", 0, 8 * GB), 4, "storage"),
        (Phase("", 0, 8 * GB, alone=True), 8, "network"),
        (Phase("", 1, 0, each=GB), 2, "storage"),
    ],
)
def test_the_longest_of_all_holds_a_phase_up(phase: Phase, seconds: float, longest: str) -> None:
    assert phase.elapsed(FOUR) == (seconds, longest)


def test_beyond_some_machines_more_do_not_help() -> None:
    keys, queries = 100_000_000, 250_000
    config = larger(FOUND, keys)
    limit = scales_to(FOUND, config, keys, queries, FOUR)
    times = [total(FOUND, config, keys, queries, FOUR.with_machines(n)) for n in (limit // 2, limit, 2 * limit)]
    assert times[1] <= 0.9 * times[0]
    assert times[2] > 0.9 * times[1]


def test_an_index_in_parts_needs_memory_of_all_and_more_lists() -> None:
    keys, queries = 1 << 30, 1000
    parts = sharded(FOUND, keys, queries, FOUR)
    assert parts.lists == 1 << 16
    assert parts.machines == -(-(keys * 208 + parts.lists * 408) // (8 * GB))
    assert parts.compared == 64 * keys / parts.lists
    assert parts.network == queries * parts.machines * (400 + 12 * 1024)
    more = sharded(FOUND._replace(dtype="float32"), keys, queries, FOUR)
    assert more.machines > parts.machines
