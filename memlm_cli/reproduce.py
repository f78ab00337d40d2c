"""The commands that made artifacts; and remarks on a report that need other reports: its baseline,
its twin.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pipelines.options import command_words, on_top_of_preset
from stages.artifacts.kinds import PREVIOUS
from stages.artifacts.references import store_words
from stages.errors import ArtifactError

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact
    from stages.pages.lineage import Member
    from stages.pages.page import Page
    from stages.reports.remarks import Remark


def script(members: Mapping[str, "Member"]) -> str:
    """A shell script that makes every member of a lineage, each after its inputs."""
    lines = [
        "#!/bin/sh",
        "# Run it where the store is to be, or set MEMLM_STORE. Files of text are named as they were typed.",
        "set -e",
    ]
    for member in members.values():
        called = f" ({', '.join(member.names)})" if member.names else ""
        lines += ["", f"# {member.reference}{called}", command_line(member)]
    return "\n".join(lines) + "\n"


def page_of(reports: "Sequence[Artifact]", **more: Any) -> "Page":
    """The page of some reports, with the commands that made them and remarks that need other
    reports.

    Args:
        more: arguments of `stages.pages.page.build_page`.
    """
    from stages.pages.page import build_page

    return build_page(reports, script, baseline_remarks, **more)


def command_line(member: "Member") -> str:
    """The command that made an artifact, lines joined by backslashes; a comment if its manifest is
    gone.
    """
    if member.artifact is None:
        return "# It is no longer in the store, and with it how it was made."
    lines = [""]
    for word in [
        *_words(member.artifact),
        *(word for name in member.names[:1] for word in ("--name", name)),
    ]:
        if len(lines[-1]) + len(shlex.quote(word)) > 110:
            lines.append("   ")
        lines[-1] += f" {shlex.quote(word)}"
    return " \\\n".join(line[1:] if number == 0 else line for number, line in enumerate(lines))


def report_with_scores(report: "Artifact") -> str:
    """The command that makes a report again, with the scores of its tokens."""
    return shlex.join([*_words(report), "--save-token-scores", *store_words(report.store.root)])


def _words(artifact: "Artifact") -> list[str]:
    """The words of its command, with choices that depended on the machine (precision) or the store
    (an old index).
    """
    words = ["memlm", *artifact.manifest.command]
    previous = artifact.manifest.inputs.get(PREVIOUS)
    chosen = {"--precision": artifact.config.get("precision")}
    if artifact.kind == "index" and previous is not None:
        chosen["--update"] = previous.reference
    return [
        *words,
        *(
            w
            for option, value in chosen.items()
            if value and option not in words
            for w in (option, value)
        ),
    ]


def baseline_remarks(report: "Artifact") -> "list[Remark]":
    """Comparison with the baseline, if token scores allow it, and the fair baseline of a model with
    memory.

    There is no remark if an artifact that it needs is gone, or has a part that is not installed
    here.
    """
    result: list[Remark] = []
    for remarks in (_against_baseline, twin_remarks):
        with suppress(ArtifactError):
            result += remarks(report)
    return result


def _against_baseline(report: "Artifact") -> "Iterator[Remark]":
    if "baseline" not in report.manifest.inputs:
        return  # code for comparing takes long to load
    from stages.comparison.compare import against_baseline
    from stages.comparison.sentences import baseline_values
    from stages.reports.remarks.table import remark

    comparison = against_baseline(report)
    if comparison is not None:
        yield remark("against-baseline", baseline_values(comparison))


def twin_remarks(report: "Artifact") -> "list[Remark]":
    """The twin in the store, or the command that trains it; empty for a model that was trained
    without memory.

    A model that began with the weights of another has no twin of the same cost, so there is no
    remark.
    """
    from stages.models.config import NEIGHBOR_SETTINGS
    from stages.reports.remarks.table import remark

    model = report.input("model")
    if model.config.get("method", "lm") in ("lm", "imported") or "init" in model.manifest.inputs:
        return []
    plain = {name: None for name in NEIGHBOR_SETTINGS if name in model.config["model"]}
    config = {
        **model.config,
        "method": "lm",
        "memory": None,
        "model": {**model.config["model"], **plain},
    }
    tokens = model.input("tokens")
    for other in report.store.artifacts("model"):
        if other.config == config and other.manifest.inputs["tokens"].reference == tokens.reference:
            return [remark("twin", {"model": model.reference, "twin": other.reference})]
    words = command_words("train", {"source": tokens.reference}, on_top_of_preset(config))
    command = shlex.join(["memlm", *words, *store_words(report.store.root)])
    return [remark("train-twin", {"command": command})]
