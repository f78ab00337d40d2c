"""Processes of this machine."""

from pathlib import Path


def processes_of(trace: Path) -> set[int]:
    return {int(file.name.rsplit("-", 1)[1]) for file in trace.iterdir()}
