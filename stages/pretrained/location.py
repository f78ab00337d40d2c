"""Location of a pretrained model or tokenizer: a folder, a GGUF file, or a repository of the
Hugging Face hub.

A repository is fetched into the cache of the hub's library.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stages.artifacts.references import split_reference
from stages.errors import DataError, MemlmError, UsageError, causes, first_line, shortened
from stages.text import TOKENIZERS

HUB = "hf:"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "config.json",
)
"""Files that define the tokenizer; `config.json` is included because it may name the tokenizer's
class.
"""
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
"""The file of all weights, and the index of weights in several files."""
ADAPTER = "adapter_config.json"
"""Settings of an adapter, which transformers would apply to a base model that may be anywhere."""
MODULES = "modules.json"
SENTENCE_TRANSFORMERS = "config_sentence_transformers.json"
"""Files of sentence-transformers with the layers above hidden states, and with words before texts.
"""
SENTENCE_SETTINGS = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Files of sentence-transformers with the maximum length of texts; one of them is there."""
DENSE_WEIGHTS = f"*_Dense/{WEIGHTS}"
SETTINGS = (
    *TOKENIZER_FILES,
    INDEX,
    ADAPTER,
    MODULES,
    SENTENCE_TRANSFORMERS,
    *SENTENCE_SETTINGS,
    "*_Pooling/config.json",
    "*_Dense/config.json",
)
"""All files that are read of a repository, except the weights."""
REDIRECTS = ("transformers_weights", "configuration_files")
"""Settings of `config.json` that make transformers read files that are not hashed."""
UNSAFE = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
"""Endings of weights stored as pickles, which run code when read."""


def names_tokenizer(text: str) -> bool:
    """Whether a text names an existing tokenizer (of an artifact, a file or a model), not a kind of
    tokenizer.
    """
    return text not in TOKENIZERS and ("/" in text or text.endswith(".json") or is_location(text))


@dataclass(frozen=True)
class Location:
    """Files of a pretrained model or tokenizer on this machine."""

    spec: str
    """The user's name for it."""
    folder: Path
    gguf: str | None = None
    """Name of the one file that holds everything; None: separate files for weights, settings and
    tokenizer.
    """

    def files(self, names: tuple[str, ...]) -> list[Path]:
        """Paths of the named files that exist; for GGUF, the path of the file itself."""
        if self.gguf is not None:
            return [self.folder / self.gguf]
        return [self.folder / name for name in names if (self.folder / name).is_file()]

    def weights(self) -> list[Path]:
        """The files of a model's settings and weights (safetensors).

        Raises: DataError if there is no model, or some of its weights are not safetensors.
        """
        if self.gguf is not None:
            return [self.folder / self.gguf]
        names = self.weight_names()
        missing = [name for name in names if not (self.folder / name).is_file()]
        if missing == [WEIGHTS]:
            raise DataError(f"{self.spec} has no weights as safetensors{self._instead()}.")
        if missing:
            raise DataError(
                f"{self.spec} lacks {missing[0]}, one of the {len(names)} files that {INDEX} names: copy it there."
            )
        return self.files(("config.json", INDEX, *names))

    def weight_names(self) -> list[str]:
        """Names of the files of weights, which may be missing.

        Raises: DataError if there is no model, or only an adapter.
        """
        if (self.folder / ADAPTER).is_file():
            raise DataError(
                f"{self.spec} holds an adapter ({ADAPTER}): load the model with it, merge both (merge_and_unload) and "
                "save that (save_pretrained); it can be read."
            )
        if not (self.folder / "config.json").is_file():
            raise DataError(f"{self.spec} is no model: it has no config.json.")
        index = self.folder / INDEX
        if (self.folder / WEIGHTS).is_file() or not index.is_file():
            return [WEIGHTS]
        named = _json_object(index).get("weight_map")
        names = list(named.values()) if isinstance(named, dict) else []
        # transformers would open pickles listed in an index
        files = [
            Path(name).name
            for name in names
            if isinstance(name, str) and name.endswith(".safetensors")
        ]
        if not names or files != names:
            raise DataError(
                f"{index} does not name the safetensors beside it that hold the weights."
            )
        return sorted(set(names))

    def _instead(self) -> str:
        """Describe the files found instead of weights, with advice."""
        others = sorted(
            file.name
            for file in self.folder.iterdir()
            if file.suffix in (*UNSAFE, ".safetensors", ".gguf")
        )
        if not others or Path(others[0]).suffix in UNSAFE:
            there = f", but {others[0]}, a pickle" if others else ""
            return (
                f"{there}: name a GGUF file of it, or, since pickles may run code, load it with transformers where you "
                "trust it, and save it again (save_pretrained writes safetensors)"
            )
        if others[0].endswith(".gguf"):
            return f", but {others[0]}: name that file"
        return f" called {WEIGHTS}, nor {INDEX} that names {others[0]}: copy all files of the model there"

    @property
    def has_tokenizer(self) -> bool:
        """Whether there is a readable tokenizer."""
        return bool(self.files(("tokenizer.json",)))

    def require_tokenizer(self) -> None:
        """Check that there is a readable tokenizer. Raises: DataError."""
        if not any(self.folder.iterdir()):
            raise DataError(
                f"{self.spec} is an empty folder; expected the tokenizer.json of a pretrained model."
            )
        if not self.has_tokenizer:
            name = (
                self.spec.removeprefix(HUB).partition("@")[0]
                if self.spec.startswith(HUB)
                else self.spec
            )
            raise DataError(
                f"{self.spec} has no tokenizer.json, the one kind of tokenizer that is read. Where transformers has a "
                f'fast tokenizer for it, AutoTokenizer.from_pretrained("{name}").save_pretrained("FOLDER") writes one: '
                "name that folder."
            )

    @contextmanager
    def isolated(self, files: Sequence[Path]) -> Iterator[str]:
        """A temporary folder with links to these files only, because transformers reads any other
        files in a folder.

        So the id of an imported model covers everything that is read.
        """
        with TemporaryDirectory(prefix="memlm-") as folder:
            # Links, because weights take gigabytes.
            for file in files:
                Path(folder, file.name).symlink_to(file.resolve())
            yield folder

    def loading(self) -> dict[str, Any]:
        """Arguments for transformers: read only these files, and never run code in them."""
        options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        return options if self.gguf is None else options | {"gguf_file": self.gguf}


