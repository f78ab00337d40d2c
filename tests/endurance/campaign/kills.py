"""Kills and signals at every moment of every stage; the same command again leaves the bytes of an
undisturbed run.
"""

import shutil
import signal
from collections.abc import Callable, Sequence
from functools import partial

from tests.endurance.campaign.case import Case, Verdict, failed, judge
from tests.endurance.campaign.process import Child, Death, Ended
from tests.endurance.campaign.world import CHANGES, STAGES, write_texts
from tests.endurance.kill_and_resume import differences

SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
ENDS = {signal.SIGKILL: {-9}, signal.SIGTERM: {143}, signal.SIGINT: {130}}

RECIPE_STAGES = ("tokens", "lstm", "states", "more", "grown")
RECIPE = """
[inputs]
train = "text"
valid = "text"
test = "text"

[stages.tokens]
command = "tokenize"
with = { train = "{train}", valid = "{valid}", test = "{test}" }
settings = { documents = "blank-line" }

[stages.lstm]
command = "train"
from = "tokens"
preset = "tiny-lstm"
settings = { steps = 12, segment_length = 8, batch_tokens = 32, model = { layers = 1, width = 8 } }

[stages.states]
command = "build-datastore"
from = "lstm"

[stages.more]
command = "tokenize"
with = { train = "more.txt", tokenizer = "tokens" }
settings = { documents = "blank-line", tokenizer = "given" }

[stages.grown]
command = "update-datastore"
from = "states"
with = { add = "more" }
"""


def kill(case: Case, stages: Sequence[str] = tuple(STAGES)) -> Verdict:
    """One to three signals, each at a change on disk or at any moment, then the same command, of
    one of `stages`.
    """
    stage = case.random.choice(stages)
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
        case.note(
            f"{stage}: {chosen.name} at {'change ' + str(death.event) if at_event else 'a moment'}: {ended.code}"
        )
        if not _expected(ended, chosen, early=set()):
            return failed(f"{chosen.name} ended with {ended.code}: {ended.err.strip()[-200:]}")
    return _resumed(case.stage(stage), lambda: case.wrong(stage))


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
    return _resumed(case.stage(stage, fresh=True), lambda: _differs(case, stage))


def kill_recipe(case: Case) -> Verdict:
    """A recipe that changes a datastore, killed between any two changes on disk, planned and run
    again.
    """
    (case.folder / "recipe.toml").write_text(RECIPE)
    files = [
        part for split in ("train", "valid", "test") for part in (f"--{split}", f"{split}.txt")
    ]
    events = sum(case.world.made[stage].events for stage in RECIPE_STAGES)
    for _ in range(case.random.randint(1, 4)):
        chosen = case.random.choice(SIGNALS)
        death = Death(chosen, event=case.random.randint(1, events))
        ended = case.memlm("run", "recipe.toml", *files, death=death)
        case.note(f"{chosen.name} at change {death.event}: {ended.code}")
        if not _expected(ended, chosen, early=set()):
            return failed(f"{chosen.name} ended with {ended.code}: {ended.err.strip()[-200:]}")
        planned = case.memlm("plan", "recipe.toml", *files)
        if planned.code != 0:
            return failed(f"plan: code {planned.code}: {planned.err.strip()[-200:]}")
    ended = case.memlm("run", "recipe.toml", *files)
    return _resumed(ended, lambda: "; ".join(filter(None, map(case.wrong, RECIPE_STAGES))))


def kill_copy(case: Case) -> Verdict:
    """A push and a pull, each killed at any change on disk; the same call goes on."""
    stage = case.random.choice(list(STAGES))
    made, bucket = case.world.made[stage], f"file://{case.folder}/bucket"
    case.before(stage)
    case.world.copy(case.store, {made.reference})
    for command in ("push", "pull"):
        for _ in range(case.random.randint(0, 2)):
            chosen = case.random.choice(SIGNALS)
            death = Death(chosen, event=case.random.randint(1, 60))
            ended = case.memlm("artifacts", command, made.reference, bucket, death=death)
            case.note(f"{command} {stage}: {chosen.name} at change {death.event}: {ended.code}")
            if not _expected(ended, chosen, early=set()):
                return failed(f"{chosen.name} ended with {ended.code}: {ended.err.strip()[-200:]}")
        ended = case.memlm("artifacts", command, made.reference, bucket)
        if ended.code != 0:
            return failed(f"{command} not resumed, code {ended.code}: {ended.err.strip()[-200:]}")
        if command == "push":
            shutil.rmtree(case.store)
    return judge(case.memlm("artifacts", "verify", made.reference), lambda: case.wrong(stage))


def _expected(ended: Ended, chosen: signal.Signals, early: set[int]) -> bool:
    """Whether a command ended as the signal asks, or before it came, or while Python was starting.

    Which it does with `early`; or, before it has come to any of memlm, with 1 and a traceback of
    its own modules.
    """
    before = (
        bool(early) and chosen == signal.SIGINT and ended.code == 1 and "memlm" not in ended.err
    )
    return before or ended.code in {0, *ENDS[chosen], *early}


def _resumed(ended: Ended, wrong: Callable[[], str]) -> Verdict:
    verdict = judge(ended, wrong)
    if verdict.judgement == "refused":
        return failed(f"not resumed, code {ended.code}: {ended.err.strip()[-200:]}")
    return verdict


def _differs(case: Case, stage: str) -> str:
    """What differs from the stage made in one go beside it, in shards of their real size as the
    killed ones.
    """
    folder, reference = case.folder / "undisturbed", case.world.made[stage].reference
    write_texts(folder)
    case.world.copy(folder / "store", case.world.ancestors(reference))
    Child(case.world.arguments(stage), folder, small_shards=False).wait()
    return ", ".join(differences(folder / "store" / reference, case.store / reference))


ATTACKS = {
    "kill": kill,
    "kill-change": partial(kill, stages=CHANGES),
    "kill-installed": kill_installed,
}
ATTACKS |= {"kill-recipe": kill_recipe, "kill-copy": kill_copy}
