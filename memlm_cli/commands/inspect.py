"""`memlm inspect`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlm_cli import completion
from memlm_cli.browser import tell_page
from memlm_cli.console import answer, answers_on_terminal, say
from memlm_cli.options import (
    DEFAULT_STORE,
    JsonOption,
    ReadArgument,
    ReadOptions,
    StoreOption,
    VerifyInputsOption,
)
from memlm_cli.output_files import check_output_file, write_output_file
from memlm_cli.run_stage import read_question
from stages.errors import UsageError

if TYPE_CHECKING:
    from stages.artifacts.store import Store
    from stages.inspection.inspect import Inspected
    from stages.inspection.request import Request


def inspect(
    source: ReadArgument = None,
    text: Annotated[str | None, typer.Option(help="A text to read, from its first token on.")] = None,
    position: Annotated[int | None, typer.Option(min=0, help="First token of a passage of --split.")] = None,
    split: Annotated[str | None, typer.Option(help="Split of the passage (default: test).")] = None,
    length: Annotated[int | None, typer.Option(min=1, max=1024, help="Tokens of the passage (default: 32).")] = None,
    select: Annotated[
        str | None,
        typer.Option(
            metavar="KIND[,KIND]",
            help="Passages that the token scores of --report choose: gains, losses, rare (words), or several of these.",
        ),
    ] = None,
    passages: Annotated[
        int | None, typer.Option(min=1, max=50, help="Passages of each kind of --select (default: 3).")
    ] = None,
    contexts: Annotated[int, typer.Option(min=0, max=1024, help="Retrieved contexts shown for each token.")] = 4,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS",
            autocompletion=completion.artifacts("tokens"),
            help="Read another corpus than the model's.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a web page, complete in itself.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    verify_inputs: VerifyInputsOption = False,
    json_: JsonOption = False,
    *,
    reading: ReadOptions,
) -> None:
    """A passage, token by token: who predicted it, and from which contexts of the corpus."""
    from memlm_cli.inspection_text import inspected_text
    from stages.artifacts.store import Store
    from stages.inspection.page import page

    opened = Store(store, verify_inputs=verify_inputs)
    if source not in (None, "-"):
        opened.locate(source)
    _check(text, position, select, {"--split": split, "--length": length, "--passages": passages})
    if select is not None and reading.report is None:
        raise UsageError("--select chooses by the token scores of an evaluation: name it with --report.")
    if html is not None:
        check_output_file("--html", html)
    request = reading.request(read_question(source, reading.report, opened), tokens)
    if select is not None:
        _show_selected(request, opened, select.split(","), passages or 3, length or 32, contexts, html, json_)
        return
    found = _inspected(request, opened, text, split or "test", position, length or 32, contexts)
    if html is not None:
        _write_page(html, page(found))
    text = json.dumps(found.to_json()) if json_ else inspected_text(found, terminal=answers_on_terminal())
    answer(text, styled=True)


def _check(text: str | None, position: int | None, select: str | None, others: Mapping[str, object]) -> None:
    """Raises: UsageError unless exactly one passage, or way to choose some, is named."""
    ways = {"--text": text, "--position": position, "--select": select}
    named = [option for option, value in ways.items() if value is not None]
    if len(named) != 1:
        raise UsageError("Name one passage, --text TEXT or --position N of a split, or let --select choose some.")
    fitting = {"--split": ["--position"], "--length": ["--position", "--select"], "--passages": ["--select"]}
    for option, value in others.items():
        if value is not None and named[0] not in fitting[option]:
            raise UsageError(f"{option} goes with {' and '.join(fitting[option])}, not with {named[0]}.")


def _show_selected(
    request: "Request",
    store: "Store",
    kinds: list[str],
    each: int,
    length: int,
    contexts: int,
    html: Path | None,
    as_json: bool,
) -> None:
    """Passages that a report chooses, one after the other."""
    from memlm_cli.inspection_text import inspected_text
    from stages.inspection.inspect import inspect_passages
    from stages.inspection.page import ChosenPassage, page_of_passages
    from stages.inspection.selection import choose_passages

    report = store.get(request.report or "", "report")
    chosen = choose_passages(report, kinds, each, length)
    if not chosen:
        raise UsageError(f"{report.reference} has no passage that --select {','.join(kinds)} asks for.")
    places = [(one.start, one.stop) for one in chosen]
    found = inspect_passages(request, store, str(report.config["split"]), places, contexts)
    shown = [ChosenPassage(*one) for one in zip(chosen, found, strict=True)]
    if html is not None:
        _write_page(html, page_of_passages(shown, report.reference))
    if as_json:
        answer(
            json.dumps([{"chosen": one.chosen.kind, "nats": one.chosen.nats, **one.found.to_json()} for one in shown])
        )
    else:
        parts = [f"{one.heading}\n{inspected_text(one.found, terminal=answers_on_terminal())}" for one in shown]
        answer("\n\n".join(parts), styled=True)


def _inspected(
    request: "Request", store: "Store", text: str | None, split: str, position: int | None, length: int, contexts: int
) -> "Inspected":
    from stages.inspection.inspect import inspect_split, inspect_text

    if text is not None:
        return inspect_text(request, store, text, contexts)
    assert position is not None
    return inspect_split(request, store, split, position, length, contexts)


def _write_page(path: Path, text: str) -> None:
    """Raises: UsageError if the file cannot be written."""
    write_output_file("--html", path, text)
    say(f"inspect: wrote {path}")
    tell_page("inspect", path)
