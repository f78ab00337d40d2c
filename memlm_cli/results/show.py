"""The result of a stage on stderr: tables and sentences, and the place of its page."""

import shlex
from collections.abc import Iterator, Sequence

from memlm_cli.console import say
from memlm_cli.results.view import View
from memlm_cli.tables import show_table, title_of
from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import KINDS
from stages.numbers import duration, size
from stages.registry import load
from stages.reporting import first_process


def view_of(artifact: Artifact) -> View:
    """The view of an artifact's kind."""
    kind = KINDS[artifact.kind]
    return load(kind.result)() if kind.result else View()


def show_result(
    artifact: Artifact, named: bool = False, variant: str = "", *, verbose: bool = False
) -> None:
    """Show the tables of an artifact's kind; `named`: its reference is on the screen already.

    Args:
        variant: variant of the recipe, if there are several: `seed 2`.
        verbose: whether all remarks, settings and tables of a report are shown.
    """
    if not first_process():
        return
    title = "" if named else title_of(artifact.reference, variant)
    for part in view_of(artifact).parts(artifact, title, verbose=verbose):
        if isinstance(part, str):
            say(part)
        else:
            show_table(part.title, part.columns, part.rows, whole=part.whole)


def tell_rest(artifact: Artifact, *, verbose: bool = False) -> None:
    """Say where the rest is: the page of a report, which a person may open."""
    if not first_process():
        return
    rest = view_of(artifact).rest(artifact, verbose=verbose)
    if rest:
        say(rest)


def artifact_rows(artifact: Artifact, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """An artifact for people: how it was made, and its figures; a report has one line per row."""
    manifest = artifact.manifest
    references = [artifact.reference]
    references += [f"{artifact.kind}/{name}" for name in names]
    yield "artifact", ", ".join(references)
    yield "command", shlex.join(["memlm", *manifest.command])
    if manifest.inputs:
        inputs = [record.reference for record in manifest.inputs.values()]
        yield "from", " ".join(dict.fromkeys(inputs))
    when = manifest.created[:16].replace("T", " ")
    yield "made", f"{when}, in {duration(manifest.seconds)}"
    yield "size", f"{size(artifact.bytes)}, {len(manifest.files)} files"
    yield from view_of(artifact).lines(artifact)
