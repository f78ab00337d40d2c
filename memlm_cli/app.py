"""The command line: every command, in the order in which they are used."""

import atexit
import gc
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from typer.completion import shell_complete
from typer.core import TyperGroup

from memlm_cli.command import Commands
from memlm_cli.console import answer, open_closed_streams
from memlm_cli.early_signals import OTHERS, leave_at_once
from memlm_cli.exit_codes import guarded
from stages.artifacts.kinds import COMMANDS
from stages.errors import UsageError
from stages.interrupts import Interruption
from stages.registry import load

COMPLETION = "_MEMLM_COMPLETE"
"""Environment variable that a shell sets to ask for completions."""
Handler = Callable[[int, FrameType | None], object]
HELP = {"help_option_names": ["-h", "--help"]}
PASSED_ON = {**HELP, "ignore_unknown_options": True, "allow_interspersed_args": False}
"""Settings of a command that parses its words as another command does."""


FIRST = "try"
"""The command at the top of help, before those of stages."""
LAST = (
    *("report", "compare", "inspect", "generate", "translate", "serve", "export"),
    *("run", "plan", "recipes", "artifacts", "presets", "doctor"),
)
"""Commands after those of stages, in the order of help."""
WITHOUT_STAGE = frozenset({FIRST, *LAST})


def command_names() -> tuple[str, ...]:
    """All commands in the order of help, those of stages from outside the package included."""
    return (FIRST, *COMMANDS, *LAST)


MODULES = {
    "try": "try_text",
    **{name: f"listings:{name}" for name in ("presets", "recipes")},
    **{name: f"outputs:{name}" for name in ("report", "export")},
    **{name: f"texts:{name}" for name in ("inspect", "generate", "translate")},
}
"""Modules of commands that are not named after them; `module:name` if a module holds several."""


class AllCommands(TyperGroup):
    """All commands; each is imported and built when it is asked for, since one process needs only
    one.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.lists = False
        """Whether commands are asked for their summaries alone: making options from settings takes
        longest.
        """
        self.commands: Any = _Built(self.build)

    def list_commands(self, ctx: Any) -> list[str]:
        self.lists = True  # the help of the group, or a shell, then asks for each
        return list(command_names())

    def resolve_command(self, context: Any, words: list[str]) -> Any:
        """The command that some words name; the name of one of `memlm artifacts` suffices for a
        hint.
        """
        if words[0] not in self.commands and words[0] in self.commands["artifacts"].commands:  # type: ignore[attr-defined]
            raise UsageError(
                f"There is no command {words[0]}; did you mean memlm artifacts {shlex.join(words)}?"
            )
        return super().resolve_command(context, words)

    def build(self, name: str) -> Any:
        alone = Commands(rich_markup_mode=self.rich_markup_mode)
        function = self._function(name)
        if isinstance(function, typer.Typer):
            alone.add_typer(function, name=name)
        elif name == "plan":
            # the words after it are those of another command
            alone.command(name, context_settings=PASSED_ON)(function)
        else:
            alone.command(name)(function)
        return typer.main.get_group(alone).commands[name]

    def _function(self, name: str) -> Any:
        """The function of a command, or the group that it is."""
        if name not in WITHOUT_STAGE:
            if self.lists:
                return _summary(COMMANDS[name].summary)
            return load("memlm_cli.commands.stage:stage_command")(name)
        module, _, function = MODULES.get(name, name).partition(":")
        commands = import_module(f"memlm_cli.commands.{module}")
        if hasattr(commands, "app"):
            return commands.app
        command = getattr(commands, function or module)
        return _summary(command.__doc__) if self.lists else command


def _summary(text: str | None) -> Callable[[], None]:
    """A command without options."""

    def summary() -> None: ...

    summary.__doc__ = text
    return summary


class _Built(Mapping[str, Any]):
    """Commands by name, each built at first use."""

    def __init__(self, build: Callable[[str], Any]) -> None:
        self._build = build
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        if name not in self._built:
            self._built[name] = self._build(name)
        return self._built[name]

    def __contains__(self, name: object) -> bool:
        # A name that is not known yet may be that of a stage from outside.
        return name in WITHOUT_STAGE or name in COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(command_names())

    def __len__(self) -> int:
        return len(command_names())


app = Commands(
    name="memlm",
    cls=AllCommands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings=HELP,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from memlm_cli.packages import installed

        answer(f"memlm {installed('memlm') or '(not installed)'}")
        raise typer.Exit


@app.callback()
def memlm(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Train and evaluate memory-augmented language models, from text to perplexity, in resumable
    stages.

    Each stage prints a reference to its result; the next stage reads it from standard input:
    memlm tokenize --train a.txt --valid b.txt --test c.txt |
    memlm train | memlm build-datastore | memlm build-index | memlm evaluate
    """


