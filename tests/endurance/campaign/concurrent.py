"""Several commands at once on one store: each ends well or says who is at work, and the result is
that of one alone.
"""

import signal

from tests.endurance.campaign.case import HARMLESS, Case, Verdict, failed, judge
from tests.endurance.campaign.process import Death
from tests.endurance.campaign.world import STAGES

MAINTENANCE = [
    ["artifacts", "gc"],
    ["artifacts", "gc", "--unnamed", "--dry-run"],
    ["artifacts", "list"],
    ["artifacts", "verify"],
    ["artifacts", "graph"],
]


def starts(case: Case) -> Verdict:
    """The same stage two or three times, perhaps with --no-wait, perhaps with housekeeping or a
    kill beside it.
    """
    stage = case.random.choice(list(STAGES))
    case.before(stage)
    own = case.world.arguments(stage)
    commands = [own] * case.random.randint(2, 3)
    commands = [
        [*command, *case.random.choice([[], [], ["--no-wait"], ["--name", "pet"]])]
        for command in commands
    ]
    commands += case.random.sample(MAINTENANCE, case.random.randint(0, 2))
    case.random.shuffle(commands)
    deadly = case.random.random() < 0.3
    event = case.random.randint(1, case.world.made[stage].events)
    killed = [
        Death(signal.SIGKILL, event=event) if deadly and number == 0 else None
        for number in range(len(commands))
    ]
    case.note(
        f"{stage}: {' | '.join(' '.join([command[0], *command[-1:]]) for command in commands)}, killed: {deadly}"
    )
    children = [
        case.start(command, death=death) for command, death in zip(commands, killed, strict=True)
    ]
    for command, death, child in zip(commands, killed, children, strict=True):
        ended = child.wait()
        verdict = judge(ended)
        if death is None and (verdict.judgement == "failed" or ended.code not in (0, 75)):
            return failed(
                f"{' '.join(command[:2])}: {verdict.why or f'code {ended.code}: {ended.err[-200:]}'}"
            )
    return _at_last(case, stage)


def different(case: Case) -> Verdict:
    """Two stages at once of which one makes what the other reads, and a removal of what is being
    read.
    """
    stage, source = case.random.choice(
        [("datastore", "model"), ("index", "datastore"), ("neighbors", "index")]
    )
    case.before(stage)
    reference = case.world.made[source].reference
    removal = ["artifacts", "rm", *case.random.choice([[], ["--force"]]), reference]
    beside = case.random.choice(
        [removal, ["artifacts", "gc", "--unnamed"], case.world.arguments(source)]
    )
    case.note(f"{stage} | {' '.join(beside)}")
    children = [case.start(case.world.arguments(stage)), case.start(beside)]
    for child in children:
        verdict = judge(child.wait())
        if verdict.judgement == "failed":
            return verdict
    for needed in ("tokens", "model", "datastore", "index"):
        if case.world.made[needed].reference in case.world.ancestors(
            case.world.made[stage].reference
        ):
            again = case.stage(needed)
            if judge(again).judgement != "harmless":
                return failed(f"{needed} again: code {again.code}: {again.err[-200:]}")
    return _at_last(case, stage)


def _at_last(case: Case, stage: str) -> Verdict:
    """One more start finds, or makes, what an undisturbed one makes; every byte of the store is
    right.
    """
    ended = case.stage(stage)
    verdict = judge(ended, lambda: case.wrong(stage))
    if verdict.judgement != "harmless":
        return failed(f"at last: {verdict.why or f'code {ended.code}: {ended.err[-200:]}'}")
    verify = case.memlm("artifacts", "verify")
    return HARMLESS if verify.code == 0 else failed(f"artifacts verify: {verify.err[-200:]}")


ATTACKS = {"concurrent-same": starts, "concurrent-different": different}
