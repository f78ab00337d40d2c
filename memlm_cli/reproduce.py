"""The commands that made artifacts, as their manifests keep them, and a script of those of a lineage."""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from stages.artifacts.advice import store_words
from stages.artifacts.kinds import PREVIOUS

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact
    from stages.pages.lineage import Member


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


def command_line(member: "Member") -> str:
    """The command that made an artifact, lines joined by backslashes; a comment where no manifest keeps one."""
    if member.artifact is None:
        return "# It is no longer in the store, and with it how it was made."
    if not member.artifact.manifest.command:
        return "# It was made from Python, not by a command."
    lines = [""]
    for word in [*_words(member.artifact), *(word for name in member.names[:1] for word in ("--name", name))]:
        if len(lines[-1]) + len(shlex.quote(word)) > 110:
            lines.append("   ")
        lines[-1] += f" {shlex.quote(word)}"
    return " \\\n".join(line[1:] if number == 0 else line for number, line in enumerate(lines))


def report_with_scores(report: "Artifact") -> str:
    """The command that makes a report again, with the scores of its tokens."""
    words = _words(report)
    if not report.manifest.command:  # made from Python: the same readings of the same model or index
        inputs = report.manifest.inputs
        memories = [word for one in report.config.get("memory") or () for word in ("--memory", one)]
        words = ["memlm", "evaluate", inputs.get("index", inputs["model"]).reference, *memories]
    return shlex.join([*words, "--save-token-scores", *store_words(report.store.root)])


def _words(artifact: "Artifact") -> list[str]:
    """The words of its command, with what was chosen by the machine (precision) or the store (an index to change)."""
    words, previous = ["memlm", *artifact.manifest.command], artifact.manifest.inputs.get(PREVIOUS)
    chosen = {"--precision": artifact.config.get("precision")}
    if artifact.kind == "index" and previous is not None:
        chosen["--update"] = previous.reference
    return [*words, *(w for option, one in chosen.items() if one and option not in words for w in (option, one))]
