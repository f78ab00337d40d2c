"""The page of all settings, from their classes: what a setting is stands in its docstring alone.

Other pages link the module of a class,
`[settings](../../stages/models/layers/memory_settings.py#MemSizerSettings)`; on the site that is
its table here. Without a name it is the module's first.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

ROOT = Path(__file__).resolve().parents[2]
MODULE = re.compile(r"\]\((?:\.\./)+(stages/[\w/]+)\.py(#\w+)?\)")
HEAD = """# Settings

`--set NAME=value` gives any of these to `memlm train`, those of an index to `memlm build-index`. Many have an option of
their own ([commands](commands.md)).
`memlm presets NAME` shows those of a preset.
Settings of sources, readers and readings of tasks are [keys of `--memory`](reference/memories.md).
"""


def settings() -> str:
    """The page."""
    sys.path.insert(0, str(ROOT))
    from stages.memory.readers import READERS
    from stages.methods import METHODS
    from stages.models import BACKBONES
    from stages.models.layers import FEED_FORWARD, LOOKUP, STREAM_ATTENTION, WINDOW_ATTENTION
    from stages.retrieval.registries import SOURCES
    from stages.search.config import IndexConfig
    from stages.tasks import READINGS
    from stages.training.config import OptimizerConfig, ScheduleConfig, TrainConfig

    groups = {
        "Training": ("", {"training": TrainConfig}),
        "Optimizer": ("optimizer", {"optimizer": OptimizerConfig}),
        "Schedule": ("schedule", {"schedule": ScheduleConfig}),
        "Methods": ("memory", _parts(METHODS)),
        "Backbones": ("model", _parts(BACKBONES)),
        "Lookup": ("model.lookup", _parts(LOOKUP)),
        "Attention of a Transformer-XL": ("model.attention", _parts(STREAM_ATTENTION)),
        "Attention of a Transformer": ("model.attention", _parts(WINDOW_ATTENTION)),
        "Feed-forward layer": ("model.feed_forward", _parts(FEED_FORWARD)),
        "Sources of a memory": ("", _parts(SOURCES)),
        "Readers of a memory": ("", _parts(READERS)),
        "Readings of tasks": ("", _parts(READINGS)),
        "Index": ("", {"index": IndexConfig}),
    }
    lines, seen = [HEAD], set()
    for title, (prefix, parts) in groups.items():
        headings = [f"## {title}\n"] if len(parts) == 1 else [f"### {name}\n" for name in parts]
        lines += [f"## {title}\n"] if len(parts) > 1 else []
        for heading, part in zip(headings, parts.values(), strict=True):
            module = part.__module__.replace(".", "/")
            places = [place for place in (module, f"{module}.{part.__name__}") if place not in seen]
            lines += [*(f"({place})=" for place in places), heading, *_table(prefix, part), ""]
            seen.update(places)
    return "\n".join(lines)


def linked(text: str) -> str:
    """A page with links to modules of settings as links to their tables."""
    return MODULE.sub(lambda link: f"](#{link[1]}{(link[2] or '').replace('#', '.')})", text)


def _parts(registry: Any) -> dict[str, Any]:
    return {name: registry.settings(name) for name in registry.names()}


def _table(prefix: str, part: Any) -> Iterator[str]:
    """What a class is, and a line for each setting: its name, its default, its docstring."""
    from pipelines.options import docstring

    told = {name: text for name in part.model_fields if (text := docstring(part, name))}
    yield escaped((part.__doc__ or "").strip().partition("\n\n")[0])
    rows = [
        (name, field)
        for name, field in part.model_fields.items()
        if name in told or len(_choices(field)) > 1
    ]
    yield from ["\n| setting | default | |\n|---|---|---|"] if rows else []
    for name, field in rows:
        choices = (
            f"One of {', '.join(f'`{one}`' for one in _choices(field))}." if _choices(field) else ""
        )
        about = " ".join(filter(None, (escaped(told.get(name, "")), choices)))
        shown = ".".join(filter(None, (prefix, field.alias or name)))
        yield f"| `{shown}` | {_default(field)} | {about} |"


def _default(field: Any) -> str:
    """The default as it would be typed; empty where something else decides."""
    if any("auto" in (getattr(mark, "metavar", "") or "") for mark in field.metadata):
        return "`auto`"
    default = field.get_default(call_default_factory=True)
    return "" if default is None else f"`{default}`"


def _choices(field: Any) -> tuple[Any, ...]:
    """The texts that are legal, where the type lists them."""
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def escaped(text: str) -> str:
    """A text as a cell of a table, where it is no Markdown."""
    return (
        " ".join(text.split())
        .replace("|", "\\|")
        .replace("<", "&lt;")
        .replace("[", "\\[")
        .replace("*", "\\*")
    )
