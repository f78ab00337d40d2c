"""Work of `memlm inspect`, `generate` and `translate`."""

import json
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from memlm_cli.arguments import read_question, require_text
from memlm_cli.console import answer, answer_part, answers_on_terminal, say, write_html
from memlm_cli.inspection_text import (
    inspected_text,
    memory_lines,
    shown,
)
from memlm_cli.options import StoreOptions
from memlm_cli.progress import not_working
from stages.artifacts.store import Store
from stages.errors import DataError, UsageError
from stages.generation.translate import TranslatedToken, open_line_translator
from stages.inspection.inspect import inspect_passages, inspect_split, inspect_text
from stages.inspection.page import ChosenPassage, choose_passages, page, page_of_passages
from stages.inspection.settings import PassageSettings, ReadSettings, Request
from stages.numbers import number
from stages.translation.settings import TranslationRequest
from stages.web import check_page_file

LENGTH = 32
"""Default number of tokens in a passage."""


def inspect(
    source: str | None,
    tokens: str | None,
    html: Path | None,
    *,
    which: PassageSettings,
    reading: ReadSettings,
    store_options: StoreOptions,
) -> None:
    """Carry out `memlm inspect`."""
    opened = store_options.open_store()
    if source not in (None, "-"):
        opened.locate(source)
    which.check()
    if which.select is not None and reading.report is None:
        raise UsageError(
            "--select chooses by the token scores of an evaluation: name it with --report."
        )
    if html is not None:
        check_page_file("--html", html)
    request = Request(
        source=read_question(source, reading.report, opened), tokens=tokens, **dict(reading)
    )
    if which.select is not None:
        _show_selected(request, opened, which, html, store_options.json)
        return
    if which.text is not None:
        inspected = inspect_text(request, opened, which.text, which.contexts)
    else:
        assert which.position is not None
        split = which.split or "test"
        length = which.length or LENGTH
        inspected = inspect_split(request, opened, split, which.position, length, which.contexts)
    if html is not None:
        write_html("inspect", html, page(inspected))
    text = (
        json.dumps(inspected.to_json())
        if store_options.json
        else inspected_text(inspected, terminal=answers_on_terminal())
    )
    answer(text, styled=True)


def _show_selected(
    request: Request, store: Store, which: PassageSettings, html: Path | None, as_json: bool
) -> None:
    """Show the passages that a report selects, one after the other."""
    report = store.get(request.report or "", "report")
    kinds = which.select or ()
    choices = choose_passages(report, kinds, which.passages or 3, which.length or LENGTH)
    if not choices:
        raise UsageError(
            f"{report.reference} has no passage that --select {','.join(kinds)} asks for."
        )
    places = [(choice.start, choice.stop) for choice in choices]
    split = str(report.config["split"])
    inspected = inspect_passages(request, store, split, places, which.contexts)
    passages = list(map(ChosenPassage, choices, inspected))
    if html is not None:
        write_html("inspect", html, page_of_passages(passages, report.reference))
    if as_json:
        records = []
        for passage in passages:
            chosen = {"chosen": passage.chosen.kind, "nats": passage.chosen.nats}
            records.append(chosen | passage.found.to_json())
        answer(json.dumps(records))
        return

    terminal = answers_on_terminal()
    texts = []
    for passage in passages:
        texts.append(f"{passage.heading}\n{inspected_text(passage.found, terminal=terminal)}")
    answer("\n\n".join(texts), styled=True)


def translate(
    source: str, *, request: TranslationRequest, reading: ReadSettings, store_options: StoreOptions
) -> None:
    """Carry out `memlm translate`."""
    if source == "-":
        raise UsageError("Standard input is the text: name the model or index as an argument.")
    if request.text is not None:
        require_text("--text", request.text)
    opened = store_options.open_store()
    question = Request(source=source, tokens=request.tokens, **dict(reading))
    translator = open_line_translator(question, opened, request)
    for line in memory_lines(translator.reader.memories):
        say(f"translate: {line}")

    piped = _Lines()
    lines = piped if request.text is None else request.text.split("\n")
    for translation in translator.translate(lines, request.attribute):
        if store_options.json:
            record = translation._asdict()
            if translation.tokens is not None:
                record["tokens"] = [token._asdict() for token in translation.tokens]
            answer(json.dumps(record, ensure_ascii=False))
        elif not answer_part(translation.text + "\n"):
            return
        else:
            for token in translation.tokens or ():
                answer(_translated_token(token))
    if piped.error is not None:
        raise piped.error


class _Lines:
    """Lines of stdin without line ends. The error of a line that is not UTF-8 waits until earlier
    lines are out.
    """

    error: DataError | None = None

    def __iter__(self) -> Iterator[str]:
        for place in count(1):
            with not_working():
                line = sys.stdin.buffer.readline()
            if not line:
                return
            try:
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
            except UnicodeDecodeError as error:
                where = f"Line {place:,} of standard input"
                self.error = DataError(f"{where} is no UTF-8 (byte {error.start + 1} of it).")
                return


def _translated_token(token: TranslatedToken) -> str:
    """A token, its probability with and without memory, and the pair with the largest weight."""
    head = f"  {shown(token.text)}  {number(token.probability)} (model {number(token.model)})"
    if token.pair is None:
        return head
    source = "" if token.pair["source"] is None else f"{shown(token.pair['source'])} -> "
    return f"{head}  pair {token.pair['pair']:,}: {source}{shown(token.pair['target'])}"
