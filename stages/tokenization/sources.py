"""What text is read, and which tokenizer: what a user names, as files and artifacts by role."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.artifacts.stage import InputFile, Inputs
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.pretrained.location import TOKENIZER_FILES, Location, digest, is_location, locate, location_of
from stages.text.config import GIVEN, UNTRAINED, TokenizeConfig
from stages.text.files import file_digest, find_files, format_of
from stages.text.records import TextFile
from stages.text.tokens import SPLITS

ONE_CORPUS = "source"
"""Role of files that are not given by split."""
TOKENIZER = "tokenizer"
"""Role of a tokenizer that is given."""
PRETRAINED = "pretrained-tokenizer"
"""Role of the files of a pretrained model that say how it reads text."""
TOKENIZER_FILE = "tokenizer.json"


def find_inputs(config: TokenizeConfig, references: Mapping[str, Any], store: Store) -> Inputs:
    """Find and hash the text files, and the tokenizer if one is given.

    Args:
        config: see TokenizeConfig.
        references: `source` (files to be split) or `train`, `valid`, `test`, each a list of files, directories
            or `builtin:pydocs`; `tokenizer`, a `tokenizer.json` or a tokens artifact.
        store: where tokens artifacts are.
    """
    roles = _given_roles(config, references)
    tokenizer = references.get(TOKENIZER)
    _check_vocabulary_source(config, roles, tokenizer)
    files = [_input_file(role, path) for role in roles for path in _paths(references[role])]
    if tokenizer is None:
        return Inputs(files=tuple(files))
    if is_location(tokenizer):
        return Inputs(files=(*files, *_pretrained_files(tokenizer)))
    if tokenizer.endswith(".json"):
        return Inputs(files=(*files, InputFile(TOKENIZER, tokenizer, file_digest(find_files([tokenizer])[0]))))
    return Inputs({TOKENIZER: store.get(tokenizer, "tokens")}, tuple(files))


def _pretrained_files(tokenizer: str) -> list[InputFile]:
    """Raises: DataError where there is no tokenizer of a pretrained model."""
    location = locate(tokenizer)
    found = location.files(TOKENIZER_FILES)
    return [InputFile(f"{PRETRAINED}.{file.name}", str(file), digest(file)) for file in found]


def pretrained_tokenizer(inputs: Inputs) -> Location | None:
    """Where the tokenizer of a pretrained model lies, if one was given."""
    paths = [Path(file.path) for file in inputs.files if file.role.split(".")[0] == PRETRAINED]
    return location_of(paths[0]) if paths else None


def text_files(inputs: Inputs, config: TokenizeConfig, *roles: str) -> list[TextFile]:
    """The text files of some roles, in their order, each with what is in it."""
    return [_text_file(file, config) for file in inputs.files if file.role.split(".")[0] in roles]


def given_tokenizer(inputs: Inputs) -> Path | None:
    """Where the tokenizer is that was given, if one was."""
    if TOKENIZER in inputs:
        return inputs[TOKENIZER].file(TOKENIZER_FILE)
    return next((Path(file.path) for file in inputs.files if file.role == TOKENIZER), None)


def _given_roles(config: TokenizeConfig, references: Mapping[str, Any]) -> list[str]:
    """`source`, or the splits that files are named for."""
    splits = [split for split in SPLITS if references.get(split)]
    if references.get(ONE_CORPUS) and splits:
        raise UsageError(f"Files are named both alone and for {splits[0]}: name them one way or the other.")
    if config.split is not None and splits:
        raise UsageError("Shares of a split are for files named alone; these are named by split already.")
    if not references.get(ONE_CORPUS) and not splits:
        raise UsageError("Which text? Name files or directories, builtin:pydocs, or --train, --valid, --test.")
    return splits or [ONE_CORPUS]


def _check_vocabulary_source(config: TokenizeConfig, roles: Sequence[str], tokenizer: str | None) -> None:
    if tokenizer is not None and (config.lowercase or config.vocab_size is not None or config.min_count is not None):
        raise UsageError("A given tokenizer has its own vocabulary and letter case: neither can be set.")
    if tokenizer is None and config.tokenizer == GIVEN:
        raise UsageError("Which tokenizer? Name a tokenizer.json or a tokens artifact.")
    trained = tokenizer is None and config.tokenizer not in UNTRAINED
    if trained and "train" not in roles and ONE_CORPUS not in roles:
        raise UsageError(
            f"The vocabulary of the {config.tokenizer} tokenizer comes from train: name its files with --train, "
            "or another tokens artifact with --tokenizer."
        )


def _paths(specs: str | Sequence[str]) -> list[str]:
    return find_files([specs] if isinstance(specs, str) else specs)


def _input_file(role: str, path: str) -> InputFile:
    """The role tells what is in the file, since an id covers no file's name."""
    return InputFile(f"{role}.{format_of(path)}", path, file_digest(path))


def _text_file(file: InputFile, config: TokenizeConfig) -> TextFile:
    format = format_of(file.path)
    format = "jsonl" if format == "txt" and config.documents == "jsonl" else format
    return TextFile(file.path, format, file.digest, config.max_record_bytes)
