"""Where a pretrained model or tokenizer lies: a folder, a GGUF file, or a repository of the Hugging Face hub."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stages.artifacts.references import split_reference
from stages.errors import DataError, shortened
from stages.text import TOKENIZERS

HUB = "hf:"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "config.json",
)
"""Files that define how text becomes ids; `config.json`, since it may name the kind of tokenizer."""
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
"""All weights in one file, or a file that says which files hold them."""
ADAPTER = "adapter_config.json"
"""Beside the weights of an adapter, which transformers would put on top of a model that may lie anywhere."""
MODULES, SENTENCE_SETTINGS = "modules.json", "sentence_bert_config.json"
"""Files of sentence-transformers: how an encoder pools hidden states, and how long texts may be."""
SETTINGS = (*TOKENIZER_FILES, INDEX, ADAPTER, MODULES, SENTENCE_SETTINGS, "*_Pooling/config.json")
"""All that is read of a repository but the weights."""
REDIRECTS = ("transformers_weights", "configuration_files")
"""Settings of `config.json` that make transformers read other files than those that are hashed."""
UNSAFE = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
"""Weights as pickles, which run code when they are read."""


def names_tokenizer(text: str) -> bool:
    """Whether a text names a tokenizer that is there, in an artifact, a file or a model, rather than a kind of one."""
    return text not in TOKENIZERS and ("/" in text or text.endswith(".json") or is_location(text))


@dataclass(frozen=True)
class Location:
    """Files on this machine."""

    spec: str
    """As the user names it."""
    folder: Path
    gguf: str | None = None
    """Name of the one file that holds everything; None: files of their own for weights, settings and tokenizer."""

    def files(self, names: tuple[str, ...]) -> list[Path]:
        """Paths of those files that are there; of a GGUF file itself."""
        if self.gguf is not None:
            return [self.folder / self.gguf]
        return [self.folder / name for name in names if (self.folder / name).is_file()]

    def weights(self) -> list[Path]:
        """The settings and the safetensors of a model.

        Raises: DataError if there is no model, or not all of its weights as safetensors.
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
        """Names of the files of weights, there or not.

        Raises: DataError if there is no model, or an adapter of one.
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
        if not names or not all(map(_is_safetensors, names)):
            raise DataError(f"{index} does not name the safetensors beside it that hold the weights.")
        return sorted(set(names))

    def _instead(self) -> str:
        """Describe what is there instead of weights, with advice."""
        others = sorted(
            file.name for file in self.folder.iterdir() if file.suffix in (*UNSAFE, ".safetensors", ".gguf")
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
        """Whether there is one that can be read."""
        return bool(self.files(("tokenizer.json",)))

    def require_tokenizer(self) -> None:
        """Raises: DataError if there is no tokenizer that can be read."""
        if not any(self.folder.iterdir()):
            raise DataError(f"{self.spec} is an empty folder; expected the tokenizer.json of a pretrained model.")
        if not self.has_tokenizer:
            name = self.spec.removeprefix(HUB).partition("@")[0] if self.spec.startswith(HUB) else self.spec
            raise DataError(
                f"{self.spec} has no tokenizer.json, the one kind of tokenizer that is read. Where transformers has a "
                f'fast tokenizer for it, AutoTokenizer.from_pretrained("{name}").save_pretrained("FOLDER") writes one: '
                "name that folder."
            )

    @contextmanager
    def isolated(self, files: Sequence[Path]) -> Iterator[str]:
        """A temporary folder with links to these files alone: transformers reads whatever else it finds in a folder.

        So nothing is read that the id of an imported model does not cover.
        """
        with TemporaryDirectory(prefix="memlm-") as folder:
            # Links, since weights have gigabytes.
            for file in files:
                Path(folder, file.name).symlink_to(file.resolve())
            yield folder

    def loading(self) -> dict[str, Any]:
        """How transformers is to read it: from these files alone, and never running what it finds there."""
        found: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        return found if self.gguf is None else found | {"gguf_file": self.gguf}


def locate(spec: str, *, weights: bool = True) -> Location:
    """The files that a user names: `FOLDER`, `FILE.gguf` or `hf:NAME[@REVISION]`.

    Args:
        weights: are to be fetched, too; False: a tokenizer is all that is wanted.
    Raises: DataError if they are not there, or want code of their own to be run.
    """
    if spec.startswith(HUB):
        from stages.pretrained.hub import fetch

        name = spec.removeprefix(HUB)
        location = _checked(Location(spec, fetch(name, SETTINGS)))
        if weights:
            fetch(name, location.weight_names(), commit=location.folder.name)
        return location
    path = Path(spec)
    if path.suffix == ".gguf" and path.is_file():
        return Location(spec, path.parent, path.name)
    if path.is_dir():
        return _checked(Location(spec, path))
    raise DataError(f"{spec} does not exist; expected a folder with a model, a .gguf file, or hf:NAME of the hub.")


def is_location(spec: str) -> bool:
    """Whether a name is one of a pretrained tokenizer rather than of a `tokenizer.json` or of an artifact.

    A folder is one, with a tokenizer or without, unless it is an artifact's or is called as one of the store may be.
    """
    path = Path(spec)
    own = (path / "tokenizer.json").is_file() or (path.is_dir() and split_reference(spec) is None)
    return spec.startswith(HUB) or path.suffix == ".gguf" or (own and not (path / "manifest.json").exists())


def location_of(file: Path) -> Location:
    """Where a file lies that `Location` gave."""
    if file.suffix == ".gguf":
        return Location(str(file), file.parent, file.name)
    return Location(str(file.parent), file.parent)


def packing(location: Location) -> str | None:
    """How weights were quantized (gptq, awq), as the settings of a folder say; None: they do not."""
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
    """Raises: DataError if the settings of a folder name code that would have to be run."""
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


def _is_safetensors(name: Any) -> bool:
    """Whether a name is that of safetensors in the same folder: transformers opens pickles where an index has them."""
    return isinstance(name, str) and Path(name).name == name and name.endswith(".safetensors")


def _json_object(file: Path) -> dict[str, Any]:
    """Raises: DataError for a file that holds none."""
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} is no JSON: {error}.") from None
    if not isinstance(found, dict):
        raise DataError(f"{file} holds no settings.")
    return found
