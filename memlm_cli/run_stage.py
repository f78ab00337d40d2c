"""From options to one artifact: what the commands of all stages have in common."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from memlm_cli.console import answer, answers_on_terminal, note, say
from memlm_cli.exit_codes import resumable
from memlm_cli.options import Common
from memlm_cli.progress import ConsoleReporter, not_working
from memlm_cli.result_tables import show_result, tell_rest
from pipelines.catalogue import COMMANDS, config_of, stage_of
from pipelines.command_words import command_words
from pipelines.options import Option, options_of
from pipelines.settings import Settings, assignment, merged, nested, validated
from stages.artifacts.references import check_name
from stages.artifacts.store import Store
from stages.config import read_toml
from stages.errors import ArtifactError, UsageError
from stages.pretrained.location import names_tokenizer
from stages.reporting import first_process
from stages.text.config import GIVEN
from stages.training.presets import training_preset

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact
    from stages.artifacts.make import Outcome
    from stages.config import StageConfig

LENGTHS = (("steps", "epochs"),)
"""Settings that say the same thing: the one that is said later, or typed, takes the place of the other."""


class Work(NamedTuple):
    """A stage to be run, as its command says it."""

    config: "StageConfig"
    references: dict[str, Any]
    """Artifacts and files by what the stage calls them."""
    asked: Settings
    """The settings that were asked for, without those of a preset."""
    preset: str | None


def make_artifact(command: str, source: Any, given: Mapping[str, Any], common: Common) -> None:
    """Make, or find, the artifact of a command; print its reference, and its content as a table.

    Where only a plan is asked for (`memlm plan`), print that.

    Args:
        command: its name.
        source: its argument, a list of files where it reads them; None or `-` reads a reference from standard input.
        given: values of the command's own options by name; None: not given.
        common: the options under "Everywhere".
    Raises: UsageError before anything is read or started; whatever the stage raises.
    """
    work = prepare(command, given, common)
    work.references["source"] = (source or []) if COMMANDS[command].reads_files else read_reference(source)
    if common.plan:
        from memlm_cli.commands.plan import show_estimates
        from pipelines.estimates import Task

        return show_estimates([Task(command, command, work.config, work.references)], common)
    outcome = run_stage(command, work, common)
    answer(reference_line(outcome.artifact, outcome.status, common))
    tell_outcome(command, outcome, common)


def prepare(command: str, given: Mapping[str, Any], common: Common) -> Work:
    """The settings of a command, validated, and the artifacts and files that its options name.

    Args:
        given: values of options by name; other names are settings, and may be nested.
    Raises: UsageError for settings that make no sense, before anything is read.
    """
    model, options = config_of(command), options_of(config_of(command))
    references = {role: given.get(role) for role in COMMANDS[command].references}
    preset = given.get("model") if model.has_presets and isinstance(given.get("model"), str) else None
    typed = {name: value for name, value in given.items() if value is not None and value is not preset}
    typed = {
        name: options[name].value(value) if name in options else value
        for name, value in typed.items()
        if name in options or name not in references
    }
    # One that is named is read as a file or an artifact: its bytes belong to the id, its name does not.
    if (tokenizer := typed.get("tokenizer")) is not None:
        references["tokenizer"] = tokenizer if names_tokenizer(tokenizer) else None
        typed["tokenizer"] = GIVEN if names_tokenizer(tokenizer) else tokenizer
    if "precision" in model.model_fields:
        typed["precision"] = common.precision
    asked = given_settings(common, typed, options)
    under = _preset(preset, asked, references["init_from"], common) if model.has_presets else {}
    config: StageConfig = validated(model, merged(under, asked))
    check_artifact_name(common)
    return Work(config, {role: value for role, value in references.items() if value not in (None, [])}, asked, preset)


def run_stage(command: str, work: Work, common: Common) -> "Outcome":
    """Make, or find, the artifact of a stage, and give it the name that is asked for."""
    from stages.artifacts.make import make

    store = common.open_store()
    words = command_words(command, work.references, work.asked, work.preset)
    with resumable(), ConsoleReporter(command) as reporter:
        how = replace(common.execution(reporter), command=words)
        outcome = make(stage_of(command), work.config, work.references, store, how)
    publish_name(common, outcome.artifact)
    return outcome


def _preset(name: str | None, asked: Mapping[str, Any], init_from: str | None, common: Common) -> dict[str, Any]:
    """Settings of a training that the user's own are laid over."""
    init = None if init_from is None else Store(common.store).get(init_from, "model").config["model"]
    return training_preset(name, asked, init)


