"""Peak rates of processors, by their makers' specifications."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

CPUINFO = Path("/proc/cpuinfo")

NVIDIA_H100 = "NVIDIA H100 Tensor Core GPU datasheet, without sparsity"
NVIDIA_H200 = "NVIDIA H200 Tensor Core GPU datasheet, without sparsity"
INTEL = "Intel 64 and IA-32 Architectures Optimization Reference Manual: two 512-bit multiply-adds a cycle, AMX"
AMD = "AMD Software Optimization Guides: two multiply-adds a cycle, 256 bits wide up to Zen 4, 512 in Zen 5"


class Peak(NamedTuple):
    """The most of a device; None is what its maker's papers do not tell."""

    source: str
    fp32: float | None = None
    """Operations of matrix products a second, a multiplication and an addition being two; without TF32."""
    bf16: float | None = None
    memory: float | None = None
    """Bytes that are read and written a second."""


GPUS: Mapping[str, Peak] = {
    "H200 NVL": Peak(NVIDIA_H200, fp32=60e12, bf16=836e12, memory=4.8e12),
    "H200": Peak(NVIDIA_H200, fp32=67e12, bf16=989e12, memory=4.8e12),
    "H100 NVL": Peak(NVIDIA_H100, fp32=60e12, bf16=836e12, memory=3.9e12),
    "H100 PCIe": Peak(NVIDIA_H100, fp32=51e12, bf16=756e12, memory=2.0e12),
    "H100": Peak(NVIDIA_H100, fp32=67e12, bf16=989e12, memory=3.35e12),
}
"""By a part of the name that the driver gives them; the first that fits counts."""


def gpu_peak(name: str) -> Peak | None:
    """
    >>> gpu_peak("NVIDIA H100 80GB HBM3").memory / 1e12
    3.35
    >>> gpu_peak("NVIDIA H100 PCIe").memory / 1e12
    2.0
    """
    return next((peak for part, peak in GPUS.items() if part in name), None)


def cpu_peak(threads: int) -> Peak | None:
    """Peak rate of some cores, as the system describes them; None where it does not (Linux does).

    On a virtual machine a core may be half of one, and its clock slower or faster than is said.
    """
    try:
        entries = [line.partition(":") for line in CPUINFO.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return None
    found = {name.strip(): value.strip() for name, _, value in reversed(entries)}  # of the first core
    cycle = operations_a_cycle(
        found.get("vendor_id", ""), int(found.get("cpu family", 0)), found.get("flags", "").split()
    )
    if cycle is None or "cpu MHz" not in found:
        return None
    clock = threads * float(found["cpu MHz"]) * 1e6
    return Peak(cycle.source, clock * cycle.fp32, None if cycle.bf16 is None else clock * cycle.bf16)


class Cycle(NamedTuple):
    """Operations of a core in a cycle."""

    source: str
    fp32: int
    bf16: int | None


ZEN5 = 26


def operations_a_cycle(vendor: str, family: int, flags: Iterable[str]) -> Cycle | None:
    """
    >>> operations_a_cycle("GenuineIntel", 6, ["avx2", "fma", "avx512f", "amx_bf16"])[1:]
    (64, 1024)
    >>> operations_a_cycle("AuthenticAMD", 25, ["avx2", "fma", "avx512f"])[1:]
    (32, None)
    """
    has = set(flags)
    if vendor == "GenuineIntel" and {"avx2", "fma"} <= has:
        return Cycle(INTEL, 64 if "avx512f" in has else 32, 1024 if "amx_bf16" in has else None)
    if vendor == "AuthenticAMD" and {"avx2", "fma"} <= has:
        return Cycle(AMD, 64 if family >= ZEN5 and "avx512f" in has else 32, None)
    return None


def peak(device: str, threads: int) -> Peak | None:
    """Peak rate of the device type `cpu` or `cuda`; `threads` are those that arithmetic uses."""
    if device == "cpu":
        return cpu_peak(min(threads, os.cpu_count() or threads))
    import torch

    return gpu_peak(torch.cuda.get_device_name())
