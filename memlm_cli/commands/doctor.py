"""`memlm doctor`: packages, devices, memory, the store, and environment variables."""

import json
import os
import platform
import shutil
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memlm_cli.console import answer, answers_on_terminal
from memlm_cli.options import StoreOptions
from memlm_cli.packages import (
    Dependency,
    dependencies,
    install_command,
    installed,
    own_requirements,
)
from memlm_cli.tables import Row, table
from stages.artifacts.durable import place_of
from stages.errors import MemlmError, UsageError
from stages.numbers import size
from stages.registry import import_outside

Facts = dict[str, Any]
COMPILED = (
    "torch",
    "faiss",
    "numpy",
    "scipy",
    "zarr",
    "tokenizers",
    "safetensors",
    "zstandard",
    "matplotlib",
)
"""Modules that may be installed and broken: they are imported as a test."""
EITHER = ("cpu", "gpu")
"""Alternative extras: one is needed, and only one can be installed."""
VARIABLES = (
    "MEMLM_STORE",
    "MEMLM_PARTS",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "HF_HOME",
    "HF_HUB_OFFLINE",
)
"""Environment variables that memlm and its libraries read."""


def doctor(*, store_options: StoreOptions) -> None:
    """Check versions, devices, memory and the store; exit 2 if something is broken."""
    facts = examine(store_options.store)
    if store_options.json:
        answer(json.dumps(facts))
    else:
        parts = (
            table(title, columns, rows, terminal=answers_on_terminal())
            for title, columns, rows in _tables(facts)
        )
        answer("\n\n".join(parts), styled=True)
    if facts["problems"]:
        raise UsageError("; ".join(problem.rstrip(".") for problem in facts["problems"]) + ".")


def examine(store: Path) -> Facts:
    """All reported facts, as JSON values; `problems` keep memlm from working."""
    broken = dict(_not_importable())
    packages = dependencies()
    versions = {
        "memlm": installed("memlm"),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    by_extra: dict[str, list[Dependency]] = {}
    for package in packages:
        if package.extra is None or package.installed:
            versions[package.package] = package.installed
        if package.extra:
            by_extra.setdefault(package.extra, []).append(package)

    facts: Facts = {
        "versions": versions,
        "extras": [_extra(extra, contents) for extra, contents in by_extra.items()],
        "devices": _devices(broken),
        "store": _store(store),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    return facts | {"problems": list(_problems(facts, packages, broken))}


def _tables(facts: Facts) -> Iterator[tuple[str, tuple[str, ...], list[Row]]]:
    versions: list[Row] = []
    for name, version in facts["versions"].items():
        versions.append((name, version or ("missing", "red")))
    yield "Versions", ("", ""), versions

    extras: list[Row] = []
    for extra in facts["extras"]:
        missing = ", ".join(extra["missing"]) or "nothing"
        extras.append((extra["extra"], missing, extra["command"]))
    yield "Extras", ("extra", "lacks", "what installs it"), extras

    yield "Machine", ("", ""), list(_machine(facts["devices"]))

    store = facts["store"]
    folder = store["path"] + ("" if store["there"] else " (not there yet)")
    contents: list[Row] = [
        ("folder", folder),
        ("artifacts", f"{store['artifacts']:,}"),
        ("free disk", size(store["free"])),
    ]
    yield "Store", ("", ""), contents

    variables: list[Row] = [(f"${name}", value) for name, value in facts["variables"].items()]
    yield "Environment", ("", ""), variables

    problems: list[Row] = [((problem, "red"),) for problem in facts["problems"]]
    yield "Problems", ("",), problems or [("none: memlm has what it needs",)]


def _machine(devices: Facts) -> Iterator[Row]:
    yield "cores", str(devices["cores"])
    yield "memory", size(devices["memory"])
    for gpu in devices["gpus"]:
        yield "gpu", f"{gpu['name']}, {size(gpu['memory'])}"
    if not devices["gpus"]:
        yield "gpu", "none that torch can use"
    elif not devices["searching_gpus"]:
        yield "search", "on the CPU: this faiss has no GPU"


def _not_importable() -> Iterator[tuple[str, str]]:
    """Installed modules that cannot be imported, and why."""
    for module in COMPILED:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                yield module, str(error)
        except Exception as error:  # whatever a broken library raises
            yield module, f"{type(error).__name__}: {error}".splitlines()[0]


def _extra(extra: str, packages: list[Dependency]) -> Facts:
    """An extra, its missing packages, and the command that installs them."""
    lacking = [package for package in packages if not package.fits]
    command = install_command(lacking) if lacking else ""
    return {"extra": extra, "missing": [package.package for package in lacking], "command": command}


def _devices(broken: Facts) -> Facts:
    from stages.machine import memory_bytes, usable_cores

    devices: Facts = {
        "cores": usable_cores(),
        "memory": memory_bytes(),
        "gpus": [],
        "searching_gpus": None,
    }
    if "torch" not in broken and find_spec("torch") is not None:
        from stages.models.computing import gpus

        devices["gpus"] = gpus()
    if "faiss" not in broken and find_spec("faiss") is not None:
        from stages.search.open import searching_gpus

        devices["searching_gpus"] = searching_gpus()
    return devices


def _store(root: Path) -> Facts:
    """Place and content of the store, and folders that cannot be written."""
    from stages.artifacts.references import references
    from stages.artifacts.store import Store

    place = place_of(root)
    facts: Facts = {
        "path": str(root.absolute()),
        "there": root.is_dir(),
        "artifacts": len(references(root)),
        "free": shutil.disk_usage(place).free,
    }
    try:
        Store(root)
    except MemlmError as error:
        return facts | {"problem": str(error)}
    return facts | {"problem": _unwritable(root, place)}


def _unwritable(root: Path, place: Path) -> str | None:
    """Why no file can be made in a folder, by trying: permissions are not reliable on all file
    systems.
    """
    try:
        with TemporaryDirectory(prefix=".memlm-doctor-", dir=place):
            return None
    except OSError as error:
        what = f"nothing can be written in {place} ({error.strerror})"
        return (
            what
            if place == root.absolute()
            else f"{root} cannot be made, {what}: name another with --store"
        )


def _problems(facts: Facts, packages: list[Dependency], broken: Facts) -> Iterator[str]:
    if not own_requirements():
        yield "memlm is not installed, only its source is there: pip install -e '.[cpu]' in its folder"
    for package in packages:
        if package.extra is None and package.problem:
            yield f"{package.package}: {package.problem}: {install_command([package])}"
    either = [extra for extra in facts["extras"] if extra["extra"] in EITHER]
    if either and all(extra["missing"] for extra in either) and find_spec("faiss") is None:
        yield f"faiss is missing, with which indexes are built and searched: {either[0]['command']}"
    for module, reason in broken.items():
        yield f"{module} is installed and cannot be imported: {reason}"
    if facts["store"]["problem"]:
        yield f"the store: {facts['store']['problem']}"
    try:
        import_outside()
    except UsageError as error:
        yield str(error)
