"""Pairs of sentences among the inputs of `tokenize`: the files of each split, and what is warned of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.artifacts.stage import InputFile, Inputs
from stages.errors import DataError, UsageError
from stages.reporting import Reporter
from stages.text.aligned import SIDES, AlignedFiles, Pairs
from stages.text.config import TEXT, TokenizeConfig
from stages.text.files import COMPRESSED, LINES, file_digest, without_compression
from stages.text.records import TextFile
from stages.text.tokens import SPLITS
from stages.tokenization.corpora import given_specs
from stages.tokenization.hub import is_data_set

TYPES = 8192
"""Types of a joint bpe vocabulary of two languages, where nobody says."""
FEWEST = 2
"""Occurrences below which a word is `<unk>`, so that this is learnt."""
LEARNED = "train"
ALIKE = 0.5
"""Share of pairs of the same text on both sides above which one file is probably there twice."""


def aligned_inputs(config: TokenizeConfig, references: Mapping[str, Any]) -> list[InputFile]:
    """The files of every split, source before target; roles say the side, and the field of a .jsonl.

    Raises: UsageError for files that are named alone, DataError, naming what was looked for, for what is not there.
    """
    splits = given_specs(config, references)
    if not splits.keys() <= set(SPLITS):
        raise UsageError("Aligned text is named by split: --train PREFIX, --valid PREFIX, --test PREFIX.")
    languages = config.source_language, config.target_language
    found = []
    for split, specs in splits.items():
        for spec in specs:
            for side, language in zip(SIDES, languages, strict=True):
                assert language is not None
                path, field = _side(spec, language)
                found.append(InputFile(f"{split}.{side}{field}", path, file_digest(path)))
    return found


def _side(spec: str, language: str) -> tuple[str, str]:
    """The file of a language, and, as the end of a role, the field that holds it."""
    if is_data_set(spec):
        raise UsageError(f"{spec}: aligned text is read from files; data sets of the hub are not read as pairs yet.")
    if without_compression(spec).endswith(LINES):
        if not Path(spec).is_file():
            raise DataError(f"{spec} does not exist; expected a .jsonl of pairs.")
        return spec, f".{language}"
    names = [f"{spec}.{language}{ending}" for ending in ("", *COMPRESSED)]
    there = [name for name in names if Path(name).is_file()]
    if len(there) == 1:
        return there[0], ""
    if there:
        raise DataError(f"{' and '.join(there)} are both there: which one is meant? Remove or rename one.")
    folder, name = Path(spec).parent, Path(spec).name
    beside = sorted(path.name for path in folder.glob(f"{name}.*")) if name else []
    raise DataError(
        f"{names[0]} does not exist, nor with {', '.join(COMPRESSED)}; beside this prefix there "
        f"{'is ' + ', '.join(beside[:8]) if beside else 'is nothing'}. A split is named by what stands before "
        f".{language}: data/train for data/train.{language}."
    )


def aligned_text(inputs: Inputs, config: TokenizeConfig) -> dict[str, Pairs]:
    """The pairs of every split that is named."""
    found: dict[str, list[list[TextFile]]] = {}
    for file in inputs.files:
        split, side, field = (*file.role.split(".", 2), TEXT)[:3]
        if split in SPLITS:
            format = "txt" if field == TEXT else "jsonl"
            text = TextFile(file.path, format, file.digest, config.max_record_bytes, field)  # type: ignore[arg-type]
            sides = found.setdefault(split, [[], []])
            sides[side == "target"].append(text)
    return {
        split: Pairs([AlignedFiles(*pair) for pair in zip(*sides, strict=True)], scored=split != LEARNED)
        for split, sides in found.items()
    }


def report_pairs(split: str, pairs: Pairs, reporter: Reporter) -> None:
    """Warn of pairs that were left out, and of sides that are alike. Raises: DataError where no pair is left."""
    if not pairs.kept:
        raise DataError(f"The files of {split} hold no pair with text on both sides.")
    if pairs.dropped:
        reporter.warning(f"pairs of {split} are left out because a side is blank, or both: {pairs.dropped:,}")
    if pairs.alike > ALIKE * pairs.kept:
        reporter.warning(
            f"same text on both sides in {pairs.alike:,} of {pairs.kept:,} pairs of {split}: is one file named twice?"
        )


def vocabulary_settings(config: TokenizeConfig) -> dict[str, int]:
    """Settings of a joint vocabulary that are left open."""
    if config.tokenizer == "bpe" and config.vocab_size is None:
        return {"vocab_size": TYPES}
    if config.tokenizer == "word" and config.min_count is None:
        return {"min_count": FEWEST}
    return {}
