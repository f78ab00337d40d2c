"""kNN-LM of a pretrained model on tasks: perplexity falls, and what becomes of reasoning
(arXiv:2408.11815).

    python -m tests.endurance.reasoning MODEL WIKITEXT TASKS [--items 200] [--tasks piqa sst2] \\
        [--store STORE]

WIKITEXT holds `train.txt.gz`, `valid.txt` and `test.txt`; TASKS `piqa.jsonl` with `piqa.lst` (goal,
sol1, sol2; the right one), `sst2.jsonl` (text, label) and `lambada.jsonl` (text). The datastore is
of the first 154,000 bytes of WikiText-2, λ and temperature are those that its valid split chose.
Prints a line of JSON a task: the share of items that the model alone and kNN-LM answer rightly, how
many of them each answers alone, and their difference.
"""

import argparse
import gzip
import itertools
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SIZES = {"train": 154_000, "valid": 40_000, "test": 42_000}
TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{validation: {file}}}}}
validation_split: validation
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_target: label
doc_to_choice: choices
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""


def piqa(folder: Path) -> Iterator[dict[str, Any]]:
    labels = (folder / "piqa.lst").read_text().split()
    for line, label in zip(
        (folder / "piqa.jsonl").read_text("utf-8").split("\n"), labels, strict=False
    ):
        item = json.loads(line)
        choices = [item["sol1"], item["sol2"]]
        yield {
            "context": f"Question: {item['goal']}\nAnswer:",
            "choices": choices,
            "label": int(label),
        }


def sst2(folder: Path) -> Iterator[dict[str, Any]]:
    for line in (folder / "sst2.jsonl").read_text("utf-8").splitlines():
        item = json.loads(line)
        context = f"Review: {item['text']}\nIs this review negative or positive? Answer:"
        yield {"context": context, "choices": ["negative", "positive"], "label": int(item["label"])}


def lambada(folder: Path) -> Iterator[dict[str, Any]]:
    """The last word among the last words of the next three passages."""
    lines = [
        json.loads(line)["text"]
        for line in (folder / "lambada.jsonl").read_text("utf-8").splitlines()
    ]
    contexts, words = zip(*(line.rsplit(" ", 1) for line in lines), strict=True)
    for place, context in enumerate(contexts):
        others = [words[(place + step) % len(words)] for step in (1, 2, 3)]
        yield {"context": context, "choices": [words[place], *others], "label": 0}


TASKS = {"piqa": piqa, "sst2": sst2, "lambada": lambada}


def write_tasks(folder: Path, given: Path, names: Sequence[str], items: int) -> None:
    """A file of items and one of settings for each task."""
    for name in names:
        lines = (json.dumps(item) + "\n" for item in itertools.islice(TASKS[name](given), items))
        (folder / f"{name}.jsonl").write_text("".join(lines), "utf-8")
        (folder / f"{name}.yaml").write_text(
            TASK.format(name=f"memlm_{name}", file=folder / f"{name}.jsonl")
        )


def report_of(
    store: Path, model: str, wikitext: Path, folder: Path
) -> tuple[str, dict[str, float]]:
    """Reference of the report of kNN-LM on WikiText-2, and its perplexities by row."""
    arguments = []
    for split, size in SIZES.items():
        file = next(wikitext.glob(f"*{split}*"))
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        whole = content[:size].rpartition(b"\n")[0] + b"\n"
        (folder / f"{split}.txt").write_bytes(whole)
        arguments += [f"--{split}", str(folder / f"{split}.txt")]
    command = [
        sys.executable,
        "-m",
        "memlm_cli",
        "run",
        "knn-lm-pretrained",
        "--pretrained",
        model,
        *arguments,
    ]
    made = subprocess.run(
        [*command, "--store", str(store)], stdout=subprocess.PIPE, text=True, check=True
    )
    reference = next(word for word in made.stdout.split() if word.startswith("report/"))
    rows = json.loads((store / reference / "metrics.json").read_text())["rows"]
    return reference, {row["row"]: round(row["perplexity"], 2) for row in rows}


def answers(
    store: Path, folder: Path, names: Sequence[str], model_args: str
) -> dict[str, list[bool]]:
    """Whether each item of each task was answered rightly."""
    output = folder / ("plain" if "memory" in model_args else "memory")
    command = [
        sys.executable,
        "-m",
        "memlm_cli.harness",
        "run",
        "--model",
        "memlm",
        "--log_samples",
    ]
    command += ["--model_args", f"{model_args},store={store}", "--include_path", str(folder)]
    command += [
        "--tasks",
        ",".join(f"memlm_{name}" for name in names),
        "--output_path",
        str(output),
    ]
    subprocess.run(command, check=True, stdout=sys.stderr)
    found = {}
    for name in names:
        (file,) = output.rglob(f"samples_memlm_{name}_*.jsonl")
        samples = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        found[name] = [one["acc"] == 1 for one in sorted(samples, key=lambda one: one["doc_id"])]
    return found


def change(before: Sequence[bool], after: Sequence[bool]) -> tuple[float, float]:
    """Difference of two shares of the same items, and half of its 95 % interval, in percent of the
    items.

    >>> change([True, True, False, False], [True, False, True, True])
    (25.0, 81.3)
    """
    moves = [int(new) - int(old) for old, new in zip(before, after, strict=True)]
    mean = sum(moves) / len(moves)
    deviation = math.sqrt(sum((move - mean) ** 2 for move in moves)) / len(moves)
    return round(100 * mean, 1), round(196 * deviation, 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("wikitext", type=Path)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument(
        "--tasks", dest="names", nargs="+", choices=list(TASKS), default=list(TASKS)
    )
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = options.store or folder / "store"
        write_tasks(folder, options.tasks, options.names, options.items)
        report, perplexities = report_of(store, options.model, options.wikitext, folder)
        print(json.dumps({"report": report, **perplexities}), flush=True)
        index = json.loads((store / report / "manifest.json").read_text())["inputs"]["index"]
        reference = f"ref={index['kind']}/{index['id']}"
        plain = answers(store, folder, options.names, f"{reference},memory=none")
        memory = answers(store, folder, options.names, f"{reference},report={report}")
        for task, own in plain.items():
            pairs = list(zip(own, memory[task], strict=True))
            alone = {"plain": pairs.count((True, False)), "kNN-LM": pairs.count((False, True))}
            shares = {"plain": sum(own) / len(own), "kNN-LM": sum(memory[task]) / len(own)}
            line = {"task": task, "items": len(own), "right": shares, "right alone": alone}
            print(json.dumps(line | {"change, %": change(own, memory[task])}), flush=True)


if __name__ == "__main__":
    main()