def check_origin() -> None:
    """Raises UsageError if another package called `stages` or `pipelines` hides memlm's."""
    import pipelines
    import stages

    home = Path(__file__).parent.parent
    for package in (pipelines, stages):
        place = Path(package.__file__ or "nowhere").parent.parent
        if place != home:
            raise UsageError(
                f"The package {package.__name__!r} comes from {place}, but memlm from {home}: another package of "
                "that name hides memlm's. Run memlm from another folder, or in an environment of its own."
            )


def invoke(arguments: Sequence[str]) -> None:
    """Parse and run, leaving exceptions as they are (Typer's own `main` would turn some into
    others).
    """
    # First: otherwise a package that hides ours fails somewhere deep, with an unrelated message.
    check_origin()
    command = typer.main.get_command(app)
    if COMPLETION in os.environ:
        instruction = os.environ[COMPLETION]
        raise typer.Exit(shell_complete(command, {}, "memlm", COMPLETION, instruction))
    with command.make_context("memlm", list(arguments)) as context:
        command.invoke(context)


def main(argv: Sequence[str] | None = None) -> int:
    """Run memlm with these arguments (by default the process's own) and return the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    # Threads that spin while they wait would take the cores of workers. Libraries read it once,
    # when they are loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # To look for plugins, pydantic reads the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    open_closed_streams()
    words = 2 if arguments[:1] == ["artifacts"] else 1
    name = " ".join(["memlm", *takewhile(lambda word: word[:1] != "-", arguments[:words])])
    if argv is None:
        # Libraries define a million objects that live until the end. To look through all of them
        # for garbage takes a tenth of a second each time, so it is done a tenth as often.
        gc.set_threshold(*gc.get_threshold()[:2], 100)
        # Objects of options live until the end. A search for garbage at exit takes a fifth of a
        # help page's time.
        atexit.register(gc.freeze)
    interruption = Interruption()

    def invoke_stoppably() -> None:
        _invoke_stoppably(arguments, interruption, at_the_end=argv is None)

    code = guarded(invoke_stoppably, name, interruption)
    if argv is None:
        end_zarr()
    return code


def end_zarr() -> None:
    """End the thread in which zarr reads and writes, if it runs. Nothing can be read afterwards.

    At exit zarr waits 0.2 seconds for it. On a busy machine that may not suffice, and zarr prints a
    traceback.
    """
    # These names are private to zarr. A version without them may print the traceback again.
    loops, threads = (
        getattr(sys.modules.get("zarr.core.sync"), name, [None]) for name in ("loop", "iothread")
    )
    if threads[0] is not None and not threads[0].is_alive():
        # a signal came before the thread started; zarr would fail to join it
        loops[0] = threads[0] = None
    if loops[0] is not None and threads[0] is not None:
        loops[0].call_soon_threadsafe(loops[0].stop)
        threads[0].join(timeout=10)


def _invoke_stoppably(
    arguments: Sequence[str], interruption: Interruption, *, at_the_end: bool
) -> None:
    """SIGINT and SIGTERM end the command by an exception.

    Args:
        interruption: remembers the signal.
        at_the_end: the process ends when this has returned. Later signals are ignored: the work is
            done, and its exit code stands.
    """
    handlers: dict[signal.Signals, Handler] = {signal.SIGTERM: interruption.handle}
    if signal.getsignal(signal.SIGINT) in (*OTHERS, leave_at_once):
        handlers[signal.SIGINT] = interruption.handle
    previous = {signum: signal.signal(signum, handler) for signum, handler in handlers.items()}
    try:
        invoke(arguments)
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, signal.SIG_IGN if at_the_end else handler)
        if at_the_end:
            # Python kills itself with SIGINT at exit if Ctrl-C ended the last code that ran, for
            # example an import.
            exec("")
