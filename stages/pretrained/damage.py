"""Finds damage in the files of a model that could not be read: their readers give errors of arrays and bytes."""

from pathlib import Path

from stages.pretrained.location import Location

MAGIC = b"GGUF"


def damage(location: Location) -> str | None:
    """Describe the damage of a file of weights, as a sentence; None: none that shows."""
    if location.gguf is None:
        files = sorted(location.folder.glob("*.safetensors"))
        return next((_cut_short(str(file), file) for file in files if not _safetensors_whole(file)), None)
    file = location.folder / location.gguf
    with file.open("rb") as opened:
        if opened.read(len(MAGIC)) != MAGIC:
            return f"{location.spec} is no GGUF file: it does not begin with the letters {MAGIC.decode()}."
    return None if _gguf_whole(file) else _cut_short(location.spec, file)


def _cut_short(name: str, file: Path) -> str:
    return (
        f"{name} is cut short or damaged: its {file.stat().st_size:,} bytes are not what it says that it holds. "
        "Download or copy it again, and compare its size with that of the original."
    )


def _safetensors_whole(file: Path) -> bool:
    """Whether all that the head of a file lists lies in it; the weights themselves are not read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt"):
            return True
    except (OSError, SafetensorError):
        return False


def _gguf_whole(file: Path) -> bool:
    """As above."""
    from gguf import GGUFReader

    try:
        GGUFReader(file)
    except Exception:  # of arrays, of text, of numbers: whatever the bytes happen to mean
        return False
    return True
