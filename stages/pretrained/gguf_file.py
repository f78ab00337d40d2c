"""Whether a GGUF file is whole, where reading it failed: its readers give errors of arrays."""

from pathlib import Path

MAGIC = b"GGUF"


def damage(file: Path) -> str | None:
    """What is wrong with the file itself, as a sentence goes on after its name; None: nothing that shows."""
    with file.open("rb") as opened:
        if opened.read(len(MAGIC)) != MAGIC:
            return f"is no GGUF file: it does not begin with the letters {MAGIC.decode()}."
    if _is_whole(file):
        return None
    return (
        f"is cut short or damaged: its {file.stat().st_size:,} bytes are not what it says that it holds. Download or "
        "copy it again, and compare its size with that of the original."
    )


def _is_whole(file: Path) -> bool:
    """Whether all that the head of a file lists lies in it; the weights themselves are not read."""
    from gguf import GGUFReader

    try:
        GGUFReader(file)
    except Exception:  # of arrays, of text, of numbers: whatever the bytes happen to mean
        return False
    return True
