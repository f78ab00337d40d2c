"""Guards for reading files of others: silences transformers, and finds damaged or impossible files
beforehand.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from stages.errors import DataError, MemlmError
from stages.pretrained.location import Location, packing, require_extra

MAGIC = b"GGUF"
GGUF_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value by its type. Type 8 is a text, after 8 bytes of its length; 9 is an array."""
GGUF_TEXT = 8
GGUF_ARRAY = 9
GGUF_ARRAY_BYTES = 24
"""Fewest bytes that describe an array of weights."""
SIZES = (
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("hidden_size", "intermediate_size", "vocab_size", "num_experts", "num_local_experts"),
    *("encoder_layers", "encoder_attention_heads", "encoder_ffn_dim", "d_ff", "d_kv"),
    *("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim", "num_decoder_layers"),
)
"""Settings of models in transformers that cannot be negative."""
LAYERS = ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_decoder_layers")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
WEIGHTS_A_BYTE = 8
"""Upper limit of the weights that any quantization packs into a byte."""


def damage(location: Location) -> str | None:
    """Describe damage in a file of weights after its header, as a sentence; None: no visible
    damage.
    """
    if location.gguf is None:
        files = sorted(location.folder.glob("*.safetensors"))
        return next(
            (_cut_short(str(file), file) for file in files if _safetensors_weights(file) is None),
            None,
        )
    from gguf import GGUFReader

    file = location.folder / location.gguf
    try:
        GGUFReader(file)
    except Exception:  # damaged bytes may raise any error of arrays, text or numbers
        return _cut_short(location.spec, file)
    return None


def head_damage(location: Location) -> str | None:
    """Describe damage in the header of a GGUF file. A file is not read if its header counts more
    than its bytes can hold."""
    if location.gguf is None:
        return None
    file = location.folder / location.gguf
    with file.open("rb") as opened:
        if opened.read(len(MAGIC)) != MAGIC:
            return f"{location.spec} is no GGUF file: it does not begin with the letters {MAGIC.decode()}."
    return None if _gguf_weights(file) is not None else _cut_short(location.spec, file)


def require_sizes(location: Location, settings: Any) -> None:
    """Raises: DataError for sizes in settings that are invalid, or that the files cannot hold.

    A model is built without weights before these are read: one of a million layers takes hours.
    """
    size = _weight_bytes(location)
    for name in SIZES:
        value = setting(settings, name)
        if isinstance(value, int) and value < 0:
            raise DataError(
                f"{location.spec} cannot be a model: its settings have {name} = {value}."
            )
        # Each of these sizes is that of a tensor at least.
        if isinstance(value, int) and value > WEIGHTS_A_BYTE * size:
            raise DataError(
                damage(location)
                or f"{location.spec} has files of {size:,} bytes, and its settings have {name} = {value:,}: they are "
                "those of another model, or changed."
            )
    weights = _weights(location)
    for what, names in (("layers", LAYERS), ("experts", EXPERTS)):
        values = [setting(settings, name) for name in names]
        value = max((value for value in values if isinstance(value, int)), default=0)
        if weights is not None and value > weights:
            raise DataError(
                f"{location.spec} holds {weights:,} weights, and its settings ask for {value:,} {what}: they are those of "
                "another model, or changed."
            )


def require_parameters(location: Location, parameters: int) -> None:
    """Check that files can hold a model of this size, even quantized. Raises: DataError."""
    stored_bytes = _weight_bytes(location)
    if parameters > WEIGHTS_A_BYTE * stored_bytes:
        raise DataError(
            damage(location)
            or f"{location.spec} has files of {stored_bytes:,} bytes, and its settings ask for {parameters:,} weights: they "
            "are those of another model, or changed."
        )


def setting(settings: Any, name: str) -> Any:
    """Value of a setting of transformers; None if a family has none, or another in each layer."""
    try:
        return getattr(settings, name, None)
    except RuntimeError:  # raised for a setting that differs between layers
        return None


def _weight_bytes(location: Location) -> int:
    return sum(file.stat().st_size for file in location.weights())


