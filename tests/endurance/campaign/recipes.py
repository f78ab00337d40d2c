"""Recipes with lines changed, moved or missing, and with bytes damaged: refused before work, or
run.
"""

import re

from tests.endurance.campaign.case import Case, Verdict, failed, judge
from tests.endurance.campaign.mutate import TEXTS, damaged_bytes
from tests.endurance.campaign.options import RECIPE, VALUES

NAMES = [
    "tokens",
    "batches",
    "x",
    "",
    "train",
    "tokens/none",
    "{train}",
    "..",
    "tokenize",
    "pack-batches",
    "evaluate",
]


def bad_recipe(case: Case) -> Verdict:
    """`memlm run` of a changed recipe; a refusal must come before the first stage has made
    anything.
    """
    lines = RECIPE.strip().splitlines()
    for _ in range(case.random.randint(1, 3)):
        at = case.random.randrange(len(lines))
        lines[at : at + 1] = _changed(case, lines[at])
        if not lines:
            lines = ["stages = {}"]
    content = "\n".join(lines).encode("utf-8", "replace")
    if case.random.random() < 0.2:
        content, _ = damaged_bytes(case.random, content)
    (case.folder / "bad.toml").write_bytes(content)
    arguments = [
        "run",
        "bad.toml",
        *case.random.choice([[], [], ["--dry-run"], ["--train", "train.txt"], ["--json"]]),
    ]
    case.note(" ".join(arguments) + ":\n      " + "\n      ".join(line[:150] for line in lines))
    ended = case.memlm(*arguments)
    verdict = judge(ended)
    made = list(case.store.glob("*/*/manifest.json"))
    if verdict.judgement == "refused" and ended.code in (2, 4) and made:
        return failed(f"refused only after {len(made)} stages: {ended.err[-200:]}")
    return verdict


def _changed(case: Case, line: str) -> list[str]:
    choose = case.random.choice
    value = choose(
        [*VALUES, *(f'"{name}"' for name in NAMES), f'["{choose(NAMES)}", "{choose(NAMES)}"]']
    )
    return choose(
        [
            [],
            [line, line],
            [line, f"{choose(['from', 'with', 'settings', 'preset', 'x', 'inputs'])} = {value}"],
            [re.sub(r"= .*", lambda _: f"= {value}", line)],
            [re.sub(r"= .*", lambda _: f"= {value}", line)],
            [re.sub(r"\w+", lambda _: choose(NAMES), line, count=1)],
            [f"[stages.{choose(NAMES)}]", 'command = "tokenize"', f"with = {{ train = {value} }}"],
            [line.replace("tokens", choose([*NAMES, *TEXTS[:6]]))],
        ]
    )


ATTACKS = {"bad-recipe": bad_recipe}
