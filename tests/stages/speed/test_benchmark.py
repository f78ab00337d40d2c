"""A very small run of every kernel; what is expected of them follows from their operations and bytes."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stages.errors import ResourceError
from stages.speed import benchmark as module
from stages.speed.benchmark import KERNELS, Limits, Row, benchmark
from stages.speed.kernels import Kernel, Sizes, copy, product
from stages.speed.processors import Peak, cpu_peak
from stages.speed.workloads import MadeIndex, search, training
from tests.stages.test_index import Notes

TINY = Sizes(
    product=64, copied=1 << 16, keys=2000, lists=16, probe=4, queries=50, key_dim=8,
    layers=1, width=16, vocabulary=50, segment=8, batch=32, steps=2, megabytes=0.05,
)  # fmt: skip
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    folder, notes = tmp_path_factory.mktemp("disk"), Notes()
    found = benchmark(folder, "cpu", notes, TINY, seconds=0)
    assert notes.steps == [(number, KERNELS) for number in range(1, KERNELS + 1)]
    assert list(folder.iterdir()) == []
    return found


def test_every_kernel_is_measured(rows: list[Row]) -> None:
    assert [row.name for row in rows] == [
        "product of matrices, fp32",
        "product of matrices, bf16",
        "memory, read and written",
        "disk, written",
        "disk, read",
        "search, k = 4",
        "search, k = 1,024",
        "training, fp32",
        "training, bf16",
        "tokenize, word",
        "tokenize, bpe",
    ]
    assert all(row.measured > 0 and math.isfinite(row.measured) and row.runs == 1 for row in rows)


def test_what_is_not_known_is_not_expected(rows: list[Row]) -> None:
    known = {row.name: row.expected is not None for row in rows}
    assert not any(known[name] for name in ("memory, read and written", "disk, written", "disk, read"))
    assert not any(known[name] for name in ("tokenize, word", "tokenize, bpe"))
    assert all(row.source for row in rows if row.expected is not None)


def test_what_memlm_does_is_compared_with_products_and_memory_measured_here(rows: list[Row]) -> None:
    limits = Limits(*(row.measured * 1e9 for row in rows[:3]))
    for row in rows[5:9]:
        seconds = max(row.operations / (limits.bf16 if "bf16" in row.name else limits.fp32), row.moved / limits.memory)
        amount = TINY.queries if row.unit == "queries/s" else TINY.steps * TINY.batch
        assert row.expected == pytest.approx(amount / seconds)


def test_a_kernel_is_run_for_some_time_and_the_shortest_run_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 5.0, 7.0, 10.0, 14.0])
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    row = module._measured(Kernel("k", "queries/s", 100, lambda: None), lambda kernel: (4.0, "here"), seconds=9)
    assert (row.runs, row.measured, row.expected, row.source) == (3, 50, 25, "here")


def test_seconds_that_a_run_gives_count_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 5.0, 7.0, 10.0, 14.0])
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    row = module._measured(Kernel("k", "tokens/s", 100, lambda: 0.5), lambda kernel: (None, ""), seconds=9)
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
    ("name", "kernel", "seconds"),
    [
        ("fp32", Kernel("", "", 1, int, operations=30e12, moved=1.0), 3.0),
        ("bf16", Kernel("", "", 1, int, operations=30e12, precision="bf16"), 1.5),
        ("memory", Kernel("", "", 1, int, moved=4e12), 2.0),
    ],
)
def test_a_peak_is_taken_from_where_it_is_written(name: str, kernel: Kernel, seconds: float) -> None:
    most = Peak("a paper", fp32=10e12, bf16=20e12, memory=2e12)
    assert module._by_peak(most, kernel) == (seconds, "a paper"), name
    assert module._by_peak(None, kernel) == (None, "")
    assert module._by_peak(Peak("a paper"), kernel) == (None, "")


def test_a_cpu_is_known_by_its_flags_and_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("vendor_id : GenuineIntel\ncpu family : 6\ncpu MHz : 2000\nflags : fma avx2 avx512f\n")
    monkeypatch.setattr("stages.speed.processors.CPUINFO", file)
    found: Any = cpu_peak(3)
    assert (found.fp32, found.bf16, found.memory) == (3 * 2e9 * 64, None, None)
    file.write_text("vendor_id : another\nflags : fma avx2\ncpu MHz : 2000\n")
    assert cpu_peak(3) is None
    monkeypatch.setattr("stages.speed.processors.CPUINFO", tmp_path / "none")
    assert cpu_peak(3) is None


def test_a_disk_without_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10_000))
    with pytest.raises(ResourceError, match=r"writes 65\.5 kB, and the disk of .* has 10\.0 kB free"):
        benchmark(tmp_path, "cpu", Notes(), TINY)
