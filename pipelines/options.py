"""Options of commands, derived from settings; and the words of a command, to type it again.

A field of a settings class is an option, and its docstring the help. A `Spelling` next to the field
adds what these do not contain. Groups of settings, fields in `not_options`, and `precision`, which
all commands share, are not options.
"""

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pipelines.catalogue import config_of
from pipelines.settings import leaves, nested
from stages.artifacts.kinds import COMMANDS
from stages.config import OneOf, Settings, Spelling, StageConfig
from stages.validation import groups_of

SHARED = ("precision",)
"""Settings whose option is among those that all commands have."""
WITHOUT = re.compile(r"(?:^|[;.,] )None(?: or `auto`)?: (.*)$", re.DOTALL)
"""The end of a docstring about None: the behaviour without the option."""
BOUNDS: dict[type, tuple[str, str]] = {
    Gt: ("gt", "above"),
    Ge: ("ge", "at least"),
    Lt: ("lt", "below"),
    Le: ("le", "at most"),
}


@dataclass(frozen=True)
class Option:
    """One option of a command."""

    name: str
    """Name of the option, with `_` for `-`."""
    setting: str
    """Dotted name of its setting."""
    type: Any
    """bool, int, float, str, or a Literal."""
    help: str
    metavar: str | None
    repeated: bool
    """Whether it is repeated for each value."""
    separated: bool
    """Whether its values are separated by commas."""
    flag: str
    is_default: bool
    """Whether typing it changes nothing: a switch that is on. `--set` turns it off."""

    def value(self, value: Any) -> Any:
        """The value of the setting, from a typed value or one given in Python."""
        if isinstance(value, str) and (self.repeated or self.separated):
            return value.split(",") if self.separated else [value]
        return value


@cache
def options_of(config: type[Settings]) -> dict[str, Option]:
    """The options of a class of settings, by name: its own before inherited ones.

    >>> from stages.datastore import DatastoreConfig
    >>> options_of(DatastoreConfig)["fraction"].help
    'Share of the split to store, from its start (above 0, at most 1; default: 1).'
    """
    options = [
        _option(path, field, owner, config.has_presets) for path, field, owner in _fields(config)
    ]
    return {option.name: option for option in options}


def _fields(config: type[Settings]) -> Iterator[tuple[str, FieldInfo, type[BaseModel]]]:
    """Settings that are options: dotted name, field, and class of each."""
    inherited = {name for base in config.__mro__[1:] for name in getattr(base, "model_fields", ())}
    order = sorted(config.model_fields, key=inherited.__contains__).index
    shared = SHARED if issubclass(config, StageConfig) else ()
    for name in sorted(config.model_fields.keys() - {*config.not_options, *shared}, key=order):
        field = config.model_fields[name]
        parts = [mark for mark in _marks(field) if isinstance(mark, OneOf)]
        if parts and _spelling(field) is None:
            # Settings of memlm's own parts are not options here, so help loads none of them.
            outside = [group for mark in parts for group in mark.outside_classes()]
            for path, inner, owner in _spelled_below(name, outside):
                if (
                    path.rpartition(".")[2] not in config.model_fields
                ):  # the stage's own options keep such names
                    yield path, inner, owner
        elif groups := groups_of(field):
            yield from ((f"{name}.{mark.by}", field, config) for mark in parts)
            yield from _spelled_below(name, groups)
        elif _types(field.annotation):
            yield name, field, config


def _spelled_below(
    above: str, groups: Sequence[type[BaseModel]]
) -> Iterator[tuple[str, FieldInfo, type[BaseModel]]]:
    """Fields with a `Spelling` in groups of settings."""
    for group in groups:
        below = (
            (name, field)
            for name, field in group.model_fields.items()
            if _spelling(field) and not groups_of(field)
        )
        yield from ((f"{above}.{name}", field, group) for name, field in below)


def _option(path: str, field: FieldInfo, owner: type[BaseModel], presets: bool) -> Option:
    name = path.rpartition(".")[2]
    spelling = _spelling(field) or Spelling()
    kind, separated = _kind(field.annotation)
    kind = str if spelling.metavar else kind  # it stands for more than a number
    help = _help(spelling.help or docstring(owner, name), field, owner, presets)
    repeated = spelling.repeated
    separated = separated and not spelling.repeated
    flag = f"--{(spelling.flag or name).replace('_', '-')}"
    is_default = field.default is True
    return Option(name, path, kind, help, spelling.metavar, repeated, separated, flag, is_default)


def _spelling(field: FieldInfo) -> Spelling | None:
    return next((mark for mark in field.metadata if isinstance(mark, Spelling)), None)


def _kind(annotation: Any) -> tuple[Any, bool]:
    """The type of an option, str if several are legal, and whether it takes several values."""
    kinds = _types(annotation)
    kind = kinds[0] if len(kinds) == 1 else str
    return (str, True) if get_origin(kind) is tuple else (kind, False)


def _types(annotation: Any) -> list[Any]:
    """The legal types of a value, except None; empty if only one value is legal."""
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        return _types(arguments[0])
    if origin in (Union, UnionType):
        return list(chain.from_iterable(map(_types, arguments)))
    is_one_value = origin is Literal and len(arguments) == 1
    return [] if annotation in (NoneType, None) or is_one_value else [annotation]


