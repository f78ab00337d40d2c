"""Commands that read texts with a model and its memories: `memlm inspect`, `generate` and
`translate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlm_cli import completion
from memlm_cli.command import carried_out_by
from memlm_cli.options import HtmlOption, OptionsOf, ReadArgument, ReadOptions, StoreOptions

if TYPE_CHECKING:
    from stages.generation import GenerationRequest
    from stages.inspection.settings import PassageSettings
    from stages.translation.settings import TranslationRequest


@carried_out_by("memlm_cli.work.texts:inspect")
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
    store_options: StoreOptions,
) -> None:
    """Show a passage token by token: what predicted each token, and from which contexts of the
    corpus.
    """


@carried_out_by("memlm_cli.work.generate:generate")
def generate(
    source: ReadArgument = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Continue every prompt of a file of JSON lines, and answer with a line for each: "
            'a string, {"prompt": TEXT}, or with --chat {"messages": [...]}.',
        ),
    ] = None,
    *,
    request: Annotated["GenerationRequest", OptionsOf("stages.generation:GenerationRequest")],
    reading: ReadOptions,
    store_options: StoreOptions,
) -> None:
    """Write text with a model and its memories; stdout gets only the text, token by token."""


@carried_out_by("memlm_cli.work.texts:translate")
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
    request: Annotated[
        "TranslationRequest", OptionsOf("stages.translation.settings:TranslationRequest")
    ],
    reading: ReadOptions,
    store_options: StoreOptions,
) -> None:
    """Translate lines with a model and its memories: each input line gives one output line."""
