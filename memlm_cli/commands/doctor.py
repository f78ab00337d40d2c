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
from memlm_cli.options import Asked
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


def doctor(*, asked: Asked) -> None:
    """Check versions, devices, memory and the store; exit 2 if something is broken."""
    found = examine(asked.store)
    if asked.json:
        answer(json.dumps(found))
    else:
        parts = (
            table(title, columns, rows, terminal=answers_on_terminal())
            for title, columns, rows in _tables(found)
        )
        answer("\n\n".join(parts), styled=True)
    if found["problems"]:
        raise UsageError("; ".join(problem.rstrip(".") for problem in found["problems"]) + ".")


def examine(store: Path) -> Facts:
    """All reported facts, as JSON values; `problems` keep memlm from working."""
    broken = dict(_not_importable())
    packages = dependencies()
    extras = dict.fromkeys(package.extra for package in packages if package.extra)
    found: Facts = {
        "versions": {
            "memlm": installed("memlm"),
            "python": platform.python_version(),
            "platform": platform.platform(),
            **{
                one.package: one.installed for one in packages if one.extra is None or one.installed
            },
        },
        "extras": [
            _extra(extra, [one for one in packages if one.extra == extra]) for extra in extras
        ],
        "devices": _devices(broken),
        "store": _store(store),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    return found | {"problems": list(_problems(found, packages, broken))}


def _tables(found: Facts) -> Iterator[tuple[str, tuple[str, ...], list[Row]]]:
    versions: list[Row] = [
        (name, value or ("missing", "red")) for name, value in found["versions"].items()
    ]
    yield "Versions", ("", ""), versions
    extras: list[Row] = [
        (one["extra"], ", ".join(one["missing"]) or "nothing", one["command"])
        for one in found["extras"]
    ]
    yield "Extras", ("extra", "lacks", "what installs it"), extras
    yield "Machine", ("", ""), list(_machine(found["devices"]))
    store = found["store"]
    folder = store["path"] + ("" if store["there"] else " (not there yet)")
    held: list[Row] = [("artifacts", f"{store['artifacts']:,}"), ("free disk", size(store["free"]))]
    yield "Store", ("", ""), [("folder", folder), *held]
    variables: list[Row] = [(f"${name}", value) for name, value in found["variables"].items()]
    yield "Environment", ("", ""), variables
    verdict: list[Row] = [((problem, "red"),) for problem in found["problems"]]
    yield "Problems", ("",), verdict or [("none: memlm has what it needs",)]


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

    found: Facts = {
        "cores": usable_cores(),
        "memory": memory_bytes(),
        "gpus": [],
        "searching_gpus": None,
    }
    if "torch" not in broken and find_spec("torch") is not None:
        from stages.models.computing import gpus

        found["gpus"] = gpus()
    if "faiss" not in broken and find_spec("faiss") is not None:
        from stages.search.open import searching_gpus

        found["searching_gpus"] = searching_gpus()
    return found


def _store(root: Path) -> Facts:
    """Place and content of the store, and folders that cannot be written."""
    from stages.artifacts.references import references
    from stages.artifacts.store import Store

    place = place_of(root)
    found: Facts = {
        "path": str(root.absolute()),
        "there": root.is_dir(),
        "artifacts": len(references(root)),
        "free": shutil.disk_usage(place).free,
    }
    try:
        Store(root)
    except MemlmError as error:
        return found | {"problem": str(error)}
    return found | {"problem": _unwritable(root, place)}


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


def _problems(found: Facts, packages: list[Dependency], broken: Facts) -> Iterator[str]:
    if not own_requirements():
        yield "memlm is not installed, only its source is there: pip install -e '.[cpu]' in its folder"
    for package in packages:
        if package.extra is None and package.problem:
            yield f"{package.package}: {package.problem}: {install_command([package])}"
    either = [extra for extra in found["extras"] if extra["extra"] in EITHER]
    if either and all(extra["missing"] for extra in either) and find_spec("faiss") is None:
        yield f"faiss is missing, with which indexes are built and searched: {either[0]['command']}"
    for module, reason in broken.items():
        yield f"{module} is installed and cannot be imported: {reason}"
    if found["store"]["problem"]:
        yield f"the store: {found['store']['problem']}"
    try:
        import_outside()
    except UsageError as error:
        yield str(error)