def _help(doc: str, field: FieldInfo, owner: type[BaseModel], presets: bool) -> str:
    """A docstring as help: names of settings become options; range and default are added at the
    end.
    """
    text = " ".join(doc.split())
    default = "" if presets else _spelled(field.default)
    # the docstring may say in words what is done without the option
    without = WITHOUT.search(text)
    if without:
        text = text[: without.start()]
        default = without[1].rstrip(".")
    text = text.rstrip(".")

    notes = list(_range(field))
    if default:
        notes.append(f"default: {default}")
    if notes:
        text += f" ({'; '.join(notes)})"

    def as_option(quoted: re.Match[str]) -> str:
        name = quoted[1]
        return f"--{name.replace('_', '-')}" if name in owner.model_fields else name

    return re.sub(r"`([^`]*)`", as_option, text) + "."


def _spelled(default: Any) -> str:
    """A default as it would be typed; empty for off and None."""
    if default in (None, "", ()) or isinstance(default, bool):
        return ""
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return (
        f"{default:,}"
        if isinstance(default, int)
        else f"{default:g}"
        if isinstance(default, float)
        else str(default)
    )


def _range(field: FieldInfo) -> Iterator[str]:
    """Bounds of a number with an upper bound; without one, that it is not negative needs no
    mention.
    """
    bounds = {BOUNDS[type(mark)]: mark for mark in _marks(field) if type(mark) in BOUNDS}
    if _kind(field.annotation)[0] is float and any(name in ("lt", "le") for name, _ in bounds):
        yield ", ".join(f"{word} {getattr(mark, name):g}" for (name, word), mark in bounds.items())


def _marks(field: FieldInfo) -> Iterator[Any]:
    """Metadata of a field, and of the legal types of its values."""
    yield from field.metadata
    for legal_type in get_args(field.annotation):
        if get_origin(legal_type) is Annotated:
            for info in legal_type.__metadata__:
                yield from getattr(info, "metadata", (info,))


def docstring(config: type, name: str) -> str:
    """The text under a field, in the nearest class that has one; empty if none has."""
    classes = (
        base for base in config.__mro__ if issubclass(base, Settings) and base is not Settings
    )
    texts = (_texts(base.__module__).get((base.__name__, name)) for base in classes)
    return next(filter(None, texts), "")


@cache
def _texts(module: str) -> dict[tuple[str, str], str]:
    """The texts under the fields of a module's classes, by name of the class and of the field."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        (definition.name, field.target.id): str(text.value.value)
        for definition in ast.walk(tree)
        if isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def command_words(
    command: str,
    references: Mapping[str, Any],
    settings: Mapping[str, Any],
    preset: str | None = None,
) -> tuple[str, ...]:
    """A command: its arguments, other references and settings as options, the rest by `--set`.

    Args:
        command: its name.
        references: artifacts and files by role; `source` is the argument.
        settings: only the requested ones, nested.
        preset: the name after `--model`; None: not given.

    >>> command_words("build-datastore", {"source": "model/lm"}, {"split": "valid", "key": None})
    ('build-datastore', 'model/lm', '--split', 'valid')
    """
    argument_roles = (COMMANDS[command].first, "source")
    words = [command]
    for role in argument_roles:
        words += _listed(references.get(role))
    for role, value in references.items():
        if role not in argument_roles:
            for reference in _listed(value):
                words += [f"--{role.replace('_', '-')}", reference]
    if preset:
        words += ["--model", preset]

    # a group of settings may have the name of a reference; `auto` is what a setting is without an
    # option
    typed = {}
    for name, value in settings.items():
        is_reference = name in references and not isinstance(value, Mapping)
        if not is_reference and value != "auto":
            typed[name] = value
    for option in setting_words(command, typed):
        words += option
    return tuple(words)


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(map(str, value))


def on_top_of_preset(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a training that differ from those of `memlm train` without a preset; nested."""
    from stages.training.config import TrainConfig
    from stages.training.presets import choose_preset

    backbone = config["model"]["backbone"]
    preset = TrainConfig.model_validate(choose_preset(None, backbone))
    if config["model"].get(
        "vocab_size"
    ):  # of a trained model: sizes that follow from the text are not settings
        model = preset.model.sized(config["model"]["vocab_size"], config["segment_length"])
        preset = preset.model_copy(update={"model": model})
    return nested({"model.backbone": backbone, **dict(differences(config, preset.stored()))})


def setting_words(command: str, settings: Mapping[str, Any]) -> Iterator[list[str]]:
    """Words of each nested setting, as an option of the command, else as --set."""
    config = config_of(command)
    options = {
        option.setting: (option.flag, option.repeated) for option in options_of(config).values()
    }
    if "precision" in config.model_fields:
        options["precision"] = "--precision", False
    for path, value in differences(settings, {}):
        yield from _typed(path, value, *options.get(path, (None, False)))


def differences(config: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Dotted names and values of `config` that differ from `base`; None counts as not given."""
    base_values = dict(leaves(base))
    yield from (
        (path, value)
        for path, value in leaves(config)
        if value is not None and value != base_values.get(path)
    )


def _typed(path: str, value: Any, option: str | None, repeated: bool) -> Iterator[list[str]]:
    values = list(value) if isinstance(value, list | tuple) else None
    # A name with a comma, as of a task, would be read as two names.
    has_comma = values is not None and any("," in str(element) for element in values)
    if option is None or value is False or (has_comma and not repeated):
        # TOML has no halves of surrogate pairs, which JSON would write otherwise.
        yield ["--set", f"{path}={json.dumps(value, ensure_ascii=False)}"]
    elif value is True:
        yield [option]
    elif values is None:
        yield [option, str(value)]
    elif repeated:
        for element in values or ("none",):
            yield [option, str(element)]
    else:
        yield [option, ",".join(map(str, values))]
