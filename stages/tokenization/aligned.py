"""Pairs of sentences: the files of each split, their pairs, and warnings about them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from stages.artifacts.stage import InputFile, Inputs
from stages.errors import DataError, UsageError
from stages.reporting import Reporter
from stages.text.config import TEXT, TokenizeConfig
from stages.text.documents import (
    ENDS_DOCUMENT,
    ENDS_LINE,
    OPENS_DOCUMENT,
    OPENS_PARAGRAPH,
    MarkedPiece,
)
from stages.text.files import (
    COMPRESSED,
    LINES,
    file_digest,
    pieces,
    text_blocks,
    without_compression,
)
from stages.text.records import TextFile, json_line, numbered_lines, require_unicode
from stages.text.tokens import SPLITS
from stages.tokenization.corpora import given_specs
from stages.tokenization.hub import is_data_set

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")
TRANSLATION = "translation"
"""Field of a record that may hold both sentences under their languages."""
MAX_CHARACTERS = 2**20
"""Maximum number of characters of a sentence. A longer line is rather a file without line breaks."""


class AlignedFiles(NamedTuple):
    """Two files whose lines form pairs; or one `.jsonl` file twice, each time with the field of one
    language.
    """

    source: TextFile
    target: TextFile


Pair = tuple[int, str, str]
"""Number of a line, from 1, and the text of both sides there, without its end."""


@dataclass
class Pairs:
    """Pairs of some files, with counts of the pairs left out, valid once all have been read."""

    files: Sequence[AlignedFiles]
    scored: bool
    """Whether the pairs are scored. If so, a pair that lacks one side is an error; otherwise it is
    left out.
    """
    kept: int = 0
    dropped: int = 0
    """Number of pairs left out because one or both sides are blank."""
    alike: int = 0
    """Number of pairs with the same text on both sides."""

    def pieces(self, side: Side) -> Iterator[MarkedPiece]:
        """One side, each sentence as a document of one paragraph, without a newline or CR at its
        end.

        Raises: DataError, naming file and line, if the files differ in length, or a line cannot be
        read.
        """
        self.kept = self.dropped = self.alike = 0
        for files in self.files:
            name: str | None = getattr(files, side).path.rpartition("/")[2]
            for _, source, target in self._pairs(files):
                for piece in _marked(target if side == "target" else source):
                    yield piece._replace(name=name)
                    name = None

    def _pairs(self, files: AlignedFiles) -> Iterator[Pair]:
        """The pairs with text on both sides; all are counted."""
        for number, source, target in (
            _records(files) if files.source.format == "jsonl" else _lines(files)
        ):
            for file, sentence in zip(files, (source, target), strict=True):
                if len(sentence) > MAX_CHARACTERS:
                    raise DataError(
                        f"{file.path}, line {number}: {len(sentence):,} characters, and a sentence has at most "
                        f"{MAX_CHARACTERS:,}. Put one sentence in each line, or remove the pair from both files."
                    )
            blank = [not line.strip() for line in (source, target)]
            if any(blank):
                if self.scored and not all(blank):
                    place = f"{files[blank.index(True)].path}, line {number}"
                    raise DataError(
                        f"{place}: there is no text, but its partner has some. A score must cover all pairs: mend or "
                        "remove the line in both files."
                    )
                self.dropped += 1
                continue
            self.kept += 1
            self.alike += source == target
            yield number, source, target


def _lines(files: AlignedFiles) -> Iterator[Pair]:
    """All pairs of two files. Raises: DataError if one has fewer lines."""
    num_sources = 0
    num_targets = 0
    sources = _sentences(files.source)
    targets = _sentences(files.target)
    # None once a file has ended
    for source, target in zip_longest(sources, targets):
        num_sources += source is not None
        num_targets += target is not None
        if source is not None and target is not None:
            yield num_sources, source, target

    if num_sources != num_targets:
        longer = files.source if num_sources > num_targets else files.target
        first_alone = min(num_sources, num_targets) + 1
        raise DataError(
            f"{files.source.path} {num_sources:,} lines and {files.target.path} {num_targets:,} lines: they must be "
            f"equal. Line {first_alone:,} of {longer.path} has no partner."
        )


def _sentences(file: TextFile) -> Iterator[str]:
    r"""The lines of a file; only `\n` ends a line, with an optional `\r` before it."""
    sentence: str | None = None
    for _, line in numbered_lines(text_blocks(file.path, file.digest), file):
        if sentence is not None:
            yield sentence
        sentence = line.removesuffix("\r")
    if sentence:  # no line follows the last newline
        yield sentence


def _records(files: AlignedFiles) -> Iterator[Pair]:
    """The pairs of a `.jsonl` file; the sentences are fields of a record, or of its field
    `translation`.
    """
    file = files.source
    for number, line in numbered_lines(text_blocks(file.path, file.digest), file):
        if line and not line.isspace():
            where = f"{file.path}, line {number}"
            record = json_line(where, line, "with the sentences of both languages")
            below = record.get(TRANSLATION)
            fields = below if isinstance(below, dict) else record
            yield (
                number,
                _field(where, fields, files.source.column),
                _field(where, fields, files.target.column),
            )


def _field(where: str, record: Mapping[str, Any], field: str) -> str:
    text = record.get(field)
    if not isinstance(text, str) or "\n" in text:
        raise DataError(
            f'{where}: expected a JSON object with a field "{field}" that is a string of one line.'
        )
    require_unicode(where, text)
    return text


def _marked(sentence: str) -> Iterator[MarkedPiece]:
    parts = [piece.text for piece in pieces([sentence])]
    for number, text in enumerate(parts):
        opens = OPENS_DOCUMENT | OPENS_PARAGRAPH if number == 0 else 0
        ends = ENDS_LINE | ENDS_DOCUMENT if number == len(parts) - 1 else 0
        yield MarkedPiece(text, opens | ends)


TYPES = 8192
"""Default number of types of a joint bpe vocabulary of two languages."""
FEWEST = 2
"""Fewest occurrences of a word that is not `<unk>`. Rarer words let the model learn `<unk>`."""
LEARNED = "train"
ALIKE = 0.5
"""Share of pairs with the same text on both sides above which one file was probably given twice."""


def aligned_inputs(config: TokenizeConfig, references: Mapping[str, Any]) -> list[InputFile]:
    """The files of every split, source before target. Roles name the side, and the field of a
    .jsonl.

    Raises: UsageError for files given without a split; DataError, naming the expected file, if one
    is missing.
    """
    splits = given_specs(config, references)
    if not splits.keys() <= set(SPLITS):
        raise UsageError(
            "Aligned text is named by split: --train PREFIX, --valid PREFIX, --test PREFIX."
        )
    languages = config.source_language, config.target_language
    inputs = []
    for split, specs in splits.items():
        for spec in specs:
            for side, language in zip(SIDES, languages, strict=True):
                assert language is not None
                path, field = _side(spec, language)
                inputs.append(InputFile(f"{split}.{side}{field}", path, file_digest(path)))
    return inputs


def _side(spec: str, language: str) -> tuple[str, str]:
    """The file of a language, and the field that holds it, as the end of a role."""
    if is_data_set(spec):
        raise UsageError(
            f"{spec}: aligned text is read from files; data sets of the hub are not read as pairs yet."
        )
    if without_compression(spec).endswith(LINES):
        if not Path(spec).is_file():
            raise DataError(f"{spec} does not exist; expected a .jsonl of pairs.")
        return spec, f".{language}"
    names = [f"{spec}.{language}{ending}" for ending in ("", *COMPRESSED)]
    there = [name for name in names if Path(name).is_file()]
    if len(there) == 1:
        return there[0], ""
    if there:
        raise DataError(
            f"{' and '.join(there)} are both there: which one is meant? Remove or rename one."
        )
    folder = Path(spec).parent
    name = Path(spec).name
    neighbors = sorted(path.name for path in folder.glob(f"{name}.*")) if name else []
    raise DataError(
        f"{names[0]} does not exist, nor with {', '.join(COMPRESSED)}; beside this prefix there "
        f"{'is ' + ', '.join(neighbors[:8]) if neighbors else 'is nothing'}. A split is named by what stands before "
        f".{language}: data/train for data/train.{language}."
    )


def aligned_text(inputs: Inputs, config: TokenizeConfig) -> dict[str, Pairs]:
    """The pairs of every given split."""
    # sources and targets
    files_of_split: dict[str, tuple[list[TextFile], list[TextFile]]] = {}
    for file in inputs.files:
        # SPLIT.SIDE of a plain text, SPLIT.SIDE.FIELD of records
        split, side, *fields = file.role.split(".", 2)
        if split in SPLITS:
            field = fields[0] if fields else TEXT
            format = "txt" if field == TEXT else "jsonl"
            text = TextFile(file.path, format, file.digest, config.max_record_bytes, field)  # type: ignore[arg-type]
            sources, targets = files_of_split.setdefault(split, ([], []))
            files_of_side = targets if side == "target" else sources
            files_of_side.append(text)

    pairs = {}
    for split, (sources, targets) in files_of_split.items():
        files = list(map(AlignedFiles, sources, targets))
        pairs[split] = Pairs(files, scored=split != LEARNED)
    return pairs


def report_pairs(split: str, pairs: Pairs, reporter: Reporter) -> None:
    """Warn of omitted pairs, and of equal sides. Raises: DataError if no pair is left."""
    if not pairs.kept:
        raise DataError(f"The files of {split} hold no pair with text on both sides.")
    if pairs.dropped:
        reporter.warning(
            f"pairs of {split} are left out because a side is blank, or both: {pairs.dropped:,}"
        )
    if pairs.alike > ALIKE * pairs.kept:
        reporter.warning(
            f"same text on both sides in {pairs.alike:,} of {pairs.kept:,} pairs of {split}: is one file named twice?"
        )
