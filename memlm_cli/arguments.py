"""Arguments of a command: settings, names and references of artifacts; and the line that answers
them.
"""

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memlm_cli.console import answers_on_terminal, say
from memlm_cli.options import Common
from memlm_cli.progress import not_working
from memlm_cli.results.show import show_result, tell_rest
from pipelines.options import Option
from pipelines.settings import Settings, assignment, merged, nested
from stages.artifacts.store import Store
from stages.config import read_toml
from stages.errors import ArtifactError, UsageError
from stages.reporting import first_process

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact
    from stages.artifacts.make import Outcome

LENGTHS = (("steps", "epochs"),)
"""Settings with the same meaning: the one given later, or typed, replaces the other."""


def given_settings(
    common: Common, values: Mapping[str, Any], options: Mapping[str, Option] = {}
) -> Settings:
    """All settings that a user gave for a stage, as nested tables. Settings not given have their
    defaults.

    Typed settings win over those of the file of --config.

    Args:
        common: has --config, --set and --precision.
        values: values of the command's own options by name; None: not given.
        options: options whose setting has another name; the others give the setting of their own
        name.
    """
    named = {
        options[name].setting if name in options else name: value for name, value in values.items()
    }
    assigned = [assignment(text) for text in common.set or ()]
    typed = merged(*assigned, nested(named))
    _require_one(typed)
    file = read_toml(common.config) if common.config else {}
    return merged(_without_replaced(file, typed), typed)


def _without_replaced(settings: Settings, later: Settings) -> Settings:
    """Settings without those that a later layer gives under another name, in nested groups too."""
    replaced = set()
    for name, other in LENGTHS:
        if name in later:
            replaced.add(other)
        if other in later:
            replaced.add(name)

    result = {}
    for name, value in settings.items():
        if name in replaced:
            continue
        later_value = later.get(name)
        if isinstance(value, dict) and isinstance(later_value, dict):
            value = _without_replaced(value, later_value)
        result[name] = value
    return result


def _require_one(settings: Settings) -> None:
    """Check that no two settings have the same meaning. Raises: UsageError."""
    for name, other in LENGTHS:
        if name in settings and other in settings:
            raise UsageError(
                f"--{name} and --{other} both say how long to train; give one of them."
            )
    for below in settings.values():
        if isinstance(below, dict):
            _require_one(below)


def publish_name(common: Common, artifact: "Artifact") -> None:
    """Give an artifact the name that --name asks for."""
    if common.name is not None:
        artifact.store.name(artifact, common.name)


def read_reference(
    argument: str | None, name: str = "an artifact (kind/id; memlm artifacts list)"
) -> str:
    """The reference that a command works on: its argument, else the last line that the previous
    stage printed.

    `name`: what the message asks for if nothing comes.

    Raises: UsageError if it would be read from a terminal, ArtifactError if nothing comes.
    """
    if argument not in (None, "-"):
        return argument
    if _terminal_asks():
        raise UsageError(
            f"No artifact reference given: name {name}, or pipe the stage before into this one."
        )
    line = _last_line()
    if line is None:
        raise ArtifactError(
            "no artifact reference on standard input: did the previous stage fail? Where there is none before, name "
            f"{name}."
        )
    return line


def read_question(argument: str | None, report: str | None, store: Store) -> str:
    """Same as `read_reference`; without argument and input, the model of `report`, if one is given."""
    if argument is not None or report is None:
        return read_reference(argument)
    line = None if _terminal_asks() else _last_line()
    return line or store.get(report, "report").input("model").reference


def _terminal_asks() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _last_line() -> str | None:
    """The last line of standard input that is not blank. Raises: ArtifactError if it is not text."""
    try:
        with not_working():  # the previous stage is
            lines = [line.strip() for line in sys.stdin or () if line.strip()]
    except UnicodeDecodeError:
        raise ArtifactError("Standard input is no artifact reference: it is no UTF-8.") from None
    return lines[-1] if lines else None


def require_text(option: str, value: str) -> None:
    """Check that the value of an option is text. Raises: UsageError if it holds other bytes."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{option} is no UTF-8.") from None


def tell_outcome(command: str, outcome: "Outcome", common: Common) -> None:
    """Show the content of an artifact as tables on stderr, and whether it existed before."""
    if outcome.status == "cached" and first_process():
        say(f"{command}: cached")
    show_result(outcome.artifact, named=answers_on_terminal(), verbose=common.verbose)
    tell_rest(outcome.artifact, verbose=common.verbose)


def reference_line(artifact: "Artifact", status: str, common: Common) -> str:
    """`kind/id`, or with --json an object that holds it."""
    if not common.json:
        return artifact.reference
    return json.dumps(
        {
            "reference": artifact.reference,
            "kind": artifact.kind,
            "id": artifact.id,
            "name": common.name,
            "status": status,
            "path": str(artifact.path),
            "metrics": artifact.metrics,
        }
    )
