"""A very small run of every kernel; what is expected of them follows from their operations and
bytes.
"""

import itertools
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from stages.errors import ResourceError
from tests.benchmarks import bench_machine as module
from tests.benchmarks.bench_machine import (
    TINY_SIZES as TINY,
)
from tests.benchmarks.bench_machine import (
    Kernel,
    Limits,
    MadeIndex,
    Row,
    benchmark,
    copy,
    product,
    search,
    training,
)

CPU = torch.device("cpu")
HERE = Limits(1.0, 2.0, 1e9, "here")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    folder = tmp_path_factory.mktemp("disk")
    found = benchmark(folder, "cpu", TINY, seconds=0)
    assert list(folder.iterdir()) == []
    return found


def test_every_kernel_is_measured(rows: list[Row]) -> None:
    of_kind = itertools.groupby(row.name.partition(",")[0].split()[0] for row in rows)
    assert {kind: len(list(found)) for kind, found in of_kind} == {
        **{"product": 2, "memory": 1, "disk": 2, "search": 2, "training": 2}
    }
    assert all(row.measured > 0 and math.isfinite(row.measured) and row.runs == 1 for row in rows)


def test_what_is_not_known_is_not_expected(rows: list[Row]) -> None:
    assert [row.expected for row in rows if row.name.startswith(("memory", "disk"))] == [None] * 3
    assert all(row.source for row in rows if row.expected is not None)


def test_what_memlm_does_is_compared_with_products_and_memory_measured_here(
    rows: list[Row],
) -> None:
    limits = Limits(*(row.measured * 1e9 for row in rows[:3]))
    for row in rows[5:9]:
        seconds = max(
            row.operations / (limits.bf16 if "bf16" in row.name else limits.fp32),
            row.moved / limits.memory,
        )
        amount = TINY.queries if row.unit == "queries/s" else TINY.steps * TINY.batch
        assert row.expected == pytest.approx(amount / seconds)


def test_a_kernel_is_run_for_some_time_and_the_shortest_run_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([0.0, 5.0, 7.0, 10.0, 14.0])
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    row = module._measured(
        Kernel("k", "queries/s", 100, lambda: None, operations=4.0), HERE, seconds=9
    )
    assert (row.runs, row.measured, row.expected, row.source) == (3, 50, 25, "here")


def test_seconds_that_a_run_gives_count_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 5.0, 7.0, 10.0, 14.0])
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    row = module._measured(Kernel("k", "tokens/s", 100, lambda: 0.5), None, seconds=9)
    assert (row.runs, row.measured) == (3, 200)


def test_operations_and_bytes_are_those_of_the_work() -> None:
    assert product(TINY, CPU, "bf16").operations == 2 * 64**3
    assert product(TINY, CPU, "bf16").moved == 3 * 64 * 64 * 2
    assert copy(TINY, CPU).moved == 2 << 16
    made = MadeIndex(TINY, CPU)
    looked_at = 0
    for lists in made.index.quantizer.search(made.queries, TINY.probe)[1]:
        looked_at += 16 + sum(made.index.invlists.list_size(int(number)) for number in lists)
    assert search(made, 4).operations == 2 * 8 * looked_at
    assert search(made, 4).moved == 2000 * 8 * 2 + 50 * 4 * 12


def test_a_training_step_has_six_operations_a_weight_and_token(tmp_path: Path) -> None:
    kernel = training(TINY, CPU, "fp32", tmp_path)
    weights = 12 * 16 * 16 + 50 * 16
    assert kernel.operations == 2 * 32 * (6 * weights + 12 * 16 * 8 / 2)


@pytest.mark.parametrize(
    ("kernel", "seconds"),
    [
        (Kernel("", "", 1, int, operations=30e12, moved=1.0), 3.0),
        (Kernel("", "", 1, int, operations=30e12, precision="bf16"), 1.5),
        (Kernel("", "", 1, int, moved=4e12), 2.0),
        (Kernel("", "", 1, int), None),
    ],
)
def test_a_kernel_is_limited_by_its_products_or_by_memory(
    kernel: Kernel, seconds: float | None
) -> None:
    assert Limits(fp32=10e12, bf16=20e12, memory=2e12).expected(kernel) == seconds


@pytest.mark.parametrize(
    ("name", "memory"),
    [("NVIDIA H100 80GB HBM3", 3.35e12), ("NVIDIA H100 PCIe", 2.0e12), ("another", None)],
)
def test_the_most_of_a_gpu_is_known_by_its_name(
    name: str, memory: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
    most = module._peak(torch.device("cuda"))
    assert (None if most is None else most.memory) == memory and module._peak(CPU) is None


def test_a_disk_without_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10_000))
    with pytest.raises(
        ResourceError, match=r"writes 65\.5 kB, and the disk of .* has 10\.0 kB free"
    ):
        benchmark(tmp_path, "cpu", TINY)
