"""A disk without room, without inodes, or a limit on a file's size: code 5, and the same command
goes on from there.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.endurance.campaign.case import REFUSED, Case, Verdict, failed, judge
from tests.endurance.campaign.process import MOST_BYTES_WRITTEN, Limits
from tests.endurance.campaign.world import CHANGES, STAGES

PAGE = 4096
STEPS, PLENTY = 60, 2000
"""So many times there is hardly any room, then as much as any stage takes: a run must end."""


def full_disk(case: Case, stages: Sequence[str] = tuple(STAGES)) -> Verdict:
    """A real tmpfs with hardly any room for one of `stages`, which grows step by step; sometimes
    inodes lack.
    """
    if os.geteuid() != 0:
        return Verdict("skipped", "only root can mount a small disk")
    stage = case.random.choice(stages)
    inodes = case.random.random() < 0.25
    case.store.mkdir()
    with _small_disk(case.store) as mounted:
        if not mounted:
            return Verdict("skipped", "no small disk can be mounted here")
        case.before(stage)
        room = case.random.randint(0, 8)
        for full in range(STEPS + 1):
            case.note(f"{stage}: {room} more {'inodes' if inodes else 'pages'}")
            _set_room(case.store, room, inodes=inodes)
            ended = case.stage(stage)
            if ended.code != 5:
                break
            room = PLENTY if full == STEPS - 1 else case.random.randint(1, 2 + full)
        verdict = judge(ended, lambda: case.wrong(stage))
        if verdict.judgement == "refused":
            return failed(f"code {ended.code} instead of 5: {ended.err.strip()[-200:]}")
        return REFUSED if full and verdict.judgement == "harmless" else verdict


def file_limit(case: Case) -> Verdict:
    """No file may be larger than a few bytes or kB; afterwards it may, and the command goes on."""
    stage = case.random.choice(list(STAGES))
    case.before(stage)
    limit = case.random.choice([0, 1, 50, 200, 500, 1000, 2000, 4000, 8000, 16000, 30000])
    case.note(f"{stage}: files of {limit} bytes")
    ended = case.stage(stage, limits=Limits(file_bytes=limit))
    first = judge(ended)
    if first.judgement == "failed" or ended.code not in (0, 5):
        return failed(
            f"files of {limit} bytes: {first.why or f'code {ended.code}: {ended.err[-200:]}'}"
        )
    again = case.stage(stage, limits=Limits(file_bytes=MOST_BYTES_WRITTEN))
    verdict = judge(again, lambda: case.wrong(stage))
    if verdict.judgement == "refused":
        return failed(f"not resumed, code {again.code}: {again.err.strip()[-200:]}")
    return verdict if verdict.judgement == "failed" else first


@contextmanager
def _small_disk(folder: Path) -> Iterator[bool]:
    mounted = _mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder))
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def _set_room(disk: Path, room: int, *, inodes: bool) -> None:
    """Leave so many pages, or so many inodes, and plenty of the other."""
    status = os.statvfs(disk)
    used = status.f_files - status.f_ffree if inodes else status.f_blocks - status.f_bfree
    wanted = f"nr_inodes={used + room}" if inodes else f"size={max(1, used + room) * PAGE}"
    _mount("-o", f"remount,{wanted}", str(disk))


def _mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0


ATTACKS = {
    "full-disk": full_disk,
    "full-disk-change": partial(full_disk, stages=CHANGES),
    "file-limit": file_limit,
}
