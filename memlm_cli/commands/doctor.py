"""`memlm doctor`: packages, devices, memory, the store, and the settings that are in force."""

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

import typer

from memlm_cli.console import answer, answers_on_terminal
from memlm_cli.defaults import FILE, SHARED, Default, Defaults
from memlm_cli.options import DEFAULT_STORE, Common, JsonOption, StoreOption
from memlm_cli.packages import Dependency, dependencies, install_command, own_requirements
from memlm_cli.tables import Row, table
from stages.errors import UsageError
from stages.numbers import size

Facts = dict[str, Any]


def doctor(
    context: typer.Context,
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
) -> None:
    """Versions, devices, memory, the store, settings in force and from where; exit 2 if something is broken."""
    found = examine(context, store)
    if json_:
        answer(json.dumps(found))
    else:
        terminal = answers_on_terminal()
        parts = [table(title, columns, rows, terminal=terminal) for title, columns, rows in _tables(found) if rows]
        answer("\n\n".join(parts), styled=True)
    if found["problems"]:
        raise UsageError("; ".join(problem.rstrip(".") for problem in found["problems"]) + ".")


def _tables(found: Facts) -> Iterator[tuple[str, tuple[str, ...], list[Row]]]:
    versions = [(name, str(value or "not installed")) for name, value in found["versions"].items()]
    packages = [(p["package"], p["version"] or ("missing", "red"), p["wanted"]) for p in found["packages"]]
    yield "Versions", ("", "version", "wanted"), [*((*row, "") for row in versions), *packages]
    yield (
        "Extras",
        ("extra", "", "what installs it"),
        [(extra["extra"], _state(extra), extra["command"] or "") for extra in found["extras"]],
    )
    yield "Machine", ("", ""), list(_machine(found["devices"], found["memory"]))
    yield "Store", ("", ""), list(_store_rows(found["store"]))
    settings = [(_option(s), _value(s["value"]), s["from"]) for s in found["settings"]]
    variables = [(f"${name}", value, "environment") for name, value in found["variables"].items()]
    yield "Settings", ("", "value", "from"), [*settings, *variables]
    verdict: list[Row] = [((problem, "red"),) for problem in found["problems"]] or [("none: memlm has what it needs",)]
    yield "Problems", ("",), verdict


def _state(extra: Facts) -> str:
    if not extra["missing"]:
        return "installed"
    return f"lacks {', '.join(extra['missing'])}" if extra["installed"] else "not installed (optional)"


def _machine(devices: Facts, memory: Facts) -> Iterator[Row]:
    threads = "" if devices["threads"] is None else f", {devices['threads']} threads"
    yield "cores", f"{devices['cores']}{threads}"
    yield "memory", _of(memory["free"], memory["bytes"])
    for gpu in devices["gpus"]:
        yield "gpu", f"{gpu['name']}, {_of(gpu['free'], gpu['memory'])}"
    if not devices["gpus"]:
        yield "gpu", "none that torch can use"
    elif not devices["searching_gpus"]:
        yield "search", "on the CPU: this faiss has no GPU"


def _of(free: int | None, total: int) -> str:
    return size(total) if free is None else f"{size(free)} free of {size(total)}"


def _store_rows(store: Facts) -> Iterator[Row]:
    yield "folder", store["path"] + ("" if store["there"] else " (not there yet)")
    if "bytes" in store:
        yield "artifacts", f"{store['artifacts']:,}, {size(store['bytes'])}"
        trusted = "every byte is hashed" if store["verify_inputs"] else "files that look unchanged are trusted"
        yield "inputs", trusted
    yield "free disk", size(store["free"])


def _option(setting: Facts) -> str:
    return f"--{setting['option']}" if setting["command"] is None else f"{setting['command']} --{setting['option']}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


