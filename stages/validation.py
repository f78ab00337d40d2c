"""Settings validated, with messages for people."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, PlainSerializer, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from stages.config import OneOf
from stages.errors import UsageError, did_you_mean, nearest

M = TypeVar("M", bound=BaseModel)


def validated(model: type[M], values: Mapping[str, Any], where: str = "") -> M:
    """`values` as a `model`. Raises UsageError naming each setting that is wrong, and the nearest
    known name.

    Args:
        model: the settings' type.
        values: nested tables.
        where: prefix of names in messages (`"stages.model"`).
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        prefix = f"{where}: " if where else ""
        # The cause is left out: pydantic names classes, not settings.
        raise UsageError(prefix + "; ".join(_complaints(error, model))) from None


def _complaints(error: ValidationError, model: type[BaseModel]) -> Iterator[str]:
    """One error for each setting, though every member of a union reports its own."""
    wrong: dict[str, list[ErrorDetails]] = {}
    for problem in error.errors(include_url=False):
        path, legal, elsewhere = _walk(model, problem["loc"])
        if problem["type"] == "extra_forbidden":
            yield f"There is no setting {path!r}{elsewhere or f'; {_suggestion(path, legal, model)}'}"
        elif isinstance(cause := problem.get("ctx", {}).get("error"), UsageError):
            yield str(cause).rstrip(".")
        elif problem["type"] == "missing":
            yield f"The setting {path!r} is missing"
        else:
            wrong.setdefault(path, []).append(problem)
    for path, problems in wrong.items():
        if problems[0]["type"] == "too_short" and any(
            other.startswith(f"{path}.") for other in wrong
        ):
            continue  # pydantic calls a tuple too short if one of its values is wrong
        message = " or ".join(
            dict.fromkeys(p["msg"].removeprefix("Value error, ") for p in problems)
        )
        value = problems[0]["input"]
        value_text = (
            f" (given: {value!r})" if isinstance(value, str | int | float | bool | list) else ""
        )
        yield f"{path}: {message[:1].lower()}{message[1:]}{value_text}" if path else message


def _suggestion(path: str, legal: list[str], model: type[BaseModel]) -> str:
    """The nearest setting of the same group; for a name without a group, the nearest of all groups,
    in full.
    """
    group, dot, name = path.rpartition(".")
    places: dict[str, list[str]] = {}
    fields = {} if dot else _fields(model)
    everywhere = {
        f"{above}.{setting}"
        for above in fields
        for below in groups_of(fields[above])
        for setting in _fields(below)
    }
    for inner in sorted(everywhere):
        places.setdefault(inner.rpartition(".")[2], []).append(inner)
    places |= {sibling: [f"{group}{dot}{sibling}"] for sibling in legal}
    near = nearest(name, places)
    return (
        f"did you mean {' or '.join(map(repr, places[near]))}?"
        if near
        else did_you_mean(name, legal)
    )


def _walk(model: type[BaseModel], location: tuple[int | str, ...]) -> tuple[str, list[str], str]:
    """Walk along the location of a wrong setting.

    Returns: its dotted name without the tags of unions; the legal names there; and a hint at
        members of the union that have the setting, empty if none has it.
    """
    models = [model]
    path = []
    legal = list[str]()
    any_name = False
    named = False
    elsewhere = ""
    for number, part in enumerate(location):
        fields = {name: field for m in models for name, field in _fields(m).items()}
        unknown = bool(models) and number == len(location) - 1
        if (named or part not in fields) and (meant := [m for m in models if part in _tags(m)]):
            others = [tag for m in models if location[-1] in _fields(m) for tag in _tags(m)]
            if others and number == len(location) - 2:
                elsewhere = f" of {part}; it is one of {', '.join(others)}"
            models = meant
            named = False
            continue
        named = part in fields and any(isinstance(mark, OneOf) for mark in fields[part].metadata)
        if part in fields:
            legal = sorted(map(str, fields))
            models = groups_of(fields[part])
        elif unknown and not any_name:
            legal = sorted(map(str, fields))
        elif not any_name and not isinstance(part, int):
            continue
        path.append(str(part))
        any_name = part in fields and get_origin(fields[part].annotation) is dict
    return ".".join(path), legal, elsewhere


def _tags(model: type[BaseModel]) -> list[str]:
    """Names of a member of a union: values of fields with only one legal value."""
    values = (get_args(field.annotation) for field in model.model_fields.values())
    return [value[0] for value in values if len(value) == 1 and isinstance(value[0], str)]


def _fields(model: type[BaseModel]) -> dict[int | str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def groups_of(field: FieldInfo) -> list[type[BaseModel]]:
    """The groups of settings that a field may hold."""
    return [
        model
        for annotation in (field.annotation, *field.metadata)
        for model in _models_in(annotation)
    ]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if isinstance(annotation, OneOf):
        return list(annotation.classes())
    is_text = any(isinstance(mark, PlainSerializer) for mark in get_args(annotation))
    if get_origin(annotation) is Annotated and is_text:
        # Users type such a value as text, and manifests hold that.
        return []
    return [model for argument in get_args(annotation) for model in _models_in(argument)]
