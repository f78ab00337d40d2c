"""Work of `memlm artifacts holds`: who still holds a document."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from memlm_cli.console import answer, say
from memlm_cli.options import StoreOptions
from memlm_cli.progress import ConsoleReporter
from memlm_cli.tables import answer_table
from stages.artifacts.kinds import KINDS
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.forgetting.bucket import held_in_bucket, open_bucket
from stages.forgetting.question import SHORTEST, DocumentQuestion, named, read_text
from stages.forgetting.receipt import Receipt, checked_again
from stages.forgetting.search import Answer, find_holders
from stages.forgetting.spans import Holding, RowSpan, spelled
from stages.numbers import joined
from stages.reporting import Reporter

HOLDERS_FOUND = 1
"""Exit code if somebody holds the document."""
SHOWN = 3
"""Documents with copies that are named."""
WORDS = {
    "learned": "learned from it, cannot forget",
    "quoted": "quotes it",
    "vocabulary": "learned its vocabulary from it",
    "derived": "made from it",
    "unfinished": "interrupted work, may hold it",
}
"""How an artifact holds a document, in words for a table."""


def holds(
    names: list[str] | None,
    text: Path | None,
    receipt: Path | None,
    copied: int,
    bucket: str | None,
    *,
    store_options: StoreOptions,
) -> None:
    """Carry out `memlm artifacts holds`."""
    if sum(option is not None for option in (names or None, text, receipt)) != 1:
        raise UsageError("Give names of documents, --text FILE, or --receipt FILE: one of them.")
    opened = store_options.open_store()
    copies = None if bucket is None else open_bucket(bucket)
    with ConsoleReporter("artifacts holds") as reporter:
        if receipt is not None:
            question, result = _checked_again(receipt, opened, reporter)
        else:
            question = _question(names, text, copied)
            result = find_holders(opened, question, reporter)
        if copies is not None:
            there = held_in_bucket(copies, opened, question, result)
            result = replace(result, holdings=(*result.holdings, *there))
    _show(result, opened, store_options, called=text is None)
    if result.unread:
        raise ArtifactError(
            f"{joined(list(result.unread))} could not be looked at, and may hold it, too."
        )
    if result.holdings:
        raise typer.Exit(HOLDERS_FOUND)


def _question(names: list[str] | None, text: Path | None, copied: int) -> DocumentQuestion:
    if 0 < copied < SHORTEST:
        raise UsageError(f"--copied {copied}: shorter runs than {SHORTEST} tokens are everywhere.")
    if text is None:
        return DocumentQuestion(names=named(names or ()), copied=copied)
    content = read_text(text, "the text that is looked for")
    if not content.strip():
        raise UsageError(f"{text} is empty: there is nothing to look for.")
    if not copied:
        raise UsageError("--text finds copies alone: leave --copied 0 out.")
    return DocumentQuestion(text=content, copied=copied)


def _checked_again(path: Path, store: Store, reporter: Reporter) -> tuple[DocumentQuestion, Answer]:
    changed, result = checked_again(Receipt.read(path), store, reporter)
    changed.write(path)
    # Names that are gone resemble others, and that is no mistake.
    return changed.question, replace(result, alike=())


def _show(result: Answer, store: Store, store_options: StoreOptions, *, called: bool) -> None:
    """Print an answer; `called`: documents were asked for by name."""
    names = _names(store)
    if store_options.json:
        answer(json.dumps(_as_json(result, names)))
    elif result.holdings:
        rows = [_row(holding, names, called=called) for holding in result.holdings]
        answer_table(("artifact", "name", "holds", "where"), rows)
    for reason in result.unread.values():
        say(reason)
    for line in _remarks(result, store):
        say(line)


def _row(
    holding: Holding, names: dict[str, list[str]], *, called: bool
) -> tuple[str, str, str, str]:
    way = WORDS.get(holding.way, str(holding.way))
    rows = spelled(holding.document_spans)
    if rows and not called:
        rows += f" ({_documents(holding.document_spans)})"
    copies = f"the same text in {_documents(holding.copies)}" if holding.copies else ""
    where = "; ".join(filter(None, (rows, ", ".join(holding.files), copies)))
    return holding.reference, ", ".join(names.get(holding.reference, ())), way, where


def _documents(spans: Sequence[RowSpan]) -> str:
    """`anna.txt`, the documents with most of the text first."""
    rows = Counter[str]()
    for span in spans:
        rows[span.document or "a document without a name"] += span.rows
    documents = sorted(rows, key=lambda name: (-rows[name], name))
    num_hidden = len(documents) - SHOWN
    more = f" and {num_hidden:,} more" if num_hidden > 0 else ""
    return ", ".join(documents[:SHOWN]) + more


def _remarks(result: Answer, store: Store) -> Iterator[str]:
    """Sentences about an answer."""
    if not result.holdings:
        if not result.unread:
            yield f"nobody in {store.root} holds it"
        if result.alike:
            yield f"no document has that name; did you mean {' or '.join(map(repr, result.alike))}?"
        return
    if any(holding.way == "learned" for holding in result.holdings):
        yield "what was learned from a text cannot be taken out: train anew without it"
    if any(holding.copies for holding in result.holdings):
        yield f"other documents have the same text ({_copied(result)}): forget them, too"


def _copied(result: Answer) -> str:
    """`212 tokens of anna.txt`: the longest copy among the texts of the store."""
    copies: list[RowSpan] = []
    copies_in_texts: list[RowSpan] = []
    for holding in result.holdings:
        copies += holding.copies
        if holding.way == "text":
            copies_in_texts += holding.copies
    longest = max(copies_in_texts or copies, key=lambda span: span.rows)
    name = longest.document or "a document without a name"
    return f"{_counted(longest.rows, 'token')} of {name}"


def _as_json(result: Answer, names: dict[str, list[str]]) -> dict[str, Any]:
    holders = []
    for holding in result.holdings:
        holder = {
            "reference": holding.reference,
            "names": names.get(holding.reference, []),
            "digest": holding.digest,
            "way": holding.way,
            "spans": [span._asdict() for span in holding.spans],
            "files": list(holding.files),
        }
        holders.append(holder)
    return {"holders": holders, "unread": result.unread, "tokens_searched": result.tokens}


def _names(store: Store) -> dict[str, list[str]]:
    """Names of artifacts, by reference."""
    names: dict[str, list[str]] = {}
    for kind in KINDS:
        for name, id in store.names(kind).items():
            names.setdefault(f"{kind}/{id}", []).append(name)
    return names


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
