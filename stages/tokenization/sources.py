"""The text and tokenizer given by a user, as files and artifacts by role, and settings that depend
on them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.artifacts.stage import InputFile, Inputs
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.numbers import size as bytes_size
from stages.pretrained.location import (
    TOKENIZER_FILES,
    Location,
    digest,
    is_location,
    locate,
    location_of,
)
from stages.reporting import Reporter
from stages.text.config import DEFAULT_SHARES, GIVEN, TEXT, UNTRAINED, TokenizeConfig
from stages.text.delimited import SEPARATORS, require_named_column
from stages.text.files import (
    COLUMNAR,
    WITH_COLUMNS,
    Format,
    file_digest,
    format_of,
    require_columns,
)
from stages.text.records import TextFile
from stages.text.survey import bpe_vocabulary, holds_unknown, text_bytes
from stages.text.tables import require_column
from stages.text.tokens import SPLITS
from stages.tokenization.aligned import FEWEST, TYPES, aligned_inputs
from stages.tokenization.corpora import ONE_CORPUS, NamedFile, find_files, given_specs, named_files

TOKENIZER = "tokenizer"
"""Role of a given tokenizer."""
PRETRAINED = "pretrained-tokenizer"
"""Role of the tokenizer files of a pretrained model."""
TOKENIZER_FILE = "tokenizer.json"


def find_inputs(config: TokenizeConfig, references: Mapping[str, Any], store: Store) -> Inputs:
    """Find and hash the text files, and the tokenizer if one is given.

    Args:
        config: see TokenizeConfig.
        references: `source` (files to be split) or `train`, `valid`, `test`, each a list of files,
            directories, `builtin:pydocs` or data sets (`hf:NAME`); `tokenizer`, a `tokenizer.json`
            or a tokens artifact.
        store: where tokens artifacts are.
    """
    specs = given_specs(config, references)
    tokenizer = references.get(TOKENIZER)
    _check_vocabulary_source(config, list(specs), tokenizer)
    left_out: list[str] = []
    if config.is_aligned:
        files = aligned_inputs(config, references)
    else:
        named = named_files(config, specs, store.root, left_out.append)
        _check_vocabulary_source(config, list(named), tokenizer)
        files = [
            _input_file(role, file, config)
            for role, artifact_files in named.items()
            for file in artifact_files
        ]
        if config.column is not None:
            require_columns(_format_read(file.path, config) for file in files)
    if tokenizer is None:
        return Inputs(files=tuple(files), left_out=tuple(left_out))
    artifacts = {}
    if is_location(tokenizer):
        location = locate(tokenizer, weights=False)
        location.require_tokenizer()
        artifact_files = location.files(TOKENIZER_FILES)
        files += [
            InputFile(f"{PRETRAINED}.{file.name}", str(file), digest(file))
            for file in artifact_files
        ]
    elif tokenizer.endswith(".json"):
        files.append(InputFile(TOKENIZER, tokenizer, file_digest(find_files([tokenizer])[0])))
    else:
        artifacts[TOKENIZER] = store.get(tokenizer, "tokens")
    return Inputs(artifacts, tuple(files), tuple(left_out))


def pretrained_tokenizer(inputs: Inputs) -> Location | None:
    """Location of the tokenizer of a pretrained model; None if none was given."""
    paths = [Path(file.path) for file in inputs.files if file.role.split(".")[0] == PRETRAINED]
    return location_of(paths[0]) if paths else None


def text_files(inputs: Inputs, config: TokenizeConfig, *roles: str) -> list[TextFile]:
    """The text files of the given roles, in order, each with its format and column."""
    files_found = list[TextFile]()
    joined = config.documents not in (None, "jsonl")
    for file in inputs.files:
        if file.role.split(".")[0] in roles:
            format = _format_read(file.path, config)
            column = _column_of(file)
            files_found.append(
                TextFile(file.path, format, file.digest, config.max_record_bytes, column, joined)
            )
    return files_found


def given_tokenizer(inputs: Inputs) -> Path | None:
    """Path of the given tokenizer; None if none was given."""
    if TOKENIZER in inputs:
        return inputs[TOKENIZER].file(TOKENIZER_FILE)
    return next((Path(file.path) for file in inputs.files if file.role == TOKENIZER), None)


def _check_vocabulary_source(
    config: TokenizeConfig, roles: Sequence[str], tokenizer: str | None
) -> None:
    """Check that the vocabulary comes from one place.

    Raises: UsageError if it is given, and settings would make another; or if it is to be made, and
    there is no text to make it from.
    """
    is_given = tokenizer is not None
    has_settings = config.vocab_size is not None or config.min_count is not None
    if is_given and (config.lowercase or has_settings):
        raise UsageError(
            "A given tokenizer has its own vocabulary and letter case: neither can be set."
        )
    if not is_given and config.tokenizer == GIVEN:
        raise UsageError("Which tokenizer? Name a tokenizer.json or a tokens artifact.")

    is_trained = not is_given and config.tokenizer not in UNTRAINED
    if is_trained and "train" not in roles and ONE_CORPUS not in roles:
        raise UsageError(
            f"The vocabulary of the {config.tokenizer} tokenizer comes from train: name its files with --train, "
            "or another tokens artifact with --tokenizer."
        )


def _format_read(path: str, config: TokenizeConfig) -> Format:
    """Format as which a file is read: a text file may hold records all the same."""
    format = format_of(path)
    return "jsonl" if format == "txt" and config.documents == "jsonl" else format


def _input_file(role: str, file: NamedFile, config: TokenizeConfig) -> InputFile:
    """The file with a role that includes its format and text column, because an id does not cover
    file names.

    Raises: DataError for a table without that column.
    """
    format = format_of(file.path)
    column = file.column or config.column or TEXT
    # Checked now, not after hours of reading other files.
    content = file_digest(file.path)
    if format in SEPARATORS:
        require_named_column(file.path, format, content, column, config.max_record_bytes)
    elif format in COLUMNAR:
        require_column(file.path, column)
    has_columns = _format_read(file.path, config) in WITH_COLUMNS
    column_suffix = f".{column}" if column != TEXT and has_columns else ""
    return InputFile(f"{role}.{format}{column_suffix}", file.path, content)


def _column_of(file: InputFile) -> str:
    """Column or field of a text file that holds its text."""
    return (*file.role.split(".", 2), TEXT)[2]


def resolve_automatic(config: TokenizeConfig, inputs: Inputs, reporter: Reporter) -> dict[str, Any]:
    """The automatic settings that depend on these inputs, by name."""
    read = [file for file in inputs.files if file.role.split(".")[0] in (ONE_CORPUS, *SPLITS)]
    columns = {_column_of(file) for file in read} - {TEXT}
    changes: dict[str, Any] = {
        "column": columns.pop() if len(columns) == 1 and not config.is_aligned else None
    }
    if config.tasks:
        changes["task_names"] = tuple(
            Path(file.path).parent.name for file in text_files(inputs, config, "train")
        )
    if config.split is None and text_files(inputs, config, ONE_CORPUS):
        changes["split"] = DEFAULT_SHARES
    if given_tokenizer(inputs) is not None or pretrained_tokenizer(inputs) is not None:
        changes["tokenizer"] = GIVEN
        return changes
    if config.is_aligned:
        if config.tokenizer == "bpe" and config.vocab_size is None:
            changes["vocab_size"] = TYPES
        elif config.tokenizer == "word" and config.min_count is None:
            changes["min_count"] = FEWEST
        return changes
    files = text_files(inputs, config, "train", ONE_CORPUS)
    if config.tokenizer == "bpe" and config.vocab_size is None:
        shares = changes.get("split", config.split)
        size = (shares[0] if shares else 1.0) * text_bytes(files)
        changes["vocab_size"] = types = bpe_vocabulary(size)
        reporter.info(
            f"a bpe vocabulary of {types:,} types, for {bytes_size(size)} of training text"
        )
    elif config.tokenizer == "word" and config.min_count is None:
        has_unknown = holds_unknown(files)
        changes["min_count"] = 1 if has_unknown else 2
        reporter.info(
            "every word is kept: the text has <unk> in place of rare ones already (--min-count 1)"
            if has_unknown
            else "words that train has only once become <unk>, so that it is learnt (--min-count 2)"
        )
    return changes
