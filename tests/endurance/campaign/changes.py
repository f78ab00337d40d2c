"""Datastores that change at random; each key of each index of them is the row of the datastore."""

import subprocess
import sys
from pathlib import Path

from tests.endurance.campaign.case import HARMLESS, Case, Verdict, failed, judge
from tests.endurance.campaign.world import BY_PARAGRAPH, LINES, MORE_LINES
from tests.stages.small_text import story

ROOT = Path(__file__).resolve().parents[3]
KINDS = [
    ["ivf-flat", "--set=lists=4"],
    ["ivf-flat", "--set=lists=4", "--metric", "ip"],
    ["IVF4,Flat"],
    ["IVF4,SQfp16"],
    ["IVF4,SQ8"],
    ["IVF1,SQ8"],
    ["PCA4,IVF4,Flat"],
    *(
        ["ivf-pq", f"--set=lists={lists}", "--set=code_bits=4", "--set=code_bytes=1"]
        for lists in (1, 4)
    ),
    ["flat"],
    ["hnsw"],
]
PARAGRAPH = 3
"""Lines of a document."""


def changed_index(case: Case) -> Verdict:
    """A datastore is changed up to three times; its index of the same kind is compared with it, row
    by row.
    """
    choose = case.random.choice
    case.before("neighbors")
    windows = choose(
        [[], ["--stride", "4"], ["--context", "6", "--stride", "2"], ["--context", "5"]]
    )
    how = [
        "--reset",
        choose(["none", "none", "document"]),
        "--dtype",
        choose(["float16", "float32"]),
        *windows,
    ]
    model = case.world.made[choose(["model", "model", "model", "lstm"])].reference
    if model == case.world.made["lstm"].reference:
        case.world.copy(case.store, {model})
        how = how[:4]
    kind = choose(KINDS)
    case.note(f"{' '.join(how)}, index {' '.join(kind)}")
    commands = [["build-datastore", model, *how], *([] for _ in range(case.random.randint(1, 3)))]
    datastore, documents = "", LINES["train"] // PARAGRAPH
    for step, command in enumerate(commands):
        if step:
            command, documents = _change(case, datastore, documents, step)
        made = case.memlm(*command)
        case.note(" ".join(command))
        if made.code != 0:
            return failed(f"{command[0]}: {judge(made).why or made.err[-200:]}")
        datastore = made.reference
        index = case.memlm(
            "build-index", datastore, "--index", *kind, "--recall", choose(["none", "20"])
        )
        if index.code != 0:
            return failed(f"build-index: {judge(index).why or index.err[-200:]}")
        wrong = _differing_rows(case.store / index.reference, case.store / datastore)
        if wrong:
            return failed(f"step {step}: {index.reference} differs from {datastore}: {wrong[:200]}")
        verified = case.memlm("artifacts", "verify", datastore, index.reference)
        if verified.code != 0:
            return failed(f"step {step}, verify: {judge(verified).why or verified.err[-200:]}")
    return HARMLESS


def _change(case: Case, datastore: str, documents: int, step: int) -> tuple[list[str], int]:
    """A command that adds documents, forgets some, or both, and how many documents there are
    afterwards.
    """
    command, kind = (
        ["update-datastore", datastore],
        case.random.choice(["add", "forget", "forget", "both"]),
    )
    if kind != "add":
        gone = case.random.sample(range(documents), case.random.randint(1, max(1, documents // 3)))
        command += [part for number in gone for part in ("--forget", str(number))]
        documents -= len(gone)
    if kind != "forget":
        (case.folder / f"more-{step}.txt").write_text(
            story(MORE_LINES, 100 * step + case.random.randrange(100))
        )
        tokens = case.world.made["tokens"].reference
        added = case.memlm(
            "tokenize", "--train", f"more-{step}.txt", *BY_PARAGRAPH, "--tokenizer", tokens
        )
        command += ["--add", added.reference]
        documents += MORE_LINES // PARAGRAPH
    return command, documents


def _differing_rows(index: Path, datastore: Path) -> str:
    """Rows that differ, in words; in a process of its own, for FAISS starts threads, and a campaign
    forks.
    """
    command = [
        sys.executable,
        "-m",
        "tests.oracles.index_rows",
        str(index.resolve()),
        str(datastore.resolve()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        # Only then: what a busy machine writes while Python ends is no row that differs.
        return done.stderr.strip()[-200:] or f"code {done.returncode}"
    return f"rows {done.stdout.strip()}" if done.stdout.strip() else ""


ATTACKS = {"changed-index": changed_index}
