"""`memlm tokenize`."""

from typing import Annotated, Literal

import typer

from memlm_cli import completion
from memlm_cli.options import Common
from memlm_cli.run_stage import make_artifact

FileList = list[str] | None


def tokenize(
    files: Annotated[
        FileList,
        typer.Argument(
            metavar="FILES...",
            help="Text files, folders, .jsonl, each also .gz/.xz/.zst; .parquet, .arrow; builtin:pydocs; data sets of "
            "the Hugging Face hub, hf:NAME/CONFIG@REVISION:COLUMN or less, or hf:/FOLDER laid out so. Cut by --split.",
            show_default=False,
        ),
    ] = None,
    train: Annotated[FileList, typer.Option(metavar="FILE", help="Files of the train split.")] = None,
    valid: Annotated[FileList, typer.Option(metavar="FILE", help="Files of the valid split.")] = None,
    test: Annotated[FileList, typer.Option(metavar="FILE", help="Files of the test split.")] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="bpe|word|char|byte|FILE.json|TOKENS|MODEL",
            autocompletion=completion.tokenizers,
            help="Learnt from train, read from a file, that of other tokens, or that of a pretrained model: a folder, "
            "FILE.gguf or hf:NAME (default: bpe).",
        ),
    ] = None,
    eos: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="What ends a document for a pretrained model (default: as it says)."),
    ] = None,
    vocab_size: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="Token types to keep or to learn (default: auto: of bpe 512 to 32,768, as the text has room for; "
            "else all of train's).",
        ),
    ] = None,
    min_count: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="Words that train has less often are <unk> (default: auto: 1 if the text has <unk> already, else 2).",
        ),
    ] = None,
    lowercase: Annotated[bool | None, typer.Option("--lowercase", help="Lower-case the text first.")] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="A,B[,C]",
            help="Shares of train, valid and test of FILES, cut between documents (default: 0.9,0.05,0.05).",
        ),
    ] = None,
    documents: Annotated[
        Literal["file", "line", "blank-line", "wikitext", "jsonl"] | None,
        typer.Option(
            help="What a document is: a file, a line, lines up to a blank one, an article of WikiText ( = Title = ), a "
            "JSON record a line (default: a record of .jsonl, a row of .parquet and .arrow, else a file)."
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Column of .parquet and .arrow, field of .jsonl, with the text (default: text)."
        ),
    ] = None,
    files_read: Annotated[
        str | None,
        typer.Option(
            "--files",
            metavar="A-B",
            help="Of FILES, or of the first split there is (train), only these files, counted from 0: 0-9.",
        ),
    ] = None,
    max_record_bytes: Annotated[
        int | None, typer.Option(help="Longest record of .jsonl, or row, that is read (default: 256,000,000).")
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
            "min_count": min_count,
            "eos": eos,
            "lowercase": lowercase,
            "split": split.split(",") if split else None,
            "documents": documents,
            "column": column,
            "files": files_read,
            "max_record_bytes": max_record_bytes,
        },
        {"train": train, "valid": valid, "test": test, "tokenizer": tokenizer if given else None},
    )


def _is_reference(text: str) -> bool:
    from stages.pretrained.location import is_location

    return "/" in text or text.endswith(".json") or is_location(text)