def given_settings(common: Common, given: Mapping[str, Any], options: Mapping[str, Option] = {}) -> Settings:
    """All that a user said about a stage's configuration, as nested tables; what is not said has its default.

    What was typed wins over what memlm.toml says, whichever way it was typed.

    Args:
        common: has --config, --set and --precision.
        given: values of the command's own options by name; None: not given.
        options: the settings that these give; others give the setting of their name.
    """
    result: Settings = {}
    layers: list[Settings] = []
    # memlm.toml comes first: whatever was typed wins over it.
    for by_default in (True, False):
        named = {name: value for name, value in given.items() if (name in common.by_default) == by_default}
        own = {options[name].setting if name in options else name: value for name, value in named.items()}
        layers += _layers(common, own, by_default=by_default)
    for layer in layers:
        result = merged(_giving_way(result, layer), layer)
    return result


def _layers(common: Common, own: Mapping[str, Any], *, by_default: bool) -> list[Settings]:
    """Settings of memlm.toml, or all others: the file of --config, --set and options."""
    chosen = ("config" in common.by_default) == by_default
    file = read_toml(common.config) if common.config and chosen else {}
    assigned = [assignment(text) for text in (common.default_set if by_default else common.set or ())]
    said = merged(*assigned, nested(own))
    _require_one(said)
    return [file, said]


def _giving_way(settings: Settings, later: Settings) -> Settings:
    """Settings without those in whose place a later layer says the same thing by another name, in groups too."""
    replaced = {name for one, other in LENGTHS for name, said in ((one, other), (other, one)) if said in later}
    return {
        name: _giving_way(value, later[name])
        if isinstance(value, dict) and isinstance(later.get(name), dict)
        else value
        for name, value in settings.items()
        if name not in replaced
    }


def _require_one(said: Settings) -> None:
    """Raises: UsageError where two settings say the same thing."""
    for one, other in LENGTHS:
        if one in said and other in said:
            raise UsageError(f"--{one} and --{other} both say how long to train; give one of them.")
    for below in said.values():
        if isinstance(below, dict):
            _require_one(below)


def check_artifact_name(common: Common) -> None:
    """Raises UsageError if --name will not do."""
    if common.name is not None:
        check_name(common.name)


def publish_name(common: Common, artifact: "Artifact") -> None:
    """Give an artifact the name that --name asks for."""
    if common.name is not None:
        artifact.store.name(artifact, common.name)


def read_reference(argument: str | None, name: str = "an artifact (kind/id; memlm artifacts list)") -> str:
    """The reference that a command works on: its argument, else the last line that the stage before it printed.

    `name`: what to name where nothing comes.

    Raises: UsageError if it would be read from a terminal, ArtifactError if nothing comes.
    """
    if argument not in (None, "-"):
        return argument
    if _terminal_asks():
        raise UsageError(f"No artifact reference given: name {name}, or pipe the stage before into this one.")
    line = _last_line()
    if line is None:
        raise ArtifactError(
            "no artifact reference on standard input: did the previous stage fail? Where there is none before, name "
            f"{name}."
        )
    return line


def read_question(argument: str | None, report: str | None, store: Store) -> str:
    """As `read_reference`; where nothing is named or comes, the model that a report is of, if one is named."""
    if argument is not None or report is None:
        return read_reference(argument)
    line = None if _terminal_asks() else _last_line()
    return line or store.get(report, "report").input("model").reference


def _terminal_asks() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _last_line() -> str | None:
    """The last line of standard input that is not blank. Raises: ArtifactError for what is no text."""
    try:
        with not_working():  # the stage before it does
            lines = [line.strip() for line in sys.stdin or () if line.strip()]
    except UnicodeDecodeError:
        raise ArtifactError("Standard input is no artifact reference: it is no UTF-8.") from None
    return lines[-1] if lines else None


def require_text(option: str, value: str) -> None:
    """Raises: UsageError if an option holds bytes that are no text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{option} is no UTF-8.") from None


def tell_outcome(command: str, outcome: "Outcome", common: Common) -> None:
    """The content of an artifact as tables on stderr, and whether it was there."""
    if outcome.status == "cached" and first_process():
        say(f"{command}: cached")
    note(f"{command}: {outcome.artifact.reference} {outcome.status}")
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
