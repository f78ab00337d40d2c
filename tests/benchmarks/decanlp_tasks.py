"""SST-2, QA-SRL and WOZ 2.0 as folders of tasks with answers in words, asked as decaNLP asks them.

    python -m tests.benchmarks.decanlp_tasks CORPORA OUT --train 1500 --test 200 --longest 32
    memlm tokenize --tasks OUT/sst OUT/qasrl OUT/woz --records answers --tokenizer bpe --lowercase
    memlm train TOKENS --method lamol --init-from MODEL --segment-length 96 --order woz,sst,qasrl
    memlm evaluate-tasks MODEL --after last --score f1 --score sst=exact --score woz=goal

The bound is `--method multitask`. `--init-from` asks for the tokenizer of that model: name its
tokens, not `bpe`.

CORPORA has `sst2/{train,test}.tsv.gz` (sentence, tab, label), `qasrl-gs/{dev,test}.jsonl.gz` (gold
standard of 2020, dev as train) and `woz/woz_{train,test}_en.json.gz`; dialogues stay whole.

Source: McCann et al. 2018 (decaNLP, arXiv:1806.08730), section 2; its QA-SRL is another edition.
"""

import argparse
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file)


def sst(corpora: Path, split: str, count: int) -> list[Record]:
    rows = [line.split("\t") for line in _lines(corpora / f"sst2/{split}.tsv.gz")][:count]
    asked = {"question": "Is this review negative or positive?"}
    return [
        {"text": text, **asked, "answer": ("negative", "positive")[int(label)]}
        for text, label in rows
    ]


def qasrl(corpora: Path, split: str, count: int, longest: int | None = None) -> list[Record]:
    """Some questions, evenly over all whose text has `longest` words at most, and whose first
    answer a fourth.
    """
    name = {"train": "dev"}.get(split, split)
    every = (json.loads(line) for line in _lines(corpora / f"qasrl-gs/{name}.jsonl.gz"))
    rows = [row for row in every if row["answers"] and (longest is None or _short(row, longest))]
    some = rows[:: max(1, len(rows) // count)][:count]
    return [
        {"text": row["context"], "question": row["question"], "answers": row["answers"]}
        for row in some
    ]


def _short(row: Record, longest: int) -> bool:
    return len(row["context"].split()) <= longest and len(row["answers"][0].split()) <= longest // 4


def change(state: Mapping[str, str], before: Mapping[str, str], requests: Sequence[str]) -> str:
    """The answer of a turn of WOZ: slots that have changed, then what is asked for.

    >>> change({"food": "thai", "area": "west"}, {"area": "west"}, ["phone"])
    'food: thai; phone'
    >>> change({}, {}, [])
    'None'
    """
    changed = ", ".join(
        f"{slot}: {value}" for slot, value in state.items() if before.get(slot) != value
    )
    return f"{changed}; {', '.join(requests)}".rstrip() if changed or requests else "None"


def woz(corpora: Path, split: str, count: int) -> list[Record]:
    found = list[Record]()
    for dialogue in json.loads("".join(_lines(corpora / f"woz/woz_{split}_en.json.gz"))):
        before = dict[str, str]()
        for turn in dialogue["dialogue"]:
            acts = ", ".join(
                act if isinstance(act, str) else ": ".join(act) for act in turn["system_acts"]
            )
            state, requests = (
                [pair for one in turn["belief_state"] if one["act"] == act for pair in one["slots"]]
                for act in ("inform", "request")
            )
            answer = change(dict(state), before, [value for _, value in requests])
            text = f"{acts} -- {turn['transcript']}" if acts else turn["transcript"]
            asked = {
                "question": "What is the change in state?",
                "dialogue": str(dialogue["dialogue_idx"]),
            }
            found.append({"text": text, **asked, "answer": answer})
            before = dict(state)
        if len(found) >= count:
            break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--train", type=int, default=600)
    parser.add_argument("--test", type=int, default=150)
    parser.add_argument(
        "--longest",
        type=int,
        help="Words of the longest text of QA-SRL; its answers have a fourth.",
    )
    given = parser.parse_args()
    for name, made in {
        "sst": sst,
        "qasrl": partial(qasrl, longest=given.longest),
        "woz": woz,
    }.items():
        (given.out / name).mkdir(parents=True)
        for split in ("train", "test"):
            lines = (
                json.dumps(record) + "\n"
                for record in made(given.corpora, split, getattr(given, split))
            )
            (given.out / name / f"{split}.jsonl").write_text("".join(lines), "utf-8")


if __name__ == "__main__":
    main()
