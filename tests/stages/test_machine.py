"""What memory is free is what the system and the limits of this process leave."""

import resource
from pathlib import Path

import pytest

from stages import machine


@pytest.mark.parametrize(("kind", "taken"), [(resource.RLIMIT_AS, 100), (resource.RLIMIT_DATA, 30)])
def test_limits_count_less_what_is_taken(
    kind: int, taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = machine.os.sysconf("SC_PAGE_SIZE")
    (tmp_path / "meminfo").write_text("MemAvailable: 9000000 kB\n")
    (tmp_path / "statm").write_text("100 20 5 1 0 30 0\n")
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "STATM", tmp_path / "statm")
    limits = {kind: 1000 * page}
    monkeypatch.setattr(
        machine.resource,
        "getrlimit",
        lambda which: (limits.get(which, resource.RLIM_INFINITY), resource.RLIM_INFINITY),
    )
    assert machine.free_memory_bytes() == (1000 - taken) * page
    limits[kind] = taken * page // 2
    assert machine.free_memory_bytes() == 0


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("flags\t\t: fpu avx512f amx_bf16 amx_tile", True),
        ("flags\t\t: fpu avx512f avx512_bf16", True),
        ("Features\t: fp asimd bf16", True),
        ("flags\t\t: fpu avx512f avx512_vnni", False),
        ("Features\t: fp asimd", False),
    ],
)
def test_products_in_bf16_are_those_of_its_flags(
    line: str, own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    assert machine.multiplies_bf16()  # the system does not tell
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nmodel name\t: bf16 CPU\n{line}\n")
    assert machine.multiplies_bf16() == own


@pytest.mark.parametrize("lacking", ["triton", "gcc", "Python.h", "hip", "tf32", ""])
def test_kernels_run_where_all_that_they_need_is_there(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    (tmp_path / ("else.h" if lacking == "Python.h" else "Python.h")).touch()
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(machine.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(machine.shutil, "which", lambda name: None if lacking == "gcc" else name)
    monkeypatch.setattr(machine, "find_spec", lambda name: None if lacking == "triton" else name)
    monkeypatch.setattr(torch.version, "hip", "6" if lacking == "hip" else None)
    monkeypatch.setattr(
        torch.cuda, "get_device_capability", lambda: (7, 5) if lacking == "tf32" else (9, 0)
    )
    runs = machine.runs_triton.__wrapped__
    assert (runs("cpu"), runs("cuda")) == (False, not lacking)
