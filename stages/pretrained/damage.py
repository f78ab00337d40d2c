"""Reading what others wrote: without the words of transformers, and with what files cannot hold found beforehand."""

import mmap
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from stages.errors import DataError, MemlmError
from stages.pretrained.hub import require_extra
from stages.pretrained.location import Location, packing

MAGIC = b"GGUF"
GGUF_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value by its type; 8 is a text, 9 an array."""
GGUF_TEXT, GGUF_ARRAY = 8, 9
SIZES = (
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("hidden_size", "intermediate_size", "vocab_size", "num_experts", "num_local_experts"),
    *("encoder_layers", "encoder_attention_heads", "encoder_ffn_dim", "d_ff", "d_kv"),
    *("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim", "num_decoder_layers"),
)
"""Settings of transformers, by the names that its models know, of which none can be negative."""
LAYERS = ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_decoder_layers")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
WEIGHTS_A_BYTE = 8
"""More than any quantization packs into one."""


def damage(location: Location) -> str | None:
    """Describe the damage of a file of weights behind its head, as a sentence; None: none that shows."""
    if location.gguf is None:
        files = sorted(location.folder.glob("*.safetensors"))
        return next((_cut_short(str(file), file) for file in files if _safetensors_weights(file) is None), None)
    file = location.folder / location.gguf
    return None if _gguf_whole(file) else _cut_short(location.spec, file)


def head_damage(location: Location) -> str | None:
    """The damage that the head of a GGUF file shows: one that counts more than the file has bytes is never read."""
    if location.gguf is None:
        return None
    file = location.folder / location.gguf
    with file.open("rb") as opened:
        if opened.read(len(MAGIC)) != MAGIC:
            return f"{location.spec} is no GGUF file: it does not begin with the letters {MAGIC.decode()}."
    return None if _gguf_weights(file) is not None else _cut_short(location.spec, file)


def require_sizes(location: Location, settings: Any) -> None:
    """Raises: DataError for settings of sizes that are none, or for more layers than the files hold weights.

    A model is built, without its numbers, before its weights are read: one of a million layers takes hours.
    """
    for name in SIZES:
        value = getattr(settings, name, None)
        if isinstance(value, int) and value < 0:
            raise DataError(f"{location.spec} cannot be a model: its settings have {name} = {value}.")
    held = _weights(location)
    for what, names in (("layers", LAYERS), ("experts", EXPERTS)):
        value = max((value for name in names if isinstance(value := getattr(settings, name, None), int)), default=0)
        if held is not None and value > held:
            raise DataError(
                f"{location.spec} holds {held:,} weights, and its settings ask for {value:,} {what}: they are those of "
                "another model, or changed."
            )


def require_parameters(location: Location, parameters: int) -> None:
    """Raises: DataError for a model that is larger than its files can be, however they are packed."""
    held = sum(file.stat().st_size for file in location.weights())
    if parameters > WEIGHTS_A_BYTE * held:
        raise DataError(
            damage(location)
            or f"{location.spec} has files of {held:,} bytes, and its settings ask for {parameters:,} weights: they "
            "are those of another model, or changed."
        )


def _weights(location: Location) -> int | None:
    """Number of arrays that the files hold; None where a file is damaged, which its reader finds."""
    if location.gguf is not None:
        return _gguf_weights(location.folder / location.gguf)
    counts = [_safetensors_weights(file) for file in location.weights() if file.suffix == ".safetensors"]
    return None if None in counts else sum(count or 0 for count in counts)


def _cut_short(name: str, file: Path) -> str:
    return (
        f"{name} is cut short or damaged: its {file.stat().st_size:,} bytes are not what it says that it holds. "
        "Download or copy it again, and compare its size with that of the original."
    )


def _safetensors_weights(file: Path) -> int | None:
    """Number of arrays in a file; None where not all that its head lists lies in it."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt") as opened:
            return len(opened.keys())
    except (OSError, SafetensorError):
        return None


def _gguf_weights(file: Path) -> int | None:
    """The number of arrays that the head of a GGUF file counts; None where the file cannot hold what is counted."""
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            order = "<" if content[4:6] != b"\0\0" else ">"  # the version is small, in the writer's order of bytes
            arrays, settings = struct.unpack_from(f"{order}QQ", content, 8)
            place, number = 24, lambda at: int(struct.unpack_from(f"{order}Q", content, at)[0])
            for _ in range(settings):
                place += 8 + number(place)
                kind = struct.unpack_from(f"{order}I", content, place)[0]
                place = _behind(content, order, kind, place + 4, number)
            left = len(content) - place
            return arrays if 0 <= arrays * 24 <= left else None  # a name, its shape, a type and a place each
    except (OSError, ValueError, KeyError, struct.error, RecursionError):
        return None


def _behind(content: mmap.mmap, order: str, kind: int, place: int, number: Callable[[int], int]) -> int:
    """The place behind a value. Raises: struct.error if it does not lie in the file."""
    if kind == GGUF_TEXT:
        return place + 8 + number(place)
    if kind != GGUF_ARRAY:
        return place + GGUF_BYTES[kind]
    kind, count, place = struct.unpack_from(f"{order}I", content, place)[0], number(place + 4), place + 12
    if kind in GGUF_BYTES:
        return place + count * GGUF_BYTES[kind]
    for _ in range(count):
        place = _behind(content, order, kind, place, number)
    return place


def _gguf_whole(file: Path) -> bool:
    """Whether all arrays that the head of a GGUF file names lie in it."""
    from gguf import GGUFReader

    try:
        GGUFReader(file)
    except Exception:  # of arrays, of text, of numbers: whatever the bytes happen to mean
        return False
    return True


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the bars and warnings of transformers. Raises: UsageError without the extra."""
    require_extra()
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with redirect_stderr(StringIO()):  # bars that cannot be switched off
        yield


@contextmanager
def reading(location: Location, what: str) -> Iterator[None]:
    """Reading what somebody else wrote with transformers, which raises whatever it likes.

    Args:
        what: is read, as a message names it: "model".
    Raises: UsageError without the extra; DataError for what cannot be read: that a file of weights is cut short, else
        the library's own first line.
    """
    # before any reader: that of gguf finds no end of a list of numbers that is longer than the file
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
        raise DataError(f"The {what} of {location.spec} cannot be read: {reason} (pip install 'memlm[hf]')") from error
    except Exception as error:
        if (wrong := damage(location)) is not None:
            raise DataError(wrong) from error
        raise DataError(f"The {what} of {location.spec} cannot be read: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """The first line of a library's error, and the second where the first only announces it."""
    lines = (str(error).strip() or type(error).__name__).splitlines()
    return " ".join(line.strip() for line in lines[: 2 if lines[0].endswith(":") else 1])[:300]
