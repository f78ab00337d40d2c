"""The options of every stage's command, passed as one value, and options that several commands
share.
"""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from memlm_cli import completion
from stages.artifacts.references import DEFAULT_STORE, check_name
from stages.errors import UsageError

if TYPE_CHECKING:
    from stages.artifacts.stage import Execution
    from stages.artifacts.store import Store
    from stages.inspection.settings import ReadSettings
    from stages.reporting import Reporter

PANEL = "Everywhere"
ON_CPU = "tokenize, build-index and pack-batches"
"""Commands that run no model."""

ReadArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="REF",
        autocompletion=completion.artifacts("index", "model", "neighbors"),
        help="A model, index or neighbors; - or left out: read from stdin.",
    ),
]


HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write a self-contained web page."),
]


def _folder(path: str | Path) -> Path:
    if not str(path):
        raise typer.BadParameter("name a folder")
    return Path(path)


def everywhere(flag: str, help: str, **more: Any) -> Any:
    """An option that many commands have."""
    return typer.Option(flag, help=help, rich_help_panel=PANEL, **more)


JsonOption = Annotated[bool, everywhere("--json", "Print JSON on stdout.")]


@dataclass(frozen=True)
class OptionsOf:
    """Marks a parameter of a command as a group of settings, each an option: `Annotated[T,
    OptionsOf("m:T")]`.
    """

    target: str
    """The class of the settings, as `module:Class`; imported when the options are needed."""


ReadOptions = Annotated["ReadSettings", OptionsOf("stages.inspection.settings:ReadSettings")]
"""Options of commands that read texts with a model and its memories."""


@dataclass(frozen=True)
class StoreOptions:
    """Values of the options of all commands that answer questions about artifacts."""

    store: Annotated[
        Path,
        everywhere(
            "--store", "Folder of artifacts.", envvar="MEMLM_STORE", metavar="PATH", parser=_folder
        ),
    ] = DEFAULT_STORE
    json: JsonOption = False

    def open_store(self) -> "Store":
        """Open the requested store."""
        from stages.artifacts.store import Store

        return Store(self.store)


@dataclass(frozen=True)
class Common(StoreOptions):
    """Values of the options of every stage's command. Raises UsageError for an invalid one."""

    name: Annotated[
        str | None, everywhere("--name", "Give the artifact a name, for references KIND/NAME.")
    ] = None
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        everywhere("--device", f"Device to compute on; {ON_CPU} use the CPU."),
    ] = "auto"
    workers: Annotated[
        int,
        everywhere(
            "--workers",
            "Processes that share the work of a stage; for train, use torchrun.",
            metavar="N",
        ),
    ] = 1
    executor: Annotated[
        Literal["local", "ray"],
        everywhere(
            "--executor",
            "Where the --workers run: on this machine, or on a Ray cluster that shares the store.",
        ),
    ] = "local"
    precision: Annotated[
        Literal["auto", "fp32", "bf16"] | None,
        everywhere(
            "--precision",
            f"Precision of models; auto is fp32 on CPU and bf16 on CUDA; {ON_CPU} have none.",
        ),
    ] = None
    config: Annotated[
        Path | None, everywhere("--config", "TOML file with settings of this command.")
    ] = None
    set: Annotated[
        list[str] | None,
        everywhere("--set", "Value of one setting; repeatable.", metavar="A.B=VALUE"),
    ] = None
    checkpoint_seconds: Annotated[
        float,
        everywhere(
            "--checkpoint-seconds", "Seconds between checkpoints of train; others save every shard."
        ),
    ] = 60.0
    no_wait: Annotated[
        bool,
        everywhere(
            "--no-wait", "Exit 75, without waiting, if another process makes the same artifact."
        ),
    ] = False
    verbose: Annotated[
        bool, everywhere("--verbose", "Print all details of a result, not only its table.")
    ] = False
    plan: Annotated[bool, typer.Option("--plan", hidden=True, help="Same as memlm plan.")] = False

    def __post_init__(self) -> None:
        if not 0 < self.checkpoint_seconds < float("inf"):
            raise UsageError(
                f"--checkpoint-seconds must be above 0, not {self.checkpoint_seconds}."
            )
        if self.workers < 1:
            raise UsageError(f"--workers must be 1 or more, not {self.workers}.")
        if self.name is not None:
            check_name(self.name)

    def execution(self, reporter: "Reporter") -> "Execution":
        """Reporter, device and other circumstances of a run, without influence on ids."""
        from stages.artifacts.stage import Execution

        cluster = None if self.executor == "local" else self.executor
        return Execution(
            self.device, self.checkpoint_seconds, not self.no_wait, reporter, self.workers, cluster
        )


def parameters_of(group: type) -> list[inspect.Parameter]:
    """The options of a group, as parameters of a command."""
    parameters = inspect.signature(group).parameters.values()
    return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