def _weights(location: Location) -> int | None:
    """Number of arrays in the files; None if a file is damaged, which its reader reports."""
    if location.gguf is not None:
        return _gguf_weights(location.folder / location.gguf)
    counts = [
        _safetensors_weights(file) for file in location.weights() if file.suffix == ".safetensors"
    ]
    return None if None in counts else sum(count or 0 for count in counts)


def _cut_short(name: str, file: Path) -> str:
    return (
        f"{name} is cut short or damaged: its {file.stat().st_size:,} bytes are not what it says that it holds. "
        "Download or copy it again, and compare its size with that of the original."
    )


def _safetensors_weights(file: Path) -> int | None:
    """Number of arrays in a file; None if the file lacks part of those in its header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt") as opened:
            return len(opened.keys())
    except (OSError, SafetensorError):
        return None


def _gguf_weights(file: Path) -> int | None:
    """Number of arrays by the header of a GGUF file; None if the file is too small for it."""
    try:
        with (
            file.open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            return _GgufHeader(content).arrays()
    except (OSError, ValueError, KeyError, EOFError, RecursionError):
        return None


class _GgufHeader:
    """Settings of a GGUF file, which are passed over value by value."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content = content
        # The version is a small number, which shows the byte order.
        self.order: Literal["little", "big"] = "little" if content[4:6] != b"\0\0" else "big"

    def arrays(self) -> int | None:
        """Number of arrays; None if the file is too small for their descriptions.

        Raises: EOFError if a setting does not end within the file; KeyError for an unknown type.
        """
        arrays = self._number(8, 8)
        settings = self._number(16, 8)
        place = 24
        for _ in range(settings):
            place = self._behind_text(place)
            kind = self._number(place, 4)
            place = self._behind_value(kind, place + 4)
        fitting = (len(self.content) - place) // GGUF_ARRAY_BYTES
        return arrays if arrays <= fitting else None

    def _number(self, place: int, size: int) -> int:
        if place + size > len(self.content):
            raise EOFError
        return int.from_bytes(self.content[place : place + size], self.order)

    def _behind_text(self, place: int) -> int:
        return place + 8 + self._number(place, 8)

    def _behind_value(self, kind: int, place: int) -> int:
        if kind == GGUF_TEXT:
            return self._behind_text(place)
        if kind != GGUF_ARRAY:
            return place + GGUF_BYTES[kind]
        element = self._number(place, 4)
        count = self._number(place + 4, 8)
        place += 12
        if element in GGUF_BYTES:
            return place + count * GGUF_BYTES[element]
        for _ in range(count):
            place = self._behind_value(element, place)
        return place


@contextmanager
def quiet() -> Iterator[None]:
    """Silence progress bars and warnings of transformers. Raises: UsageError without the extra."""
    require_extra()
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with redirect_stderr(StringIO()):  # some bars cannot be switched off
        yield


@contextmanager
def reading(location: Location, what: str) -> Iterator[None]:
    """Read foreign files with transformers, which may raise any exception.

    Args:
        what: name in messages for what is read, such as "model".
    Raises: UsageError without the extra; DataError for files that cannot be read. The message says
        that weights are cut short, or quotes the library's first line.
    """
    # before any reader: that of gguf never ends on a list of numbers longer than the file
    if (wrong := head_damage(location)) is not None:
        raise DataError(wrong)
    try:
        with quiet():
            yield
    except (MemlmError, MemoryError):
        raise
    except ImportError as error:
        if (packed := packing(location)) is not None:
            raise DataError(
                f"The weights of {location.spec} are quantized ({packed}), which needs packages that memlm does not "
                "use: import the model that it was made of, or a GGUF file of it."
            ) from error
        reason = _first_line(error)
        raise DataError(
            f"The {what} of {location.spec} cannot be read: {reason} (pip install 'memlm[hf]')"
        ) from error
    except Exception as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):
            raise
        if (wrong := damage(location)) is not None:
            raise DataError(wrong) from error
        raise DataError(
            f"The {what} of {location.spec} cannot be read: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    """The first line of a library's error, with the second if the first only announces it."""
    lines = (str(error).strip() or type(error).__name__).splitlines()
    return " ".join(line.strip() for line in lines[: 2 if lines[0].endswith(":") else 1])[:300]
