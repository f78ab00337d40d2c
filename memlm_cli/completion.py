"""Completions for a shell: artifacts of the store, recipes, presets, methods, backbones.

Typer calls each function with its context and the text typed so far; `words` makes such a function
from names alone. No numerical library is imported, and no manifest is read.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import typer

from stages.artifacts.kinds import COMMANDS, KINDS
from stages.artifacts.references import names, references

Offered = list[str | tuple[str, str]]
"""Words, or words with their meanings."""


def artifacts(*kinds: str) -> Callable[[typer.Context, str], Offered]:
    """References of the kinds; none given means any. Names stand before ids, latest artifacts
    before older ones.
    """

    def offered(ctx: typer.Context, incomplete: str) -> Offered:
        try:
            return list(_references(Path(ctx.params["store"]), kinds or tuple(KINDS), incomplete))
        except OSError:
            return []

    return offered


def _references(
    store: Path, kinds: tuple[str, ...], incomplete: str
) -> Iterator[str | tuple[str, str]]:
    matching_kinds = [
        kind
        for kind in kinds
        if f"{kind}/".startswith(incomplete) or incomplete.startswith(f"{kind}/")
    ]
    for kind in matching_kinds:
        for name, id in names(store, kind).items():
            yield f"{kind}/{name}", id
    matching = [
        reference
        for reference in references(store)
        if reference.partition("/")[0] in matching_kinds
    ]
    # By the times of folders, not by manifests: a person is waiting for the shell.
    yield from sorted(matching, key=lambda reference: -(store / reference).stat().st_mtime)


def words(names: Callable[[], Iterable[str]]) -> Callable[[typer.Context, str], Offered]:
    """A completion of names that are looked up when Tab is pressed."""
    return lambda ctx, incomplete: list(names())


def recipes(ctx: typer.Context, incomplete: str) -> Offered:
    """Shipped recipes, and files of the folder that may be recipes."""
    from pipelines.recipe import shipped_recipes

    return [*shipped_recipes(), *_files(incomplete, "*.toml")]


def planned(ctx: typer.Context, incomplete: str) -> Offered:
    """Completions of `memlm plan`: recipes, and commands that make artifacts."""
    return [*COMMANDS, "run", "try", *recipes(ctx, incomplete)]


def presets(ctx: typer.Context, incomplete: str) -> Offered:
    """Presets with the first line of their descriptions, and files that may be presets."""
    return [*preset_names_alone(ctx, incomplete), *_files(incomplete, "*.toml")]


def preset_names_alone(ctx: typer.Context, incomplete: str) -> Offered:
    from stages.training.presets import (
        preset_file,
        preset_names,
    )  # settings of models, for this list alone

    heads = {
        name: preset_file(name).read_text("utf-8").partition("\n")[0] for name in preset_names()
    }
    return [(name, head.removeprefix("#").strip()) for name, head in heads.items()]


def tokenizers(ctx: typer.Context, incomplete: str) -> Offered:
    """Kinds of tokenizers, tokens whose tokenizer can be reused, and files."""
    from stages.text import TOKENIZERS

    names = [name for name in TOKENIZERS.names() if name != "given"]
    return [*names, *artifacts("tokens")(ctx, incomplete), *_files(incomplete, "*.json")]


def memories() -> list[str]:
    """Readings that have a name."""
    from stages.retrieval.grammar import NAMED, NONE

    return [*NAMED, NONE]


def _files(incomplete: str, pattern: str) -> list[str]:
    """Files, and folders that may lead to some, whose names begin with the typed text."""
    folder = Path(incomplete).parent if not incomplete.endswith("/") else Path(incomplete)
    try:
        paths = [*folder.glob(pattern), *(path for path in folder.iterdir() if path.is_dir())]
    except OSError:
        return []
    return sorted(
        f"{path}/" if path.is_dir() else str(path)
        for path in paths
        if not path.name.startswith(".")
    )
