"""The options that every stage's command has, given to it as one value, and those that several commands share."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from stages.errors import UsageError

_PANEL = "Everywhere"
ON_CPU = "tokenize, build-index and pack-batches"
"""Commands that run no model."""

ReadArgument = Annotated[
    str | None,
    typer.Argument(metavar="REF", help="A model, index or neighbors; - or none: from stdin."),
]
SettledMemoryOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SOURCES[:key=value,…]",
        help="One reading, on top of those before it, with numbers: external:temperature=10,lambda=0.25; none: the "
        "model alone (default: those of --report, else as the model was trained to read, at fixed numbers).",
    ),
]


def _folder(path: str | Path) -> Path:
    if not str(path):
        raise typer.BadParameter("name a folder")
    return Path(path)


StoreOption = Annotated[
    Path,
    typer.Option(
        "--store",
        envvar="MEMLM_STORE",
        metavar="PATH",
        parser=_folder,
        help="Folder of artifacts.",
        rich_help_panel=_PANEL,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.", rich_help_panel=_PANEL)]
DEFAULT_STORE = Path("memlm-store")


@dataclass(frozen=True)
class Common:
    """What the options under "Everywhere" say. Raises UsageError for a number that makes no sense."""

    store: StoreOption = DEFAULT_STORE
    name: Annotated[
        str | None, typer.Option("--name", help="Also call the artifact KIND/NAME.", rich_help_panel=_PANEL)
    ] = None
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        typer.Option("--device", help=f"Where to compute; {ON_CPU} use the CPU.", rich_help_panel=_PANEL),
    ] = "auto"
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            metavar="N",
            help="Processes that share the work of a stage; not of train, which has torchrun.",
            rich_help_panel=_PANEL,
        ),
    ] = 1
    precision: Annotated[
        Literal["auto", "fp32", "bf16"] | None,
        typer.Option(
            "--precision",
            help=f"Of models' arithmetic; auto is fp32 on CPU and bf16 on CUDA; {ON_CPU} have none.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option("--config", help="TOML file with settings of this command.", rich_help_panel=_PANEL),
    ] = None
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=VALUE", help="One setting; repeatable.", rich_help_panel=_PANEL),
    ] = None
    checkpoint_seconds: Annotated[
        float,
        typer.Option(
            "--checkpoint-seconds",
            help="How often train saves; other commands save after every shard.",
            rich_help_panel=_PANEL,
        ),
    ] = 60.0
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait",
            help="Exit 75 instead of waiting for a process that makes the same.",
            rich_help_panel=_PANEL,
        ),
    ] = False
    verify_inputs: Annotated[
        bool,
        typer.Option(
            "--verify-inputs",
            help="Hash every byte of what is read before it is used; else files that look unchanged are trusted.",
            rich_help_panel=_PANEL,
        ),
    ] = False
    json: JsonOption = field(default=False)

    def __post_init__(self) -> None:
        if not 0 < self.checkpoint_seconds < float("inf"):
            raise UsageError(f"--checkpoint-seconds must be above 0, not {self.checkpoint_seconds}.")
        if self.workers < 1:
            raise UsageError(f"--workers must be 1 or more, not {self.workers}.")


def with_common_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the common options after its own; it receives them as its last argument, `common`."""
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "common"]
    shared = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in inspect.signature(Common).parameters.values()]

    @wraps(command)
    def wrapped(**values: Any) -> None:
        common = Common(**{p.name: values.pop(p.name) for p in shared})
        command(**values, common=common)

    wrapped.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in (*own, *shared)}
    return wrapped
