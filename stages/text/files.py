"""Text files: formats by file name, digests, and text in blocks and lines of bounded size.

Compressed files are read like plain ones. The corpus that every CPython ships counts as a file.
"""

import codecs
import hashlib
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import zstandard

from stages.errors import DataError, UsageError

PYDOCS = "builtin:pydocs"
"""The documentation topics that every CPython ships: real text without a download."""
COMPRESSED = (".gz", ".xz", ".zst")
PROSE = (".txt", ".md", ".rst")
LINES = ".jsonl"
PARQUET = ".parquet"
ARROW = ".arrow"

Format = Literal["txt", "jsonl", "parquet", "arrow", "csv", "tsv", "pydocs"]
COLUMNAR = ("parquet", "arrow", "csv", "tsv")
WITH_COLUMNS = (*COLUMNAR, "jsonl")
"""Formats of tables; and all formats whose columns or fields have names."""


def is_usable(path: Path) -> bool:
    """Whether a file's name has an ending of text files, and no part of its path is hidden."""
    lines = without_compression(path.name).endswith((*PROSE, LINES))
    return not is_hidden(path) and (lines or path.name.endswith((PARQUET, ARROW)))


def is_hidden(path: Path) -> bool:
    """Whether a part of a path begins with a dot."""
    return any(part.startswith(".") for part in path.parts)


def without_compression(name: str) -> str:
    """A file's name without `.gz`, `.xz` or `.zst`."""
    return name[: -len(compression(name))] if compression(name) else name


def compression(name: str) -> str:
    """`.gz`, `.xz` or `.zst` if the name ends so, else an empty string."""
    return next((suffix for suffix in COMPRESSED if name.endswith(suffix)), "")


def format_of(path: str) -> Format:
    """Format of a file, by its name."""
    if path == PYDOCS:
        return "pydocs"
    tables: dict[str, Format] = {PARQUET: "parquet", ARROW: "arrow"}
    table = tables.get(Path(path).suffix)
    if table is not None:
        return table
    lines: dict[str, Format] = {".csv": "csv", ".tsv": "tsv", LINES: "jsonl"}
    return lines.get(Path(without_compression(path)).suffix.lower(), "txt")


def require_columns(formats: Iterable[str]) -> None:
    """Raises: UsageError for a column that is named, where no format of the text has any."""
    if not any(format in WITH_COLUMNS for format in formats):
        raise UsageError(
            "--column is for Parquet, Arrow, CSV, TSV and .jsonl, none of which is named."
        )


def file_digest(path: str) -> str:
    """BLAKE2b of a file's bytes, or of the text of the built-in corpus."""
    if path == PYDOCS:
        return text_digest(pydoc_topics().values())
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error


def pydoc_topics() -> dict[str, str]:
    """The text of each documentation topic by its name, in alphabetical order."""
    from pydoc_data.topics import topics

    return dict(sorted(topics.items()))


def text_digest(texts: Iterable[str]) -> str:
    """BLAKE2b of a list of texts, boundaries included."""
    digest = hashlib.blake2b()
    for text in texts:
        data = text.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


RAW_BLOCK = 2**18
COMPRESSED_BLOCK = 2**10
"""Bytes fed to a decompressor at once. Few, because repetitive text expands thousands of times."""
NEWLINE = b"\n"
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
NO_TEXT = {
    b"%PDF-": "a PDF",
    b"PK\x03\x04": "a zip, Word or EPUB file",
    **dict.fromkeys((b"\x89PNG", b"\xff\xd8\xff", b"GIF8"), "a picture"),
    b"\x1f\x8b": "a gzip file (call it .gz)",
    b"\xfd7zXZ\0": "an xz file (call it .xz)",
    b"\x28\xb5\x2f\xfd": "a zstd file (call it .zst)",
    b"BZh": "a bzip2 file (bunzip2 unpacks it)",
    b"\x5d\0\0": "an lzma file (unlzma unpacks it)",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"PAR1": "a Parquet file (call it .parquet)",
    b"ARROW1": "an Arrow or Feather file (call it .arrow)",
    b"FEA1": "a Feather file of version 1",
    b"\x7fELF": "a program",
}
"""Formats of books, and of files often found next to them, by their first bytes."""
TAR_MARK = b"ustar"
TAR_MARK_AT = 257
"""Bytes of a tar archive, and the place where they are."""
ARCHIVES = (".tgz", ".tar.gz", ".txz", ".tar.xz", ".tar.zst")
LARGEST_WINDOW = 2**31
"""Largest window of a `.zst` file in bytes, as `zstd --long=31` writes it."""
UTF32_MARKS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)


