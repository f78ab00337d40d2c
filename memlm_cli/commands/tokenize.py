"""`memlm tokenize`."""

from typing import Annotated, Literal

import typer

from memlm_cli.options import Common
from memlm_cli.run_stage import make_artifact

FileList = list[str] | None


def tokenize(
    files: Annotated[
        FileList,
        typer.Argument(
            metavar="FILES...",
            help="Text files, folders, .jsonl, each also .gz/.xz/.zst, or builtin:pydocs; cut by --split.",
            show_default=False,
        ),
    ] = None,
    train: Annotated[FileList, typer.Option(metavar="FILE", help="Files of the train split.")] = None,
    valid: Annotated[FileList, typer.Option(metavar="FILE", help="Files of the valid split.")] = None,
    test: Annotated[FileList, typer.Option(metavar="FILE", help="Files of the test split.")] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="word|char|byte|bpe|FILE.json|TOKENS",
            help="Learnt from train, read from a file, or that of other tokens (default: word).",
        ),
    ] = None,
    vocab_size: Annotated[int | None, typer.Option(help="Token types to keep or to learn.")] = None,
    lowercase: Annotated[bool | None, typer.Option("--lowercase", help="Lower-case the text first.")] = None,
    split: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Shares of train, valid and test of FILES, cut between documents."),
    ] = None,
    documents: Annotated[
        Literal["file", "line", "blank-line", "wikitext", "jsonl"] | None,
        typer.Option(help="What a document is (default: by the file)."),
    ] = None,
    *,
    common: Common,
) -> None:
    """Text -> tokens: a vocabulary, and every split as token ids."""
    from stages.text import TOKENIZERS

    given = tokenizer is not None and tokenizer not in TOKENIZERS and _is_reference(tokenizer)
    make_artifact(
        "tokenize",
        common,
        files or [],
        {
            "tokenizer": "given" if given else tokenizer,
            "vocab_size": vocab_size,
            "lowercase": lowercase,
            "split": split.split(",") if split else None,
            "documents": documents,
        },
        {"train": train, "valid": valid, "test": test, "tokenizer": tokenizer if given else None},
    )


def _is_reference(text: str) -> bool:
    return "/" in text or text.endswith(".json")
