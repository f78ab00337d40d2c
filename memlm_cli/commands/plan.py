"""`memlm plan`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from memlm_cli import completion
from memlm_cli.options import DEFAULT_STORE, JsonOption, StoreOption
from stages.errors import UsageError, did_you_mean

SIMULATED = "Many keys on many machines"


def plan(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE|COMMAND [ARGS]...",
            autocompletion=completion.planned,
            help="A recipe, or a command that makes an artifact, with all that would be typed behind it; with --keys "
            "an index, the latest if none is named.",
        ),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Measure what this store cannot tell, and keep it there: a few updates of a training, a part of other "
            "stages, on stand-ins of what is not made yet.",
        ),
    ] = False,
    keys: Annotated[
        float | None,
        typer.Option(help="What kNN-LM over so many keys (3e9) would cost.", rich_help_panel=SIMULATED),
    ] = None,
    machines: Annotated[
        int | None, typer.Option(min=1, help="Machines like this one (default: 1).", rich_help_panel=SIMULATED)
    ] = None,
    queries: Annotated[
        float, typer.Option(min=1, help="Tokens that are evaluated.", rich_help_panel=SIMULATED)
    ] = 250_000,
    network: Annotated[
        float,
        typer.Option(min=0.001, help="GB/s between a machine and the file system.", rich_help_panel=SIMULATED),
    ] = 1.25,
    storage: Annotated[
        float, typer.Option(min=0.001, help="GB/s of the file system for all.", rich_help_panel=SIMULATED)
    ] = 5.0,
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
) -> None:
    """What a recipe or a command would cost: work, time, disk and memory of every stage; exit 5 if it cannot fit.

    Sizes are arithmetic, of text not read yet from a sample (~), and of a GPU's memory by shapes of a batch. Times are
    those of the same work in this store, or measured on a part of it. What is not known is a question mark. With
    --keys: what so many would cost on some machines, by the times of an index.
    """
    from pipelines.catalogue import COMMANDS

    if keys is not None:
        if calibrate:
            raise UsageError("--calibrate measures stages of a recipe or a command; --keys scales what an index took.")
        cluster = machines or 1, network * 1e9, storage * 1e9
        _simulate(words or [], store, round(keys), round(queries), cluster, json_)
        return
    if machines is not None or not words:
        raise UsageError("Name a recipe or a command; or how many --keys, to see what they cost on --machines.")
    sources = {name: getattr(context.get_parameter_source(name), "name", "") for name in ("store", "json_")}
    given = [name for name, source in sources.items() if source == "COMMANDLINE"]
    first, *rest = [f"--{given[0].rstrip('_')}", *words] if given else words
    group: Any = context.find_root().command
    if first.startswith("-"):
        raise UsageError(f"Name the recipe or the command first, its options behind it: memlm plan RECIPE {first} …")
    if first in group.commands and first not in (*COMMANDS, "run", "try"):
        raise UsageError(f"{first} makes no artifact; {did_you_mean(first, (*COMMANDS, 'run', 'try'))}")
    command = [first, *rest] if first in group.commands else ["run", *words]
    arguments = [command[0], "--plan", *(["--calibrate"] if calibrate else []), *command[1:]]
    root = context.find_root()
    with group.make_context("memlm", arguments, default_map=root.default_map, obj=root.obj) as planned:
        group.invoke(planned)


def _simulate(
    words: list[str], root: Path, keys: int, queries: int, cluster: tuple[int, float, float], json_: bool
) -> None:
    """Raises: UsageError for more than one index, or too few keys."""
    from memlm_cli.simulation_text import show_simulation
    from pipelines.simulation import Cluster, measured, newest
    from stages.artifacts.store import Store
    from stages.machine import memory_bytes

    if len(words) > 1:
        raise UsageError("--keys scales the times of one index: name one at the most, behind the options.")
    store, (machines, network, storage) = Store(root), cluster
    index = store.get(words[0], "index") if words else newest(store.artifacts("index"))
    found = measured(index)
    if keys < found.rows:
        raise UsageError(f"--keys {keys:,} are fewer than the {found.rows:,} of {index.reference}.")
    show_simulation(found, keys, queries, Cluster(machines, memory_bytes(), network, storage), json_)
