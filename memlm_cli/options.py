"""The options that every stage's command has, given to it as one value, and those that several commands share."""

import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memlm_cli import completion
from stages.artifacts.advice import DEFAULT_STORE
from stages.errors import UsageError

if TYPE_CHECKING:
    from stages.inspection.request import Request

PANEL = "Everywhere"
ON_CPU = "tokenize, build-index and pack-batches"
"""Commands that run no model."""

ReadArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="REF",
        autocompletion=completion.artifacts("index", "model", "neighbors"),
        help="A model, index or neighbors; - or none: from stdin.",
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
        rich_help_panel=PANEL,
    ),
]
VerifyInputsOption = Annotated[
    bool,
    typer.Option(
        "--verify-inputs",
        help="Hash every byte of what is read before it is used; else files that look unchanged are trusted.",
        rich_help_panel=PANEL,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.", rich_help_panel=PANEL)]


@dataclass(frozen=True)
class ReadOptions:
    """Values of the options of commands that read texts with a model and its memories."""

    memory: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCES[:key=value,…]",
            autocompletion=completion.memories,
            help="One reading, on top of those before it, with numbers: external:temperature=10,lambda=0.25; none: the "
            "model alone (default: those of --report, else as the model was trained to read, at fixed numbers).",
        ),
    ] = None
    report: Annotated[
        str | None,
        typer.Option(
            metavar="REPORT",
            autocompletion=completion.artifacts("report"),
            help="Take the readings and windows that this evaluation settled on, and its model where none is named.",
        ),
    ] = None
    index: Annotated[
        str | None,
        typer.Option(
            metavar="INDEX", autocompletion=completion.artifacts("index"), help="Memory of another encoder, searched."
        ),
    ] = None
    neighbors: Annotated[
        str | None,
        typer.Option(
            metavar="NEIGHBORS",
            autocompletion=completion.artifacts("neighbors"),
            help="The same, as stored, or what a gate reads; for a text of no split their index is searched.",
        ),
    ] = None
    context: Annotated[
        int | None, typer.Option(min=1, help="Tokens a window reads (default: the model's segment length).")
    ] = None
    stride: Annotated[
        int | None, typer.Option(min=1, help="Tokens between windows (default: --context; where text is written 1).")
    ] = None
    mem_length: Annotated[
        int | None, typer.Option(min=0, help="Positions that the backbone carries (default: the model's).")
    ] = None
    long_length: Annotated[
        int | None,
        typer.Option(
            min=0, help="Slots or entries that its layers remember beyond these, if they do (default: the model's)."
        ),
    ] = None
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute.")] = "auto"
    precision: Annotated[Literal["auto", "fp32", "bf16"], typer.Option(help="Of models' arithmetic.")] = "auto"

    def __post_init__(self) -> None:
        if self.report and self.memory:
            raise UsageError("--report and --memory both say what is read; give one of them.")

    def request(self, source: str, tokens: str | None = None) -> "Request":
        """The model `source` with its memories; `tokens`: another corpus than its own."""
        from stages.inspection.request import Request

        return Request(
            source=source,
            memory=None if self.memory is None else tuple(self.memory),
            report=self.report,
            references={"index": self.index, "neighbors": self.neighbors, "tokens": tokens},
            context=self.context,
            stride=self.stride,
            mem_length=self.mem_length,
            long_length=self.long_length,
            device=self.device,
            precision=self.precision,
        )


@dataclass(frozen=True)
class Common:
    """Values of the options under "Everywhere". Raises UsageError for a number that makes no sense."""

    store: StoreOption = DEFAULT_STORE
    name: Annotated[
        str | None, typer.Option("--name", help="Also call the artifact KIND/NAME.", rich_help_panel=PANEL)
    ] = None
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        typer.Option("--device", help=f"Where to compute; {ON_CPU} use the CPU.", rich_help_panel=PANEL),
    ] = "auto"
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            metavar="N",
            help="Processes that share the work of a stage; not of train, which has torchrun.",
            rich_help_panel=PANEL,
        ),
    ] = 1
    executor: Annotated[
        Literal["local", "ray"],
        typer.Option(
            "--executor",
            help="Where --workers are: on this machine, or on a Ray cluster that shares the store, where as many "
            "stages of a recipe run side by side.",
            rich_help_panel=PANEL,
        ),
    ] = "local"
    precision: Annotated[
        Literal["auto", "fp32", "bf16"] | None,
        typer.Option(
            "--precision",
            help=f"Of models' arithmetic; auto is fp32 on CPU and bf16 on CUDA; {ON_CPU} have none.",
            rich_help_panel=PANEL,
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option("--config", help="TOML file with settings of this command.", rich_help_panel=PANEL),
    ] = None
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=VALUE", help="One setting; repeatable.", rich_help_panel=PANEL),
    ] = None
    checkpoint_seconds: Annotated[
        float,
        typer.Option(
            "--checkpoint-seconds",
            help="How often train saves; other commands save after every shard.",
            rich_help_panel=PANEL,
        ),
    ] = 60.0
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait",
            help="Exit 75 instead of waiting for a process that makes the same.",
            rich_help_panel=PANEL,
        ),
    ] = False
    verify_inputs: VerifyInputsOption = False
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", help="Tell all that is known of a result, not its table alone.", rich_help_panel=PANEL
        ),
    ] = False
    json: JsonOption = field(default=False)
    plan: Annotated[bool, typer.Option("--plan", hidden=True, help="As memlm plan.")] = False
    by_default: frozenset[str] = frozenset()
    """Parameters of the command whose values are defaults of `memlm.toml`, over which all that was typed wins."""
    default_set: tuple[str, ...] = ()
    """Values of `set` in `memlm.toml`; they hold in addition to those after `--set`, which win."""

    def __post_init__(self) -> None:
        if not 0 < self.checkpoint_seconds < float("inf"):
            raise UsageError(f"--checkpoint-seconds must be above 0, not {self.checkpoint_seconds}.")
        if self.workers < 1:
            raise UsageError(f"--workers must be 1 or more, not {self.workers}.")


NOT_OPTIONS = ("by_default", "default_set")


def parameters_of(group: type) -> list[inspect.Parameter]:
    """The options of a group, as parameters of a command."""
    found = inspect.signature(group).parameters.values()
    return [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in found if p.name not in NOT_OPTIONS]
