"""The commands that make artifacts again, spelled from their manifests."""

import inspect
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from memlm_cli.settings import PARAMETERS
from memlm_cli.trial import TRIALS
from pipelines.catalogue import stage_of
from pipelines.settings import merged, nested
from stages.artifacts.advice import store_words
from stages.artifacts.kinds import ADDED, PREVIOUS, command_of
from stages.text.names import names_in
from stages.text.tokens import SPLITS

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact
    from stages.pages.lineage import Member

Settings = Mapping[str, Any]
Members = Mapping[str, "Member"]

REPEATED = {"memory", "forget"}
"""Options that are given once for each value."""


IMPORT = "import-model"
MOST_NAMED = 5
"""Files of a text that a script names."""


class Variable(str):
    """A word of a command that the shell is to expand; all others are quoted."""


def script(members: Members) -> str:
    """A shell script that makes every member of a lineage, each after what it is made from."""
    lines = [
        "#!/bin/sh",
        "# Run it where the store is to be, or set MEMLM_STORE. Files of text are yours to name:",
        "# a manifest keeps their digests, not their paths.",
        "set -e",
    ]
    for member in members.values():
        lines.append("")
        if member.artifact is None:
            lines.append(f"# {member.reference} is no longer in the store, and with it how it was made.")
        else:
            called = f" ({', '.join(member.names)})" if member.names else ""
            lines += [f"# {member.reference}{called}", command_line(member, members)]
    return "\n".join(lines) + "\n"


def report_with_scores(report: "Artifact") -> str:
    """The command that makes a report again, with the scores of its tokens."""
    from stages.pages.lineage import lineage_of

    members = lineage_of([report])
    words = [word for group in _command(members[report.reference], members) for word in group]
    return shlex.join([*words, "--save-token-scores", *store_words(report.store.root)])


def command_line(member: "Member", members: Members) -> str:
    """The command that makes an artifact again, lines joined by backslashes."""
    lines = [""]
    for group in (*_command(member, members), *(["--name", name] for name in member.names[:1])):
        text = " ".join(word if isinstance(word, Variable) else shlex.quote(word) for word in group)
        if len(lines[-1]) + len(text) > 110:
            lines.append("   ")
        lines[-1] += f" {text}"
    return " \\\n".join(line[1:] if number == 0 else line for number, line in enumerate(lines))


def _command(member: "Member", members: Members) -> Iterator[list[str]]:
    """The words of a command, those together that belong together."""
    command = IMPORT if _is_imported(member) else command_of(member.kind, member.inputs)
    yield ["memlm", command]
    yield from _references(member, members)
    yield from _options(command, member)


def _is_imported(member: "Member") -> bool:
    """Whether a model came from elsewhere: it was trained for no steps that are known."""
    return member.kind == "model" and member.artifact is not None and "steps" not in member.artifact.config


# What is read


def _references(member: "Member", members: Members) -> Iterator[list[str]]:
    kinds = {
        "tokens": _texts,
        "model": _learnt_from,
        "datastore": _encoded,
        "index": _indexed,
        "neighbors": _looked_up,
        "batches": lambda member, _: [[member.inputs["tokens"]]],
        "report": _read,
    }
    yield from kinds[member.kind](member, members)


def _texts(member: "Member", _: Members) -> Iterator[list[str]]:
    """Files by split, or one corpus that is cut; and the tokenizer, where it was given."""
    assert member.artifact is not None
    prefix = re.sub(r"\W+", "_", member.label if member.names else f"text_{member.id}").upper()
    prefix = prefix if prefix[:1].isalpha() else f"TEXT_{prefix}"
    if member.artifact.config.get("split") is not None:
        yield [_text_variable(prefix, member)]
    else:
        for split in (split for split in SPLITS if split in member.artifact.metrics["splits"]):
            yield [f"--{split}", _variable(f"{prefix}_{split.upper()}", f"file or folder of the {split} split")]
    if "tokenizer" in member.inputs:
        yield ["--tokenizer", member.inputs["tokenizer"]]
    elif member.artifact.config.get("tokenizer") == "given":
        yield ["--tokenizer", _variable(f"{prefix}_TOKENIZER", "tokenizer.json")]


def _text_variable(name: str, member: "Member") -> Variable:
    """The text that was cut into splits: the part that `memlm try` keeps of one, or the user's, by the files' names."""
    assert member.artifact is not None
    called = list(dict.fromkeys(file for split in SPLITS for file in names_in(member.artifact.path, split)))
    plain = [file for file in called if re.fullmatch(r"[\w. -]+", file)]
    if len(called) == len(plain) == 1:
        kept = next(member.artifact.store.root.glob(f"{TRIALS}/*/{called[0]}"), None)
        if kept is not None and re.fullmatch(r"[\w./ -]+", str(kept)):
            return Variable(f'"${{{name}:-{kept}}}"')
    named = f", {', '.join(plain)}" if called and plain == called and len(plain) <= MOST_NAMED else ""
    return _variable(name, f"file or folder of text{named}")


