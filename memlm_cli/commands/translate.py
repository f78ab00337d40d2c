"""`memlm translate`."""

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from memlm_cli import completion
from memlm_cli.console import answer, answer_part, say
from memlm_cli.inspection_text import memory_lines, shown
from memlm_cli.options import Asked, OptionsOf, ReadOptions
from memlm_cli.progress import not_working
from stages.errors import DataError, UsageError
from stages.numbers import number

if TYPE_CHECKING:
    from stages.generation.translate import TranslatedToken
    from stages.translation.settings import TranslationRequest


def translate(
    source: Annotated[
        str,
        typer.Argument(
            metavar="REF",
            autocompletion=completion.artifacts("index", "model"),
            help="A model that translates, or an index of its datastore; lines to translate come on stdin.",
        ),
    ],
    *,
    wanted: Annotated["TranslationRequest", OptionsOf("stages.translation.settings:TranslationRequest")],
    reading: ReadOptions,
    asked: Asked,
) -> None:
    """Translate lines with a model and its memories: each input line gives one output line."""
    from memlm_cli.arguments import require_text
    from stages.generation.translate import open_line_translator
    from stages.inspection.settings import Request

    if source == "-":
        raise UsageError("Standard input is the text: name the model or index as an argument.")
    if wanted.text is not None:
        require_text("--text", wanted.text)
    opened = asked.open_store()
    translator = open_line_translator(Request(source=source, tokens=wanted.tokens, **dict(reading)), opened, wanted)
    for line in memory_lines(translator.reader.memories):
        say(f"translate: {line}")
    lines = _Lines() if wanted.text is None else wanted.text.split("\n")
    for one in translator.translate(lines, wanted.attribute):
        if asked.json:
            tokens = None if one.tokens is None else [token._asdict() for token in one.tokens]
            answer(json.dumps(one._asdict() | {"tokens": tokens}, ensure_ascii=False))
        elif not answer_part(one.text + "\n"):
            return
        elif one.tokens:
            for token in one.tokens:
                answer(_attributed(token))
    if isinstance(lines, _Lines) and lines.error is not None:
        raise lines.error


class _Lines:
    """Lines of stdin without line ends. The error of a line that is not UTF-8 waits until earlier lines are out."""

    error: DataError | None = None

    def __iter__(self) -> Iterator[str]:
        count = 0
        while True:
            with not_working():
                line = sys.stdin.buffer.readline()
            if not line:
                return
            count += 1
            try:
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
            except UnicodeDecodeError as error:
                place = f"byte {error.start + 1} of it"
                self.error = DataError(f"Line {count:,} of standard input is no UTF-8 ({place}).")
                return


def _attributed(token: "TranslatedToken") -> str:
    """A token, its probability with and without memory, and the pair with the largest weight."""
    head = f"  {shown(token.text)}  {number(token.probability)} (model {number(token.model)})"
    if token.pair is None:
        return head
    source = "" if token.pair["source"] is None else f"{shown(token.pair['source'])} -> "
    return f"{head}  pair {token.pair['pair']:,}: {source}{shown(token.pair['target'])}"
