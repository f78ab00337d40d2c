"""A command of the command line, called from Python: options by name in, the reference of what it made out."""

import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import typer

from memlm_cli.app import app, invoke
from memlm_cli.defaults import read_defaults
from memlm_cli.exit_codes import BUG, CommandLineError, usage_message
from memlm_cli.log_file import close_log
from pipelines.catalogue import COMMANDS
from stages.artifacts.advice import DEFAULT_STORE
from stages.errors import UsageError, did_you_mean


def run_command(command: str, sources: Sequence[str], settings: Mapping[str, Any]) -> str:
    """Run a command that makes an artifact, as if it were typed; returns the artifact's reference.

    Args:
        command: its name.
        sources: its argument; nothing is read from standard input.
        settings: options by name with `_` for `-`, lists for several values; other names are settings, as after
            `--set`, groups of them as nested mappings.
    Raises: what the command raises; UsageError for options that it does not take.
    """
    if command not in COMMANDS:
        raise UsageError(f"There is no stage {command!r}; {did_you_mean(command, COMMANDS)}")
    if not sources and not COMMANDS[command].reads_files:
        raise UsageError(f"{command} reads {' or '.join(COMMANDS[command].source)}: name one.")
    words = [command, *(word for name, value in settings.items() for word in _words(command, name, value))]
    printed = io.StringIO()
    with redirect_stdout(printed), _logged():
        try:
            invoke([*words, "--", *sources], without_defaults_of=["json"])
        except CommandLineError as error:
            raise UsageError(usage_message(error)) from None
    return printed.getvalue().split()[-1]


def default_store() -> Path:
    """Where artifacts are unless somebody says so: `$MEMLM_STORE`, else as `memlm.toml` says, else `memlm-store`.

    Raises: UsageError for a `memlm.toml` that makes no sense.
    """
    if named := os.environ.get("MEMLM_STORE"):
        return Path(named)
    defaults = read_defaults(typer.main.get_command(app))
    if defaults.error is not None:
        raise defaults.error
    return next((Path(e.value) for e in defaults.entries if e.shared and e.parameter == "store"), DEFAULT_STORE)


@contextmanager
def _logged() -> Iterator[None]:
    """A log that a command keeps ends with it."""
    try:
        yield
    except BaseException as error:
        close_log(getattr(error, "exit_code", BUG))
        raise
    close_log(0)


def _words(command: str, name: str, value: Any) -> Iterator[str]:
    """An option, or a setting, as it is typed; None and False: not at all."""
    option = None if isinstance(value, Mapping) else _options(command).get(name)
    if value is None or (option is not None and value is False):
        return
    if option is None:
        yield from _assignments(name, value)
    elif getattr(option, "is_flag", False):
        yield option.opts[0]
    elif getattr(option, "multiple", False):
        yield from (f"{option.opts[0]}={one}" for one in (value if isinstance(value, list) else [value]))
    else:
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        yield f"{option.opts[0]}={text}"


def _options(command: str) -> dict[str, Any]:
    """The options of a command by what stands behind `--`, with `_` for `-`; the answer's form is none of them."""
    group: Any = typer.main.get_command(app)
    parameters = (p for p in group.commands[command].params if p.param_type_name == "option" and p.opts != ["--json"])
    return {p.opts[0].removeprefix("--").replace("-", "_"): p for p in parameters}


def _assignments(name: str, value: Any) -> Iterator[str]:
    """A setting, or each of a group of them."""
    if isinstance(value, Mapping):
        for below, one in value.items():
            yield from _assignments(f"{name}.{below}", one)
    else:
        yield f"--set={name}={json.dumps(value)}"
