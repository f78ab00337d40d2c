"""Damaged drafts: killed work whose remains are changed; the same command mends it, refuses it, or
is right.
"""

import json
import signal
from pathlib import Path

from tests.endurance.campaign.case import HARMLESS, Case, Verdict, failed, judge
from tests.endurance.campaign.mutate import (
    ELSEWHERE,
    damaged_bytes,
    damaged_json,
    damaged_json_text,
)
from tests.endurance.campaign.process import Death
from tests.endurance.campaign.world import STAGES


def damaged_draft(case: Case) -> Verdict:
    """One file of a draft changed: log of progress, checkpoint, scratch, arrays, or a file added."""
    stage = case.random.choice(list(STAGES))
    case.before(stage)
    events = case.world.made[stage].events
    event = case.random.randint(events // 3, events)
    case.stage(stage, death=Death(signal.SIGKILL, event=event))
    files = [path for path in case.store.glob("*/.*-partial/**/*") if path.is_file()]
    if not files:
        return HARMLESS
    logs = [path for path in files if path.name in ("progress.jsonl", "work.json", "manifest.json")]
    path = case.random.choice(case.random.choice([files, logs or files]))
    how = _damage(case, path)
    case.note(f"{stage} killed at change {event}; {path.relative_to(case.store)}: {how}")
    for command in (["list"], ["verify"], ["gc", "--dry-run"]):
        verdict = judge(case.memlm("artifacts", *command))
        if verdict.judgement == "failed":
            return failed(f"artifacts {command[0]}: {verdict.why}")
    ended = case.stage(stage)
    verdict = judge(ended, lambda: case.wrong(stage))
    return (
        failed(f"code {ended.code}: {ended.err[-200:]}") if ended.code in (2, 3, 5, 75) else verdict
    )


def _damage(case: Case, path: Path) -> str:
    if case.random.random() < 0.1:
        path.with_name("stranger").symlink_to(case.folder / "strangers")
        return "a link beside it"
    if path.suffix == ".jsonl" and path.stat().st_size and case.random.random() < 0.7:
        return _damage_line(case, path)
    if path.suffix == ".json" and case.random.random() < 0.6:
        text, how = damaged_json_text(case.random, path.read_text())
        path.write_text(text)
        return how
    content, how = damaged_bytes(case.random, path.read_bytes())
    path.write_bytes(content)
    return how


def _damage_line(case: Case, path: Path) -> str:
    lines = path.read_text().splitlines()
    at = case.random.randrange(len(lines))
    how = case.random.choice(["record", "record", "discard", "twice", "swap", "gone"])
    if how == "record":
        within = case.random.choice(
            [("record",), ("record", "seconds", "discarded"), ("key", "files"), ()]
        )
        value, change = damaged_json(case.random, json.loads(lines[at]), within)
        lines[at], how = json.dumps(value), f"line {at + 1}: {change}"
    elif how == "discard":
        lines[at] = json.dumps(
            json.loads(lines[at]) | {"discarded": [case.random.choice(ELSEWHERE)]}
        )
    elif how == "twice":
        lines.insert(at, lines[at])
    elif how == "gone":
        del lines[at]
    else:
        case.random.shuffle(lines)
    path.write_text("".join(line + "\n" for line in lines))
    return how


ATTACKS = {"damaged-draft": damaged_draft}
