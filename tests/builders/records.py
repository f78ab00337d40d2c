"""Files of records."""

from pathlib import Path

from stages.text.files import file_digest, format_of
from stages.text.records import TextFile


def text_file(path: Path | str) -> TextFile:
    return TextFile(str(path), format_of(str(path)), file_digest(str(path)))