def _variable(name: str, what: str) -> Variable:
    """A shell variable that the user has to set."""
    return Variable(f'"${{{name}:?{what}}}"')


def _learnt_from(member: "Member", _: Members) -> Iterator[list[str]]:
    if _is_imported(member):
        yield [_variable(f"MODEL_{member.id.upper()}", "folder, .gguf file or hf:NAME"), member.inputs["tokens"]]
        return
    yield [next(member.inputs[role] for role in ("neighbors", "batches", "tokens") if role in member.inputs)]
    if "init" in member.inputs:
        yield ["--init-from", member.inputs["init"]]


def _encoded(member: "Member", members: Members) -> Iterator[list[str]]:
    if PREVIOUS in member.inputs:
        yield [member.inputs[PREVIOUS]]
        yield from ([["--add", member.inputs[ADDED]]] if ADDED in member.inputs else [])
        return
    encoder = member.inputs["encoder"]
    yield [encoder]
    yield from _other_tokens(member.inputs["corpus"], encoder, members)


def _indexed(member: "Member", members: Members) -> Iterator[list[str]]:
    datastore = member.inputs["datastore"]
    yield [datastore]
    if PREVIOUS in member.inputs:
        yield ["--update", member.inputs[PREVIOUS]]
    elif datastore in members and PREVIOUS in members[datastore].inputs:
        yield ["--update", "none"]


def _looked_up(member: "Member", members: Members) -> Iterator[list[str]]:
    index = member.inputs["index"]
    yield [index]
    datastore = members[index].inputs.get("datastore", "")
    encoder = members[datastore].inputs.get("encoder", "") if datastore in members else ""
    yield from _other_tokens(member.inputs["queries"], encoder, members)


def _read(member: "Member", members: Members) -> Iterator[list[str]]:
    """Where the memory's encoder is the model that is scored, the memory; else the model, and the memory by option."""
    inputs = member.inputs
    if "gate_neighbors" in inputs:
        yield from _read_through_gate(inputs, members)
    else:
        memory = next((role for role in ("neighbors", "index") if role in inputs), None)
        if memory and inputs["encoder"] == inputs["model"]:
            yield [inputs[memory]]
        else:
            yield [inputs["model"]]
            yield from ([[f"--{memory}", inputs[memory]]] if memory else [])
    yield from _other_tokens(inputs["tokens"], inputs["model"], members)
    if "baseline" in inputs:
        yield ["--baseline", inputs["baseline"]]


def _read_through_gate(inputs: Mapping[str, str], members: Members) -> Iterator[list[str]]:
    """`--neighbors` names what the gate reads, and the memory where there is no `--index`."""
    gate = inputs["gate_neighbors"]
    if inputs.get("neighbors", gate) != gate:
        yield [inputs["neighbors"]]
    else:
        yield [inputs["model"]]
        if "neighbors" not in inputs and "index" in inputs:
            yield ["--index", inputs["index"]]
    if inputs["model"] not in members or members[inputs["model"]].inputs.get("neighbors") != gate:
        yield ["--neighbors", gate]


def _other_tokens(tokens: str, model: str, members: Members) -> Iterator[list[str]]:
    """`--tokens`, unless they are those that the model learnt from."""
    if model not in members or members[model].inputs.get("tokens") != tokens:
        yield ["--tokens", tokens]


# How


def _options(command: str, member: "Member") -> Iterator[list[str]]:
    """Settings that differ from what the command does by itself, as options, else as --set."""
    assert member.artifact is not None
    config = dict(member.artifact.config)
    if command == "train":
        yield from _training_options(_with_gate_values(config), "init" in member.inputs)
        return
    if command == "tokenize" and config.get("tokenizer") == "given":
        del config["tokenizer"]
    if command == IMPORT:
        config = {"segment_length": config["segment_length"]}
    if command == "update-datastore":
        config = {name: value for name, value in config.items() if name in ("split", "forget", "precision")}
    if command == "tokenize" and config.get("tokenizer") == "word":
        config.setdefault("min_count", 1)  # what was done before there was this setting
    yield from _all_spelled(command, differences(config, stage_of(command).Config().model_dump(mode="json")))


def setting_words(command: str, settings: Settings) -> Iterator[list[str]]:
    """Nested settings as options of a command, else as --set."""
    yield from _all_spelled(command, differences(settings, {}))


