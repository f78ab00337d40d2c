"""Exports a model of the store as a folder for transformers: weights, settings, tokenizer and card.

The folder is either complete or absent, and never replaces files of others.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.durable import delete, fsync, fsync_folders, remove_folder
from stages.errors import UsageError
from stages.export import FORMS, Form
from stages.lineage.corpus import require_scoring, tokenizer_of
from stages.models.config import model_of
from stages.numbers import number
from stages.pages.headline import ReportRow, headline, shown
from stages.pages.lineage import Member, facts, lineage_of
from stages.pages.source import read_sources, shared_remarks
from stages.reports.measures import MEASURES
from stages.text.files import file_digest
from stages.text.tokens import start_id

CARD = "README.md"
RECORD = "memlm.json"
"""File of an export that lists the BLAKE2b of every other file. A file that has changed, or is not
listed, belongs to the user."""


def check_export_folder(folder: Path) -> None:
    """Check that an export may replace what exists at a path. Raises: UsageError."""
    if not folder.parent.is_dir():
        raise UsageError(
            f"--output {folder}: there is no folder {folder.parent}; make it, or name another."
        )
    if not folder.is_symlink() and not folder.exists():
        return
    if folder.is_symlink() or not folder.is_dir() or folder.samefile("."):
        raise UsageError(
            f"--output {folder} is no folder of its own; name one for the model alone."
        )
    others = _others(folder)
    if others:
        raise UsageError(
            f"--output {folder} holds {others[0]}, which was not written by memlm export, or was changed since; "
            "name another folder."
        )


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder to write to, which replaces `folder` at the end.

    The new folder is removed if writing fails. The old one is gone for the moment between two
    renames.
    """
    outer = Path(mkdtemp(prefix=f".{folder.name}-", suffix="-partial", dir=folder.parent))
    draft = outer / folder.name  # unlike the outer one, it has the user's default permissions
    try:
        draft.mkdir()
        yield draft
        digests = {path.name: file_digest(str(path)) for path in sorted(draft.iterdir())}
        (draft / RECORD).write_text(json.dumps({"blake2b": digests}, indent=2) + "\n", "utf-8")
        files = [path for path in draft.rglob("*") if path.is_file()]
        for path in files:
            path.chmod(
                draft.stat().st_mode & 0o666
            )  # some writers create files that only their owner may read
            fsync(path)
        fsync_folders(draft, files)
        check_export_folder(
            folder
        )  # writing takes minutes, in which somebody may have saved files there
        if folder.exists():
            remove_folder(folder)
        draft.rename(folder)
        fsync(folder.parent)
    finally:
        delete(outer)


def _others(folder: Path) -> list[str]:
    """Names in a folder of an export that its record lacks, or whose files were changed since."""
    try:
        written = json.loads((folder / RECORD).read_text("utf-8"))["blake2b"]
    except (OSError, ValueError, LookupError, TypeError):
        written = None
    entries = written if isinstance(written, dict) else {}
    files = {
        path.name: path for path in folder.iterdir() if path.is_file() and not path.is_symlink()
    }
    same = {name for name, path in files.items() if entries.get(name) == file_digest(str(path))}
    if entries and RECORD in files:
        same.add(RECORD)
    return sorted(path.name for path in folder.iterdir() if path.name not in same)


