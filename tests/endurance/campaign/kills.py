"""Kills and signals at every moment of every stage; the same command again leaves the bytes of an undisturbed run."""

import signal

from tests.endurance.campaign.case import HARMLESS, Case, Verdict, failed, judge
from tests.endurance.campaign.process import Death, Ended
from tests.endurance.campaign.world import STAGES

SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
ENDS = {signal.SIGKILL: {-9}, signal.SIGTERM: {143}, signal.SIGINT: {130}}


def kill(case: Case) -> Verdict:
    """One to three signals, each at a change on disk or at any moment, then the same command."""
    stage = case.random.choice(list(STAGES))
    made = case.world.made[stage]
    case.before(stage)
    for _ in range(case.random.randint(1, 3)):
        chosen = case.random.choice(SIGNALS)
        at_event = case.random.random() < 0.7
        death = Death(
            chosen,
            event=case.random.randint(1, made.events) if at_event else None,
            seconds=None if at_event else case.random.uniform(0.02, made.seconds),
        )
        ended = case.stage(stage, death=death)
        case.note(f"{stage}: {chosen.name} at {'change ' + str(death.event) if at_event else 'a moment'}: {ended.code}")
        if not _expected(ended, chosen, early=set()):
            return failed(f"{chosen.name} ended with {ended.code}: {ended.err.strip()[-200:]}")
    return _again(case, stage)


def kill_installed(case: Case) -> Verdict:
    """The same for `python -m memlm_cli`, while it starts too."""
    stage = case.random.choice(["tokens", "batches", "datastore", "index", "model"])
    case.before(stage)
    chosen = case.random.choice(SIGNALS)
    seconds = case.random.uniform(0.05, 12)
    ended = case.stage(stage, fresh=True, death=Death(chosen, seconds=seconds))
    case.note(f"{stage}: {chosen.name} after {seconds:.1f} s: {ended.code}")
    if not _expected(ended, chosen, early={-chosen}):
        return failed(f"{chosen.name} ended with {ended.code}: {ended.err.strip()[-200:]}")
    return _again(case, stage, fresh=True)


def _expected(ended: Ended, chosen: signal.Signals, early: set[int]) -> bool:
    """Whether a command ended as the signal asks, or before it came, or while Python was starting (`early`)."""
    return ended.code in {0, *ENDS[chosen], *early}


def _again(case: Case, stage: str, **how: bool) -> Verdict:
    ended = case.stage(stage, **how)
    verdict = judge(ended, lambda: "" if how else case.wrong(stage))
    if verdict.judgement == "refused":
        return failed(f"not resumed, code {ended.code}: {ended.err.strip()[-200:]}")
    return verdict if verdict.judgement == "failed" else HARMLESS


ATTACKS = {"kill": kill, "kill-installed": kill_installed}