def locate(spec: str, *, weights: bool = True) -> Location:
    """Location of the files of `FOLDER`, `FILE.gguf` or `hf:NAME[@REVISION]`.

    Args:
        weights: whether to fetch weights, too; False: only the tokenizer.
    Raises: DataError if files are missing, or require running their own code.
    """
    if spec.startswith(HUB):
        name = spec.removeprefix(HUB)
        location = _checked(Location(spec, fetch(name, SETTINGS)))
        if weights:
            names = [*location.weight_names(), DENSE_WEIGHTS]
            fetch(name, names, commit=location.folder.name)
        return location
    path = Path(spec)
    if path.suffix == ".gguf" and path.is_file():
        return Location(spec, path.parent, path.name)
    if path.is_dir():
        return _checked(Location(spec, path))
    problem = "is no model" if path.exists() else "does not exist"
    raise DataError(
        f"{spec} {problem}; expected a folder with a model, a .gguf file, or hf:NAME of the hub."
    )


def is_location(spec: str) -> bool:
    """Whether a name is that of a pretrained tokenizer, not of a `tokenizer.json` or an artifact.

    A folder counts, with or without a tokenizer, unless it is an artifact or could be an artifact's
    name.
    """
    path = Path(spec)
    is_memlm_folder = (path / "tokenizer.json").is_file() or (
        path.is_dir() and split_reference(spec) is None
    )
    return (
        spec.startswith(HUB)
        or path.suffix == ".gguf"
        or (is_memlm_folder and not (path / "manifest.json").exists())
    )


def location_of(file: Path) -> Location:
    """Location of a file returned by `Location`."""
    if file.suffix == ".gguf":
        return Location(str(file), file.parent, file.name)
    return Location(str(file.parent), file.parent)


def packing(location: Location) -> str | None:
    """Quantization of the weights (gptq, awq) by the settings of a folder; None: not stated."""
    for file in location.files(("config.json",)) if location.gguf is None else ():
        settings = _json_object(file).get("quantization_config")
        return str(settings.get("quant_method", "?")) if isinstance(settings, dict) else None
    return None


def digest(file: Path) -> str:
    """BLAKE2b of a file's bytes.

    Raises: DataError if it cannot be read.
    """
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}.") from None


