"""One run of a stage, from the options of its command to its artifact."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from memlm_cli.arguments import (
    given_settings,
    publish_name,
    read_reference,
    reference_line,
    tell_outcome,
)
from memlm_cli.console import answer
from memlm_cli.exit_codes import resumable
from memlm_cli.options import Common
from memlm_cli.progress import ConsoleReporter
from memlm_cli.work.piped_text import kept_unless_refused
from memlm_cli.work.plan import show_estimates
from pipelines.catalogue import config_of, stage_of
from pipelines.estimates import Task
from pipelines.options import Option, command_words, options_of
from pipelines.settings import Settings, merged
from stages.artifacts.kinds import COMMANDS
from stages.artifacts.make import Outcome, make
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.errors import UsageError, nearest
from stages.pretrained.location import names_tokenizer
from stages.registry import load
from stages.text import TOKENIZERS
from stages.text.config import GIVEN
from stages.validation import validated

RECEIPTS = "memlm_cli.work.receipts"
"""The module of receipts, which few commands need."""


class StageRequest(NamedTuple):
    """A stage to run: the settings and inputs of its command."""

    config: StageConfig
    references: dict[str, Any]
    """Artifacts and files by the stage's names for them."""
    typed: Settings
    """The requested settings, without those of a preset."""
    preset: str | None


def make_artifact(
    command: str,
    source: Any,
    values: Mapping[str, Any],
    common: Common,
    receipt: Path | None = None,
) -> None:
    """Make or find the artifact of a command; print its reference, and its content as a table.

    Under `memlm plan`, print only the plan.

    Args:
        command: its name.
        source: its argument, a list of files where it reads them, among which `-` is a text on
        standard input; else None or `-` reads a reference from there.
        values: values of the command's own options by name; None: not given.
        common: the options under "Everywhere".
        receipt: file for the receipt of what was forgotten; None: none is written.
    Raises: UsageError before anything is read or started; whatever the stage raises.
    """
    work = prepare(command, values, common)
    if receipt is not None:
        load(f"{RECEIPTS}:require_receipt")(receipt, work.config)
    if COMMANDS[command].reads_files:
        named = {**work.references, "source": source or []}
        with kept_unless_refused(named, common.store) as placed:
            return _make(command, work._replace(references=placed), common, receipt)
    work.references["source"] = read_reference(source, _source_in_words(command))
    _make(command, work, common, receipt)


def _make(command: str, work: "StageRequest", common: Common, receipt: Path | None) -> None:
    """Make or find the artifact of a request, and answer with it; under `memlm plan` only plan."""
    if common.plan:
        return show_estimates([Task(command, command, work.config, work.references)], common)
    outcome = run_stage(command, work, common)
    if receipt is not None:
        load(f"{RECEIPTS}:write_receipt")(receipt, outcome.artifact, common.open_store())
    answer(reference_line(outcome.artifact, outcome.status, common))
    tell_outcome(command, outcome, common)


def _source_in_words(command: str) -> str:
    """Words for what a command reads, for messages where it is not named.

    >>> _source_in_words("import-model")
    'tokens (memlm import-model CHECKPOINT TOKENS; memlm artifacts list tokens)'
    """
    row = COMMANDS[command]
    kinds = " or ".join(row.source)
    arguments = [row.first, "|".join(row.source)] if row.first else ["|".join(row.source)]
    usage = f"memlm {command} {' '.join(arguments).upper()}"
    return f"{kinds} ({usage}; memlm artifacts list {row.source[0]})"


def prepare(command: str, values: Mapping[str, Any], common: Common) -> StageRequest:
    """The settings of a command, validated, and the artifacts and files that its options name.

    Args:
        values: values of options by name; other names are settings, and may be nested.
    Raises: UsageError for invalid settings, before anything is read.
    """
    model = config_of(command)
    options = options_of(model)
    references = {role: values.get(role) for role in COMMANDS[command].references}
    preset = values.get("model") if model.has_presets else None
    if not isinstance(preset, str):
        preset = None

    typed = _typed_settings(values, options, references, preset)
    if "tokenizer" in typed:
        _name_tokenizer(typed, references, common)
    if "precision" in model.model_fields:
        typed["precision"] = common.precision
    settings = given_settings(common, typed, options)
    below = _preset_settings(preset, settings, references, common) if model.has_presets else {}
    config: StageConfig = validated(model, merged(below, settings))
    named = {role: value for role, value in references.items() if value not in (None, [])}
    return StageRequest(config, named, settings, preset)


def _typed_settings(
    values: Mapping[str, Any],
    options: Mapping[str, Option],
    references: Mapping[str, Any],
    preset: str | None,
) -> dict[str, Any]:
    """Values of settings that were typed; neither references nor the name of a preset."""
    typed = {}
    for name, value in values.items():
        if value is None or value is preset:
            continue
        if name in options:
            typed[name] = options[name].value(value)
        elif name not in references:
            typed[name] = value
    return typed


def _name_tokenizer(typed: dict[str, Any], references: dict[str, Any], common: Common) -> None:
    """Take a tokenizer that is a file or an artifact as a reference.

    Its bytes are part of the id, its name is not.
    """
    tokenizer = typed["tokenizer"]
    _require_kind_or_place(tokenizer, common)
    if names_tokenizer(tokenizer):
        references["tokenizer"] = tokenizer
        typed["tokenizer"] = GIVEN
    else:
        references["tokenizer"] = None


def _preset_settings(
    preset: str | None, settings: Settings, references: Mapping[str, Any], common: Common
) -> Settings:
    """The settings of a preset, which typed ones override."""
    # Imported for `train` alone: presets know the settings of all backbones.
    from stages.training.presets import training_preset

    source = references["init_from"]
    begins = None
    if source is not None:
        begins = Store(common.store).get(source, "model").config["model"]
    return training_preset(preset, settings, begins)


def _require_kind_or_place(tokenizer: str, common: Common) -> None:
    """Raises: UsageError for an unknown kind of tokenizer that resembles the name of tokens in the
    store.
    """
    if names_tokenizer(tokenizer) or nearest(tokenizer, TOKENIZERS.names()) is not None:
        return  # the settings refuse misspelled kinds
    if (near := nearest(tokenizer, Store(common.store).names("tokens"))) is not None:
        raise UsageError(f"There is no tokenizer {tokenizer!r}; did you mean tokens/{near}?")


def run_stage(command: str, work: StageRequest, common: Common) -> Outcome:
    """Make or find the artifact of a stage, and give it the requested name."""
    store = common.open_store()
    words = command_words(command, work.references, work.typed, work.preset)
    with resumable(), ConsoleReporter(command) as reporter:
        how = replace(common.execution(reporter), command=words)
        outcome = make(stage_of(command), work.config, work.references, store, how)
    publish_name(common, outcome.artifact)
    return outcome
