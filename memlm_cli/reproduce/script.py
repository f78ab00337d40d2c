"""A script that makes a lineage again, and the command of each of its artifacts."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from memlm_cli.reproduce.options import options
from memlm_cli.reproduce.references import Members, Variable, references
from stages.artifacts.advice import store_words

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact
    from stages.pages.lineage import Member


def script(members: Members) -> str:
    """A shell script that makes every member of a lineage, each after what it is made from."""
    lines = [
        "#!/bin/sh",
        "# Run it where the store is to be, or set MEMLM_STORE. Files of text are yours to name:",
        "# a manifest keeps their digests, not their paths.",
        "set -e",
    ]
    for member in members.values():
        lines.append("")
        if member.artifact is None:
            lines.append(f"# {member.reference} is no longer in the store, and with it how it was made.")
        else:
            called = f" ({', '.join(member.names)})" if member.names else ""
            lines += [f"# {member.reference}{called}", command_line(member, members)]
    return "\n".join(lines) + "\n"


def report_with_scores(report: "Artifact") -> str:
    """The command that makes a report again, with the scores of its tokens."""
    from stages.pages.lineage import lineage_of

    members = lineage_of([report])
    words = [word for group in _command(members[report.reference], members) for word in group]
    return shlex.join([*words, "--save-token-scores", *store_words(report.store.root)])


def command_line(member: "Member", members: Members) -> str:
    """The command that makes an artifact again, lines joined by backslashes."""
    lines = [""]
    for group in (*_command(member, members), *(["--name", name] for name in member.names[:1])):
        text = " ".join(word if isinstance(word, Variable) else shlex.quote(word) for word in group)
        if len(lines[-1]) + len(text) > 110:
            lines.append("   ")
        lines[-1] += f" {text}"
    return " \\\n".join(line[1:] if number == 0 else line for number, line in enumerate(lines))


def _command(member: "Member", members: Members) -> Iterator[list[str]]:
    """The words of a command, those together that belong together."""
    assert member.artifact is not None
    command = member.artifact.manifest.stage
    yield ["memlm", command]
    yield from references(member, members)
    yield from options(command, member)
