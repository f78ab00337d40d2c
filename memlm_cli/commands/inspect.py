"""`memlm inspect`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlm_cli import completion
from memlm_cli.console import answer, answers_on_terminal, write_html
from memlm_cli.options import Asked, HtmlOption, OptionsOf, ReadArgument, ReadOptions
from stages.errors import UsageError

if TYPE_CHECKING:
    from stages.artifacts.store import Store
    from stages.inspection.settings import PassageSettings, Request


LENGTH = 32
"""Default number of tokens in a passage."""


def inspect(
    source: ReadArgument = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS",
            autocompletion=completion.artifacts("tokens"),
            help="Read another corpus than the model's.",
        ),
    ] = None,
    html: HtmlOption = None,
    *,
    which: Annotated["PassageSettings", OptionsOf("stages.inspection.settings:PassageSettings")],
    reading: ReadOptions,
    asked: Asked,
) -> None:
    """Show a passage token by token: what predicted each token, and from which contexts of the corpus."""
    from memlm_cli.arguments import read_question
    from memlm_cli.inspection_text import inspected_text
    from stages.inspection.inspect import inspect_split, inspect_text
    from stages.inspection.page import page
    from stages.inspection.settings import Request
    from stages.web import check_page_file

    opened = asked.open_store()
    if source not in (None, "-"):
        opened.locate(source)
    which.check()
    if which.select is not None and reading.report is None:
        raise UsageError("--select chooses by the token scores of an evaluation: name it with --report.")
    if html is not None:
        check_page_file("--html", html)
    request = Request(source=read_question(source, reading.report, opened), tokens=tokens, **dict(reading))
    if which.select is not None:
        _show_selected(request, opened, which, html, asked.json)
        return
    if which.text is not None:
        found = inspect_text(request, opened, which.text, which.contexts)
    else:
        assert which.position is not None
        split, length = which.split or "test", which.length or LENGTH
        found = inspect_split(request, opened, split, which.position, length, which.contexts)
    if html is not None:
        write_html("inspect", html, page(found))
    text = json.dumps(found.to_json()) if asked.json else inspected_text(found, terminal=answers_on_terminal())
    answer(text, styled=True)


def _show_selected(
    request: "Request", store: "Store", which: "PassageSettings", html: Path | None, as_json: bool
) -> None:
    """Show the passages that a report selects, one after the other."""
    from memlm_cli.inspection_text import inspected_text
    from stages.inspection.inspect import inspect_passages
    from stages.inspection.page import ChosenPassage, choose_passages, page_of_passages

    report, kinds = store.get(request.report or "", "report"), which.select or ()
    chosen = choose_passages(report, kinds, which.passages or 3, which.length or LENGTH)
    if not chosen:
        raise UsageError(f"{report.reference} has no passage that --select {','.join(kinds)} asks for.")
    places = [(one.start, one.stop) for one in chosen]
    found = inspect_passages(request, store, str(report.config["split"]), places, which.contexts)
    shown = [ChosenPassage(*one) for one in zip(chosen, found, strict=True)]
    if html is not None:
        write_html("inspect", html, page_of_passages(shown, report.reference))
    if as_json:
        answer(
            json.dumps([{"chosen": one.chosen.kind, "nats": one.chosen.nats, **one.found.to_json()} for one in shown])
        )
    else:
        parts = [f"{one.heading}\n{inspected_text(one.found, terminal=answers_on_terminal())}" for one in shown]
        answer("\n\n".join(parts), styled=True)
