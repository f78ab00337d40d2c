"""`memlm evaluate`."""

from typing import Annotated, Literal

import typer

from memlm_cli import completion
from memlm_cli.options import Common, IndexOption, LongLengthOption, MemLengthOption, ReadArgument
from memlm_cli.run_stage import make_artifact


def evaluate(
    source: ReadArgument = None,
    split: Annotated[str | None, typer.Option(help="Split to score (default: test).")] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS",
            autocompletion=completion.artifacts("tokens"),
            help="Score another corpus than the model's.",
        ),
    ] = None,
    index: IndexOption = None,
    neighbors: Annotated[
        str | None,
        typer.Option(
            metavar="NEIGHBORS",
            autocompletion=completion.artifacts("neighbors"),
            help="Memory of another encoder, as stored; what a gate reads.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="REPORT",
            autocompletion=completion.artifacts("report"),
            help="An ordinary model's, whose row stands above and is compared with.",
        ),
    ] = None,
    memory: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCES[:key=value,…]",
            autocompletion=completion.memories,
            help="One reading, on top of those before it: external:lambda=tune or "
            "long:size=500,lambda=tune (lambda=learned: one for each context); or by name: knn-lm, neural-cache, "
            "trime, trime-long, trime-ext, none (default: as the model was trained to read, knn-lm of an index).",
        ),
    ] = None,
    tune_split: Annotated[str | None, typer.Option(help="Split that numbers are tuned on (default: valid).")] = None,
    context: Annotated[
        int | None,
        typer.Option(help="Tokens a window or segment reads (default: the model's segment length)."),
    ] = None,
    stride: Annotated[int | None, typer.Option(help="Tokens between windows (default: --context).")] = None,
    mem_length: MemLengthOption = None,
    long_length: LongLengthOption = None,
    gate_k: Annotated[
        str | None,
        typer.Option(
            metavar="K[,K…]",
            help="Neighbours that a spalm model's gate reads, the first number, and others whose perplexity is "
            "reported (default: as in training).",
        ),
    ] = None,
    passage: Annotated[
        str | None,
        typer.Option(metavar="START:STOP", help="Tokens whose gates and neighbours are shown (default: the first 64)."),
    ] = None,
    score: Annotated[
        Literal["all", "last-word"] | None,
        typer.Option(
            help="Tokens that count: all, or those of each document's last word, with accuracy (default: all)."
        ),
    ] = None,
    reset: Annotated[
        Literal["none", "document"] | None,
        typer.Option(help="Whether windows and carried state begin anew at every document (default: none)."),
    ] = None,
    frequency: Annotated[
        Literal["train", "split"] | None,
        typer.Option(
            help="Where tokens are counted for perplexity by frequency: in train, or in the split that is scored, "
            "as in the TRIME paper (default: train)."
        ),
    ] = None,
    exclude: Annotated[
        str | None,
        typer.Option(
            metavar="self|window:N|document",
            help="Rows that tokens may not find where the datastore was made of the split that is read.",
        ),
    ] = None,
    save_token_scores: Annotated[
        bool | None,
        typer.Option("--save-token-scores", help="Keep the log-probability of every token."),
    ] = None,
    *,
    common: Common,
) -> None:
    """Model, index or neighbors -> report: perplexity, with and without memory."""

    make_artifact(
        "evaluate",
        common,
        source,
        {
            "split": split,
            "memory": memory,
            "tune_split": tune_split,
            "context": context,
            "stride": stride,
            "mem_length": mem_length,
            "long_length": long_length,
            "gate_k": None if gate_k is None else gate_k.split(","),
            "passage": passage,
            "score": score,
            "reset": reset,
            "frequency": frequency,
            "exclude": exclude,
            "save_token_scores": save_token_scores,
        },
        {"tokens": tokens, "index": index, "neighbors": neighbors, "baseline": baseline},
    )