def _all_spelled(command: str, settings: Iterable[tuple[str, Any]]) -> Iterator[list[str]]:
    options = _option_names(command)
    for path, value in settings:
        yield from _spelled(path, value, options)


def differences(config: Settings, base: Settings, above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values of what `config` has otherwise than `base`; what is None was not given."""
    for name, value in config.items():
        path, default = f"{above}{name}", base.get(name)
        if isinstance(value, dict):
            yield from differences(value, default if isinstance(default, dict) else {}, f"{path}.")
        elif value is not None and value != default:
            yield path, value


def _training_options(config: Settings, continued: bool) -> Iterator[list[str]]:
    """The shipped preset that leaves least to say, and that.

    Args:
        config: of a model.
        continued: whether it began with the weights of another, whose architecture it took over.
    """
    from stages.models.config import settings_left_open
    from stages.models.layers.lengths import remembered_lengths
    from stages.training.presets import preset_names

    said = {name: settings for name in (None, *preset_names()) if (settings := _on_top(name, config)) is not None}
    said = said or {None: dict(differences(config, {}))}
    name = min(said, key=lambda name: len(said[name]) + (name is not None))
    open_to_it = {f"model.{setting}" for setting in settings_left_open()}
    taken_over = {path for path in said[name] if path.startswith("model.") and path not in open_to_it}
    settings = {path: value for path, value in said[name].items() if not (continued and path in taken_over)}
    if continued and (length := remembered_lengths().get(config["model"].get("attention", {}).get("name"))):
        settings[f"model.attention.{length}"] = config["model"]["attention"][length]
    yield from ([["--model", name]] if name else [])
    yield from _all_spelled("train", settings.items())


def _on_top(preset: str | None, config: Settings) -> dict[str, Any] | None:
    """What to say on top of a preset, by dotted names; None where saying it does not give `config`.

    Args:
        preset: its name; None: the one that the backbone has by itself.
    """
    from stages.training.presets import choose_preset

    backbone = config["model"]["backbone"]
    try:
        raw = choose_preset(preset, backbone)
        method = {} if raw.get("method") == config["method"] else {"method": config["method"]}
        base = _as_trained(merged(raw, method))
        own = {} if preset or backbone == _usual_backbone(config["method"]) else {"model.backbone": backbone}
        said = {**own, **method, **dict(differences(config, base))}
        made = _as_trained(merged(raw, nested(said)))
    except ValueError:
        return None
    return said if not dict(differences(config, made)) and not _left_over(raw, config) else None


def _as_trained(settings: Settings) -> Settings:
    """What a model trained with such settings has, as far as that does not follow from what it is trained on."""
    from stages.training.config import TrainConfig

    config = TrainConfig.model_validate(settings)
    model = config.method_settings.fitted(config.model)
    return _with_gate_values(config.model_copy(update={"model": model}).model_dump(mode="json"))


def _with_gate_values(config: Settings) -> Settings:
    """The same, with the setting that stored models leave out where it is as it was before there was a choice."""
    model = config["model"]
    return {**config, "model": {"gate_values": "raw", **model}} if model.get("gate") else config


def _usual_backbone(method: str) -> str:
    """The backbone of a model where neither a preset nor a backbone is named."""
    from stages.models import DEFAULT_BACKBONE
    from stages.training.presets import choose_preset

    return str(choose_preset(None, None, method).get("model", {}).get("backbone", DEFAULT_BACKBONE))


def _left_over(raw: Settings, config: Settings) -> bool:
    """Whether a preset says something that the settings are without, which no option takes back."""
    for name, value in raw.items():
        held = config.get(name)
        if isinstance(value, Mapping) and isinstance(held, Mapping):
            if _left_over(value, held):
                return True
        elif held is None and (name in config or isinstance(value, Mapping)):
            return True
    return False


def _option_names(command: str) -> dict[str, str]:
    """Setting -> option, for what the command has an option for."""
    name = command.replace("-", "_")
    parameters = inspect.signature(getattr(import_module(f"memlm_cli.commands.{name}"), name)).parameters
    fields = stage_of(command).Config.model_fields
    options = {p: f"--{p.replace('_', '-')}" for p in parameters if p in fields and p != "model"}
    renamed = {path: f"--{p.replace('_', '-')}" for path, p in PARAMETERS.items() if p in parameters}
    return {**options, **renamed, **({"precision": "--precision"} if "precision" in fields else {})}


def _spelled(path: str, value: Any, options: Mapping[str, str]) -> Iterator[list[str]]:
    option = options.get(path)
    if option is None:
        yield ["--set", f"{path}={json.dumps(value)}"]
    elif value is True:
        yield [option]
    elif isinstance(value, list) and path in REPEATED:
        yield from ([option, str(one)] for one in value or ("none",))
    else:
        yield [option, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
