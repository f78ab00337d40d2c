"""The card of an exported model: what it is, how it is read, and how good it was found to be."""

from collections.abc import Sequence

from stages.artifacts.artifact import Artifact
from stages.export import Form
from stages.numbers import measured, number
from stages.pages.headline import Row, headline, shown
from stages.pages.lineage import Member, artifact_rows, lineage_of
from stages.pages.source import read_sources, shared_remarks

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
MEASURES = {
    "perplexity": "perplexity",
    "counting": "a trigram of the text that the row may read",
    "bits_per_character": "bits/character",
    "word_perplexity": "word perplexity",
    "accuracy": "accuracy",
    "perplexity_on_new_text": "perplexity on new text",
}
"""Figures of a row, and their headers."""


def card(model: Artifact, form: Form) -> str:
    """Markdown, with the hub's front matter and a table of the reports that the store has of the model itself."""
    reports = _reports_of(model)
    members = lineage_of([model, *reports])
    member = members[model.reference]
    parts = [f"{HEAD}\n# {member.label}\n", _what_it_is(member, form), USE, *_results(reports, members)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _reports_of(model: Artifact) -> list[Artifact]:
    """All reports of its store that scored these very weights, the oldest first, their files checked."""
    found = [
        artifact for artifact in model.store.artifacts("report") if model.matches(artifact.manifest.inputs.get("model"))
    ]
    for report in found:
        # A card is published with its figures, so these are checked as an input would be.
        report.store.check_files(report)
    return found


def _what_it_is(member: Member, form: Form) -> str:
    (row,) = artifact_rows([member])
    assert member.artifact is not None
    length = "" if form.longest is None else f" It reads {number(form.longest)} tokens at once."
    lines = [
        f"A {form.architecture} that memlm exported: {member.reference}, "
        f"{row.facts}.{length} A text begins with the token `bos_token`."
    ]
    if member.artifact.config["method"] != "lm":
        lines.append(
            f"It was trained to read a memory (method `{member.artifact.config['method']}`), which is not in this "
            "folder: alone it is worse than an ordinary model of its size."
        )
    return "\n".join(lines)


def _results(reports: Sequence[Artifact], members: dict[str, Member]) -> list[str]:
    """A table of all rows, and what must be known of their figures."""
    if not reports:
        return []
    sources = read_sources(reports, members, lambda report: ())
    rows = [row for row in headline(sources) if not row.baseline]
    remarks = [
        f"- {', '.join(of)}: {remark.text}" if of else f"- {remark.text}" for of, remark in shared_remarks(sources)
    ]
    return [part for part in ("## Results", _table(rows), _memory_remark(rows), "\n".join(remarks)) if part]


def _table(rows: Sequence[Row]) -> str:
    """A line a row: what was scored, the memory that was read beside the model, and its figures."""
    measures = [name for name in MEASURES if any(shown(row, name) is not None for row in rows)]
    lines = [("report", "scored", "tokens", "row", *(MEASURES[name] for name in measures), "memory")]
    for row in rows:
        what = (row.source.label, row.source.scored, number(row.source.metrics["tokens"]), row.name)
        figures = (_figure(shown(row, name), name) for name in measures)
        lines.append((*what, *figures, "; ".join(f"{one.head}, {one.text}" for one in row.notes)))
    lines.insert(1, ("---",) * len(lines[0]))
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def _figure(value: float | None, measure: str) -> str:
    return "" if value is None else measured(value, measure)


def _memory_remark(rows: Sequence[Row]) -> str:
    if not any(row.memories for row in rows):
        return ""
    return "Rows with a memory were read by memlm: this folder holds the model alone."