COMPILED = ("torch", "faiss", "numpy", "scipy", "zarr", "tokenizers", "safetensors", "zstandard", "vl_convert")
"""Modules that may be there and not work: they are imported."""
EITHER = ("cpu", "gpu")
"""Extras of which one is needed, and only one can be there."""
VARIABLES = ("MEMLM_STORE", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_OFFLINE")
"""Environment variables that memlm and its libraries read."""


def examine(context: typer.Context, store: Path) -> Facts:
    """All that is reported, as JSON values; `problems` keep memlm from working."""
    defaults: Defaults = context.obj.defaults
    broken = dict(_not_importable())
    packages = dependencies()
    found: Facts = {
        "versions": {"memlm": _own_version(), "python": platform.python_version(), "platform": platform.platform()},
        "packages": [_package(package) for package in packages if package.extra is None or package.installed],
        "extras": _extras(packages),
        "devices": _devices(broken),
        "memory": _memory(),
        "store": _store(store),
        "settings": list(_settings(context, defaults, store)),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    return found | {"problems": list(_problems(found, packages, broken, defaults))}


def _not_importable() -> Iterator[tuple[str, str]]:
    """Modules that cannot be imported, and why; what is not installed is found elsewhere."""
    for module in COMPILED:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                yield module, str(error)
        except Exception as error:  # whatever a broken library raises
            yield module, f"{type(error).__name__}: {error}".splitlines()[0]


def _package(package: Dependency) -> Facts:
    wanted = package.line.removeprefix(package.package)
    return {"package": package.package, "version": package.installed, "wanted": wanted, "extra": package.extra}


def _extras(packages: list[Dependency]) -> list[Facts]:
    """Every extra, and what would bring what it lacks."""
    found = []
    for extra in dict.fromkeys(package.extra for package in packages if package.extra):
        lacking = [package for package in packages if package.extra == extra and not package.fits]
        command = install_command(lacking) if lacking else None
        found.append(
            {
                "extra": extra,
                "missing": [package.package for package in lacking],
                "installed": [package.package for package in packages if package.extra == extra and package.fits],
                "command": command,
            }
        )
    return found


def _devices(broken: Facts) -> Facts:
    from stages.machine import usable_cores

    found: Facts = {"cores": usable_cores(), "threads": None, "gpus": [], "searching_gpus": None}
    if _usable("torch", broken):
        from stages.models.devices import cpu_threads, gpus

        found |= {"threads": cpu_threads(), "gpus": gpus()}
    if _usable("faiss", broken):
        from stages.search.open import searching_gpus

        found["searching_gpus"] = searching_gpus()
    return found


def _usable(module: str, broken: Facts) -> bool:
    return module not in broken and find_spec(module) is not None


def _memory() -> Facts:
    from stages.machine import free_memory_bytes, memory_bytes

    return {"bytes": memory_bytes(), "free": free_memory_bytes()}


def _store(root: Path) -> Facts:
    """Where the store is, how much is in it, and what could not be written."""
    from stages.artifacts.references import references
    from stages.errors import MemlmError

    place = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    found: Facts = {
        "path": str(root.absolute()),
        "there": root.is_dir(),
        "artifacts": len(references(root)),
        "free": shutil.disk_usage(place).free,
        "problem": None,
    }
    try:
        return found | _contents(root) | {"problem": _unwritable(root, place)}
    except MemlmError as error:
        return found | {"problem": str(error)}


def _unwritable(root: Path, place: Path) -> str | None:
    """Why nothing can be made in a folder, by trying: permissions do not tell of all file systems."""
    try:
        with TemporaryDirectory(prefix=".memlm-doctor-", dir=place):
            return None
    except OSError as error:
        what = f"nothing can be written in {place} ({error.strerror})"
        return what if place == root.absolute() else f"{root} cannot be made, {what}: name another with --store"


def _contents(root: Path) -> Facts:
    """Raises: UsageError for a store that cannot be used."""
    from stages.artifacts.store import Store

    store = Store(root)
    return {"verify_inputs": store.verifies_inputs, "bytes": sum(one.manifest.bytes for one in store.artifacts())}


def _settings(context: typer.Context, defaults: Defaults, store: Path) -> Iterator[Facts]:
    """Options with a default of their own that all commands share, and all that memlm.toml says."""
    yield {"option": "store", "command": None, "value": str(store), "from": _origin(context, defaults)}
    shared = {entry.option: entry for entry in defaults.entries if entry.shared}
    for option in SHARED[1:]:
        own = getattr(Common, option.replace("-", "_"), None)
        if option in shared:
            yield _setting(shared[option], None)
        elif own is not None:
            yield {"option": option, "command": None, "value": own, "from": "built in"}
    for entry in defaults.entries:
        if not entry.shared:
            yield _setting(entry, " ".join(entry.command))


def _setting(entry: Default, command: str | None) -> Facts:
    return {"option": entry.option, "command": command, "value": entry.value, "from": f"{FILE}, line {entry.line}"}


def _origin(context: typer.Context, defaults: Defaults) -> str:
    """Where the store that is looked at comes from."""
    source = getattr(context.get_parameter_source("store"), "name", "")
    line = next((entry.line for entry in defaults.entries if entry.parameter == "store"), None)
    places = {"COMMANDLINE": "--store", "ENVIRONMENT": "$MEMLM_STORE", "DEFAULT_MAP": f"{FILE}, line {line}"}
    return places.get(source, "built in")


def _problems(found: Facts, packages: list[Dependency], broken: Facts, defaults: Defaults) -> Iterator[str]:
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
    if defaults.error is not None:
        yield str(defaults.error)


def _own_version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("memlm")
    except PackageNotFoundError:
        return None