_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(wbits=31),
    ".xz": lzma.LZMADecompressor,
    ".zst": lambda: zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW).decompressobj(),
}


def text_blocks(path: str, digest: str) -> Iterator[str]:
    """The text of a UTF-8 file, `.gz`, `.xz` or `.zst` included, in blocks of no particular size.

    A byte order mark at the beginning is skipped.

    Args:
        path: the file.
        digest: BLAKE2b that its bytes must have, see `files.file_digest`.
    Raises: DataError naming the file and byte offset if it is truncated, corrupt, binary, not
        UTF-8, or does not match `digest`.
    """
    raw = _raw_blocks(path, digest)
    suffix = compression(path)
    return _decoded(path, _decompressed(path, suffix, raw) if suffix else raw)


def _raw_blocks(path: str, digest: str) -> Iterator[bytes]:
    hasher = hashlib.blake2b()
    size = COMPRESSED_BLOCK if compression(path) else RAW_BLOCK
    try:
        with Path(path).open("rb") as file:
            while block := file.read(size):
                hasher.update(block)
                yield block
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    # Checked after reading: hashing before would read the file twice, and it could change in
    # between.
    if hasher.hexdigest() != digest:
        raise DataError(f"{path} changed while it was being read; run the same command again.")


def _decompressed(path: str, suffix: str, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress members one after the other, padded with zeros or not, as the command line tools
    do.
    """
    decompressor = _DECOMPRESSORS[suffix]()
    read = 0
    for block in blocks:
        read = read + len(block)
        rest = block
        while rest := rest.lstrip(b"\0") if decompressor.eof else rest:
            if decompressor.eof:
                decompressor = _DECOMPRESSORS[suffix]()
            try:
                data = decompressor.decompress(rest)
            except (zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
                raise DataError(
                    f"{path} is no intact {suffix} file: {error}, before byte {read}."
                ) from error
            yield from (data[start : start + RAW_BLOCK] for start in range(0, len(data), RAW_BLOCK))
            rest = decompressor.unused_data if decompressor.eof else b""
    if read and not decompressor.eof:
        raise DataError(
            f"{path} is truncated: it ends at byte {read}, before the end of its {suffix} stream."
        )


def _decoded(path: str, blocks: Iterator[bytes]) -> Iterator[str]:
    """The text of blocks of UTF-8. Raises: DataError, with the place, for anything else."""
    # the bytes of a character that the next block ends
    undecoded = b""
    offset = 0
    line = 1
    for block in chain(blocks, [None]):
        data = undecoded + (block or b"")
        if offset == 0 and data.startswith(UTF16_MARKS + UTF32_MARKS):
            # The mark of UTF-32 in little endian begins with that of UTF-16.
            encoding = "UTF-32" if data.startswith(UTF32_MARKS) else "UTF-16"
            raise DataError(
                f"{path} is {encoding}: it begins with its byte order mark{_where(path)}; convert it to UTF-8 "
                f"first, as iconv -f {encoding} -t UTF-8 does."
            )
        # Before decoding: these bytes may be valid UTF-8, and if not, an error "not UTF-8" would
        # not help.
        _refuse_books(path, data, offset)
        _refuse_nul(path, data, offset)
        try:
            text, used = codecs.utf_8_decode(data, "strict", block is None)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path} is not UTF-8 at byte {offset + error.start}{_where(path)}: {error.reason}, in line "
                f"{line + data.count(NEWLINE, 0, error.start)}; {_conversion(data[error.start :])}."
            ) from error
        if offset == 0:
            text = text.removeprefix("\ufeff")
        undecoded = data[used:]
        offset = offset + used
        line = line + data.count(NEWLINE, 0, used)
        if text:
            yield text


def _refuse_books(path: str, data: bytes, offset: int) -> None:
    """Refuse books that are not plain text, which users often give: part of a PDF may be valid
    UTF-8.
    """
    if offset == 0:
        kind = next((kind for mark, kind in NO_TEXT.items() if data.startswith(mark)), None)
        tar = data[TAR_MARK_AT:].startswith(TAR_MARK)
        if tar or (kind is not None and path.endswith(ARCHIVES)):
            raise DataError(f"{path} is a tar archive, not plain text; unpack it first (tar xf).")
        if kind is not None:
            raise DataError(
                f"{path} is {kind}, not plain text{_where(path)}; save it as a text file (UTF-8) first."
            )


def _conversion(wrong: bytes) -> str:
    """Advice for bytes that are not UTF-8."""
    # Half of a surrogate pair in three bytes: two of them stand for one character.
    if wrong[:1] == b"\xed" and wrong[1:2] >= b"\xa0":
        return (
            "it looks like CESU-8, as databases and Java write it; convert it to UTF-8 first, in Python by "
            "decode('utf-8', 'surrogatepass').encode('utf-16', 'surrogatepass').decode('utf-16')"
        )
    return "convert it to UTF-8 first, as iconv -f LATIN1 -t UTF-8 does for text of Western Europe"


def _refuse_nul(path: str, data: bytes, offset: int) -> None:
    position = data.find(b"\0")
    if position >= 0:
        raise DataError(
            f"{path} looks binary: it has a zero byte (NUL) at byte {offset + position}{_where(path)}; expected "
            "plain text in UTF-8."
        )


def _where(path: str) -> str:
    return " of its decompressed text" if compression(path) else ""


LONGEST_PIECE = 65_536
"""Maximum characters of a piece; longer lines are cut."""


class Piece(NamedTuple):
    """A line with its newline, or a part of one."""

    text: str
    starts_line: bool
    ends_line: bool

    @property
    def is_blank(self) -> bool:
        """Whether this is a whole line of white space."""
        return self.starts_line and self.ends_line and self.text.isspace()


def pieces(blocks: Iterable[str]) -> Iterator[Piece]:
    """Cut text into lines, at "\\n" alone, and long lines at white space.

    The pieces depend on the text, not on its division into blocks. Joined, they give exactly the
    text.
    """
    rest = ""
    starts_line = True
    for block in blocks:
        first, *others = block.split("\n")
        rest += first
        for line in others:
            if len(rest) < LONGEST_PIECE:
                yield Piece(rest + "\n", starts_line, True)
            else:
                yield from _ended(rest + "\n", starts_line)
            rest = line
            starts_line = True
        start = 0
        for cut in _cuts(rest, len(rest)):
            yield Piece(rest[start:cut], starts_line, False)
            start = cut
            starts_line = False
        rest = rest[start:]
    if rest:
        yield from _ended(rest, starts_line)


def _ended(line: str, starts_line: bool) -> Iterator[Piece]:
    if len(line) <= LONGEST_PIECE:
        yield Piece(line, starts_line, True)
        return
    start = 0
    for cut in _cuts(line, len(line) - line.endswith("\n")):
        yield Piece(line[start:cut], starts_line, False)
        start = cut
        starts_line = False
    yield Piece(line[start:], starts_line, True)


def _cuts(line: str, length: int) -> Iterator[int]:
    """Places to cut a line while its remainder is too long: each before the last single space
    within `length`.

    A byte-level tokenizer begins a new word there anyway, so the cut does not change the ids.
    Without a single space, which no language's text lacks, the cut comes after LONGEST_PIECE
    characters.
    """
    start = 0
    while length - start > LONGEST_PIECE:
        space = line.rfind(" ", start + 1, start + LONGEST_PIECE)
        # -1: there is none
        while space > 0 and _has_space_beside(line, space):
            space = line.rfind(" ", start + 1, space)
        start = space if space > 0 else start + LONGEST_PIECE
        yield start


def _has_space_beside(line: str, place: int) -> bool:
    """Whether white space is before or behind a place."""
    return line[place - 1].isspace() or line[place + 1].isspace()
