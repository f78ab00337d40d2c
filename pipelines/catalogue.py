"""Every command that makes an artifact: its settings, its stage, and the references that it takes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from stages.artifacts.kinds import STAGES
from stages.errors import UsageError, did_you_mean


class Reference(NamedTuple):
    """An artifact or a file that a command reads in addition to its source, given by an option."""

    help: str
    kinds: tuple[str, ...] = ()
    """Legal kinds of artifacts; empty: files."""
    metavar: str = ""
    """Placeholder in help pages; empty: the kinds."""
    several: bool = False
    """Whether it may be given more than once."""


class Command(NamedTuple):
    """A command, as `memlm COMMAND` and as `command = "COMMAND"` in a recipe."""

    summary: str
    source_help: str
    source: tuple[str, ...] = ()
    """Legal kinds of artifacts for its argument."""
    references: Mapping[str, Reference] = MappingProxyType({})
    """Other artifacts and files, by the stage's names for them."""
    first: str = ""
    """The reference given as an argument before the source; empty: there is none."""
    reads_files: bool = False
    """Whether it reads the user's files instead of artifacts."""
    seeded: bool = False
    """Whether `memlm run --seeds` repeats it with other seeds."""


COMMANDS = {
    "tokenize": Command(
        "Text -> tokens: a vocabulary, and every split as token ids.",
        "Text files, folders or .jsonl, also compressed (.gz, .xz, .zst); .parquet; .arrow; builtin:pydocs; data sets "
        "of the Hugging Face hub, hf:NAME/CONFIG@REVISION:COLUMN (only NAME is required), or hf:/FOLDER with the same "
        "layout. --split divides them.",
        references={
            "train": Reference("Files of the train split.", metavar="FILE", several=True),
            "valid": Reference("Files of the valid split.", metavar="FILE", several=True),
            "test": Reference("Files of the test split.", metavar="FILE", several=True),
            "tokenizer": Reference("", ("tokens",)),
        },
        reads_files=True,
    ),
    "train": Command(
        "Tokens, batches, neighbors or episodes -> model: trains a language model.",
        "Data to learn from",
        ("tokens", "batches", "neighbors", "episodes"),
        {"init_from": Reference("Begin with the weights of this model.", ("model",))},
        seeded=True,
    ),
    "import-model": Command(
        "Pretrained causal language model or encoder, and tokens of its tokenizer -> model.",
        "Tokens made with its tokenizer",
        ("tokens",),
        {
            "checkpoint": Reference(
                "A folder with config.json and safetensors, FILE.gguf, or hf:NAME[@REVISION] of the Hugging Face hub."
            )
        },
        first="checkpoint",
    ),
    "build-datastore": Command(
        "Model -> datastore: a key and a value for every token of a split.",
        "Its encoder",
        ("model",),
        {"tokens": Reference("Another corpus than the model's, with its vocabulary.", ("tokens",))},
    ),
    "update-datastore": Command(
        "Datastore -> datastore: adds documents and forgets others, without encoding the rest again.",
        "The old datastore, which is kept",
        ("datastore",),
        {"add": Reference("Text to add, tokenized with the datastore's vocabulary.", ("tokens",))},
    ),
    "build-index": Command(
        "Datastore -> index: finds the nearest keys. Tokens -> index (--index exact): finds exact matches.",
        "Keys to search, or tokens whose contexts are sorted",
        ("datastore", "tokens"),
        {
            "update": Reference(
                "Index of the datastore before its update. It is changed instead of building a new one, if its kind "
                "allows (default: the latest with the same settings).",
                ("index",),
                "INDEX|none",
            ),
            "merge": Reference(
                "Neighbours of the datastore's own rows: neighbours with the same token are merged into one entry.",
                ("neighbors",),
            ),
        },
    ),
    "precompute-neighbors": Command(
        "Index -> neighbors: the nearest datastore rows of every token's context.",
        "Index to search",
        ("index",),
        {"tokens": Reference("Another corpus than the encoder's, for queries.", ("tokens",))},
    ),
    "pack-batches": Command(
        "Tokens -> batches: groups segments that share many words, for trime-ext.",
        "Tokens whose training split is packed",
        ("tokens",),
    ),
    "evaluate": Command(
        "Model, index or neighbors -> report: perplexity, with and without memory.",
        "A model, index or neighbors",
        ("model", "index", "neighbors"),
        {
            "tokens": Reference("Another corpus to score instead of the model's.", ("tokens",)),
            "index": Reference("Index of another encoder, to search as memory.", ("index",)),
            "neighbors": Reference(
                "Neighbours of another encoder, to read as memory; or those that a spalm model reads.",
                ("neighbors",),
            ),
            "baseline": Reference(
                "Report of an ordinary model, as a first row to compare with.", ("report",)
            ),
        },
    ),
    "build-episodes": Command(
        "Model -> episodes: a key and a label for every document of a stream of tasks.",
        "The key network, which was not trained on the tasks",
        ("model",),
        {"tokens": Reference("Tokens of the tasks, with the model's vocabulary.", ("tokens",))},
    ),
    "evaluate-tasks": Command(
        "Model trained on tasks -> matrix: accuracy on the test split of each task, after each task.",
        "A model trained by a method that learns tasks",
        ("model",),
        {"episodes": Reference("Keys of the documents in memory.", ("episodes",))},
    ),
}


def stage_of(command: str) -> Any:
    """A new stage object. Raises UsageError for an unknown command."""
    return STAGES.load(command)()


def config_of(command: str) -> Any:
    """The class of a command's settings. Raises UsageError for an unknown command."""
    return STAGES.settings(command)


def check_references(command: str, names: list[str]) -> None:
    """Raises UsageError if a command takes no reference of one of these names."""
    for name in names:
        if name not in COMMANDS[command].references:
            known = did_you_mean(name, COMMANDS[command].references or ("none",))
            raise UsageError(f"{command} takes no reference {name!r}; {known}")


def reads_artifact(command: str, role: str) -> bool:
    """Whether a reference of a command must be an artifact; other references name files."""
    known = COMMANDS[command]
    return not known.reads_files and (role == "source" or bool(known.references[role].kinds))


def names_files(command: str, role: str) -> bool:
    """Whether a reference of a command is never an artifact."""
    known = COMMANDS[command]
    return known.reads_files if role == "source" else not known.references[role].kinds