def _checked(location: Location) -> Location:
    """The location, if it can be read without code of its own. Raises: DataError if its settings
    name code that would have to be run.
    """
    for file in location.files(("config.json", "tokenizer_config.json")):
        if "auto_map" in _json_object(file):
            raise DataError(
                f"{location.spec} wants code of its own to be run ({file.name}: auto_map), which memlm never does; "
                "models that transformers itself knows can be read."
            )
    for file in location.files(("config.json",)):
        settings = _json_object(file)
        for name in REDIRECTS:
            if settings.get(name) not in (None, [], WEIGHTS):
                raise DataError(
                    f"{file} sends transformers to other files ({name}: {shortened(str(settings[name]))}), which memlm "
                    f"does not follow: give those the usual names (config.json, {WEIGHTS}) in a folder of their own, "
                    f"without {name}."
                )
    return location


def _json_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises: DataError if it holds none."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} is no JSON: {error}.") from None
    if not isinstance(content, dict):
        raise DataError(f"{file} holds no settings.")
    return content


def require_extra() -> None:
    """Check that transformers is installed. Raises: UsageError, naming the extra."""
    from importlib.util import find_spec

    if find_spec("transformers") is None:
        raise UsageError(
            "Pretrained models need the package transformers: pip install 'memlm[hf]'."
        )


def fetch(name: str, files: Sequence[str], commit: str | None = None) -> Path:
    """Folder with the requested files of `NAME[@REVISION]`, as far as they exist; pickles are never
    requested.

    Without a network, the cache is used.

    Args:
        files: names, or patterns of them.
        commit: the commit that the revision was resolved to before; None: the hub resolves it.
    Raises: DataError if the repository does not exist, has none of the files, needs permission, or
    cannot be reached.
    """
    require_extra()
    from huggingface_hub import logging, snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    logging.set_verbosity_error()
    if not sys.stderr.isatty():
        disable_progress_bars()
    repository, _, revision = name.partition("@")
    source = f"{repository} --revision {revision}" if revision else repository
    by_hand = f"download it elsewhere (hf download {source} --local-dir FOLDER), copy FOLDER here, and name FOLDER"
    with hub_errors(f"hf:{name}", by_hand):
        folder = Path(
            snapshot_download(
                repository, revision=commit or revision or None, allow_patterns=list(files)
            )
        )
    if not folder.is_dir():
        raise DataError(
            f"hf:{name} holds no model or tokenizer that transformers reads: it has neither config.json nor "
            f"tokenizer.json. A GGUF file is named by itself: hf download {source} FILE.gguf --local-dir FOLDER."
        )
    return folder


@contextmanager
def hub_errors(spec: str, by_hand: str) -> Iterator[None]:
    """Turn errors of the hub's library, which may be of any class, into messages for users.

    Args:
        spec: the user's name for the repository.
        by_hand: advice for use without a network.
    Raises: DataError if the repository does not exist, needs permission, or cannot be reached.
    """
    try:
        yield
    except (MemlmError, ImportError, MemoryError):
        raise
    except Exception as error:
        raise DataError(f"{spec} {_reason(error, by_hand)}.") from error


def _reason(error: Exception, by_hand: str) -> str:
    """Message about an error of the hub, with advice; the errors of other libraries often hide the
    hub's own.
    """
    from huggingface_hub import errors

    chain = list(causes(error))

    def is_caused_by(kind: type[BaseException]) -> bool:
        return any(isinstance(each, kind) for each in chain)

    # without the library's prefix before another error
    line = re.sub(r"^Got: (\w+: )?", "", first_line(error).rstrip(".:")[:200])
    if is_caused_by(errors.GatedRepoError) or "is a gated dataset" in str(error):
        return "is gated: accept its terms on the hub, and log in with `hf auth login`"
    if is_caused_by(errors.RepositoryNotFoundError):
        return "is not there: the hub has no such repository, or not for you (hf auth login)"
    if is_caused_by(errors.RevisionNotFoundError):
        return "is not there: the repository has no such revision"
    if is_caused_by(errors.HFValidationError):
        return f"is no name of a repository: {line}"
    if is_caused_by(errors.OfflineModeIsEnabled):
        return (
            f"is not in the cache, and HF_HUB_OFFLINE forbids to fetch it: unset that, or {by_hand}"
        )
    answer = next(
        (each.response.status_code for each in chain if isinstance(each, errors.HfHubHTTPError)),
        None,
    )
    if answer in (401, 403):
        return f"needs a permission that you do not have, or not any more ({answer}): log in with `hf auth login`"
    if answer is not None:
        return f"cannot be fetched: {line}; try later, or {by_hand}"
    return f"cannot be fetched ({line}): is there no network? Then {by_hand}"
