"""`memlm doctor`."""

import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from textwrap import wrap
from typing import Any

import typer

from memlm_cli.console import answer, answers_on_terminal
from memlm_cli.options import DEFAULT_STORE, JsonOption, StoreOption
from memlm_cli.tables import Row, table
from stages.errors import UsageError
from stages.numbers import size

Facts = Mapping[str, Any]
NARROW, WIDEST = 30, 70
"""Columns in which packages, and commands that install them, are folded."""


def doctor(
    context: typer.Context,
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
) -> None:
    """Versions, devices, memory, the store, settings in force and from where; exit 2 if something is broken."""
    from memlm_cli.doctor import examine

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
        [row for extra in found["extras"] for row in _extra(extra)],
    )
    yield "Machine", ("", ""), list(_machine(found["devices"], found["memory"]))
    yield "Store", ("", ""), list(_store(found["store"]))
    settings = [(_option(s), _value(s["value"]), s["from"]) for s in found["settings"]]
    variables = [(f"${name}", value, "environment") for name, value in found["variables"].items()]
    yield "Settings", ("", "value", "from"), [*settings, *variables]
    verdict: list[Row] = [((problem, "red"),) for problem in found["problems"]] or [("none: memlm has what it needs",)]
    yield "Problems", ("",), verdict


def _extra(extra: Facts) -> Iterator[Row]:
    """An extra in as many lines as its packages and the command fill, which is still one where it is copied."""
    command = wrap(extra["command"] or "", WIDEST, break_long_words=False, break_on_hyphens=False)
    lines = [*(f"{line} \\" for line in command[:-1]), *command[-1:]]
    state = wrap(_state(extra), NARROW, break_long_words=False, break_on_hyphens=False)
    yield from zip_longest([extra["extra"]], state, lines, fillvalue="")


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


def _store(store: Facts) -> Iterator[Row]:
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