def write_tokenizer(tokens: Artifact, longest: int | None, folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`.

    A tokenizer trained here begins a text with `<eos>`, as a split does. A pretrained one is not
    changed.

    Args:
        longest: maximum number of tokens that the model reads at once; None: unlimited.
    """
    tokenizer = tokenizer_of(tokens)
    backend = tokenizer.exported()
    eos = backend.id_to_token(tokenizer.eos_id)
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": backend.id_to_token(start_id(tokens.metrics)),
        "eos_token": eos,
        "clean_up_tokenization_spaces": False,
    }
    if tokenizer.unk_id is not None:
        settings["unk_token"] = backend.id_to_token(tokenizer.unk_id)
    if longest is not None:
        settings["model_max_length"] = longest
    (folder / "tokenizer.json").write_text(backend.to_str(pretty=True), "utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps(settings, indent=2, ensure_ascii=False) + "\n", "utf-8"
    )


@dataclass(frozen=True)
class Exported:
    """The folder of an exported model, its form, and the names of its files."""

    folder: Path
    form: Form
    files: list[str]


def export(model: Artifact, folder: Path, positions: int | None = None) -> Exported:
    """Write a model in a form of transformers. A memory of the model stays in the store.

    Args:
        positions: number of sinusoidal positions in the exported table; None: those of a segment.
    Raises: UsageError if transformers has no form for the model, or the folder holds other files;
        ArtifactError if the model scores no tokens.
    """
    config = model_of(require_scoring(model))
    if config.reads_neighbors:
        raise UsageError(
            f"{model.reference} reads neighbours in its hidden states (SPALM), and no model of transformers does."
        )
    if config.backbone not in FORMS:
        raise UsageError(
            f"{model.reference} is of backbone {config.backbone!r}, and transformers has no such model; exported are: "
            f"{', '.join(FORMS.names())}."
        )
    write: Callable[[Artifact, int | None, Path], Form] = FORMS.load(config.backbone)
    check_export_folder(folder)
    with new_folder(folder) as draft:
        form = write(model, positions, draft)
        write_tokenizer(model.input("tokens"), form.longest, draft)
        (draft / CARD).write_text(card(model, form), "utf-8")
    return Exported(folder, form, sorted(path.name for path in folder.iterdir()))


HEAD = """---
library_name: transformers
pipeline_tag: text-generation
tags:
- memlm
---
"""
USE = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForCausalLM.from_pretrained(FOLDER)
print(tokenizer.decode(model.generate(**tokenizer("The", return_tensors="pt"), max_new_tokens=50)[0]))
```"""


def card(model: Artifact, form: Form) -> str:
    """Model card in Markdown, with the hub's front matter and a table of all reports of exactly
    these weights in the store, oldest first."""
    reports = [
        artifact
        for artifact in model.store.artifacts("report")
        if model.matches(artifact.manifest.inputs.get("model"))
    ]
    for report in reports:
        # A card is published with its figures, so these are checked like an input.
        report.store.check_files(report)
    members = lineage_of([model, *reports])
    member = members[model.reference]
    parts = [
        f"{HEAD}\n# {member.label}\n",
        _what_it_is(member, form),
        USE,
        *_results(reports, members),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _what_it_is(member: Member, form: Form) -> str:
    assert member.artifact is not None
    length = "" if form.longest is None else f" It reads {number(form.longest)} tokens at once."
    lines = [
        f"A {form.architecture} that memlm exported: {member.reference}, "
        f"{facts(member.artifact)}.{length} A text begins with the token `bos_token`."
    ]
    if member.artifact.config["method"] != "lm":
        lines.append(
            f"It was trained to read a memory (method `{member.artifact.config['method']}`), which is not in this "
            "folder: alone it is worse than an ordinary model of its size."
        )
    return "\n".join(lines)


def _results(reports: Sequence[Artifact], members: dict[str, Member]) -> list[str]:
    """A table of all rows, and notes that readers of the figures need."""
    if not reports:
        return []
    sources = read_sources(reports, members, lambda report: ())
    rows = [row for row in headline(sources) if not row.baseline]
    remarks = [
        f"- {', '.join(of)}: {remark.text}" if of else f"- {remark.text}"
        for of, remark in shared_remarks(sources)
    ]
    note = "Rows with a memory were read by memlm: this folder holds the model alone."
    memory = note if any(row.memories for row in rows) else ""
    return [part for part in ("## Results", _table(rows), memory, "\n".join(remarks)) if part]


def _table(rows: Sequence[ReportRow]) -> str:
    """Table with a line per row: scored text, memory used with the model, and figures."""
    measures = [
        measure
        for measure in MEASURES.all_measures()
        if measure.card and any(shown(row, measure.name) is not None for row in rows)
    ]
    headers = [measure.card for measure in measures]
    lines = [("report", "scored", "tokens", "row", *headers, "memory")]
    for row in rows:
        what = (row.source.label, row.source.scored, number(row.source.metrics["tokens"]), row.name)
        values = [(measure, shown(row, measure.name)) for measure in measures]
        figures = ("" if value is None else measure.text(value) for measure, value in values)
        lines.append(
            (*what, *figures, "; ".join(f"{note.head}, {note.text}" for note in row.notes))
        )
    lines.insert(1, ("---",) * len(lines[0]))
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines
    )
