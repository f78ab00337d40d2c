"""lm-evaluation-harness asks a server and a model in process for the same: ends of texts.

    python -m tests.endurance.harness_over_http REF --store STORE [--report REPORT] \\
        [--lambada FILE] [--sst2 FILE] [--items 25] [--batch-size 16 --together 1] [--hf FOLDER]

REF is a model or an index. Without a report it is read alone. Then a folder of transformers may
be compared, too. LAMBADA is a file of JSON lines with `text`, of which the last word is asked.
SST-2 is a file of lines `sentence TAB label`; the answers are `negative` and `positive`. Both may
be gzipped.

Prints a line of JSON for each door of each task. It has the largest difference of a
log-probability from the model in process, in nats. `alike` counts the items of which both say the
same: whether the end is the likeliest. Seconds are those of the processor, and of the clock. Ends
with 1 if the server differs.
"""

import argparse
import gzip
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lm_eval.models.openai_completions import LocalCompletionsAPI

from memlm_cli.harness import MemlmLM
from tests.endurance.serving import server

PROMPT = ("The tower was built in", {"until": ["."], "max_gen_toks": 12})
ALIKE = 1e-4
"""Nats by which sums over a word may differ."""
LABELS = (" negative", " positive")


def lines_of(file: Path, number: int) -> Iterator[str]:
    """The first lines of a file, which may be gzipped."""
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8") as lines:
        yield from islice(lines, number)


def last_words(file: Path, items: int) -> list[Any]:
    """Requests for the last word of each text."""
    texts = [json.loads(line)["text"] for line in lines_of(file, items)]
    split = [text.rsplit(" ", 1) for text in texts]
    return [request(context, f" {word}") for context, word in split]


def reviews(file: Path, items: int) -> list[Any]:
    """Requests for both answers about each sentence."""
    sentences = [line.split("\t")[0].strip() for line in lines_of(file, items)]
    questions = [
        f"Review: {sentence}\nIs this review negative or positive? Answer:"
        for sentence in sentences
    ]
    return [request(question, label) for question in questions for label in LABELS]


def request(context: str, continuation: str) -> Any:
    """A request of the harness for the log-probability of a continuation."""
    return SimpleNamespace(args=(context, continuation))


def over_http(host: str, name: str, asked: argparse.Namespace) -> LocalCompletionsAPI:
    """The harness's client of a server."""
    return LocalCompletionsAPI(
        base_url=f"http://{host}/v1/completions",
        model=name,
        tokenizer_backend="remote",
        max_length=512,
        batch_size=asked.batch_size,
        num_concurrent=asked.together,
    )


def in_process(asked: argparse.Namespace) -> MemlmLM:
    """memlm's own model of the harness."""
    memory: dict[str, Any] = {} if asked.report else {"memory": None}
    return MemlmLM(
        asked.reference, report=asked.report, store=str(asked.store), device="cpu", **memory
    )


def of_transformers(folder: Path, batch_size: int) -> Any:
    """The harness's own model of transformers."""
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=batch_size)


@contextmanager
def processor_seconds(*processes: int) -> Iterator[Callable[[], float]]:
    """Processor time of this process and others since the beginning."""

    def used() -> float:
        ticks = 0
        for process in processes:
            # The name of a command, in parentheses, may hold spaces.
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        own = resource.getrusage(resource.RUSAGE_SELF)
        return ticks / os.sysconf("SC_CLK_TCK") + own.ru_utime + own.ru_stime

    began = used()
    yield lambda: used() - began


def timed(door: Any, tasks: dict[str, list[Any]], *processes: int) -> dict[str, dict[str, Any]]:
    """Answers of a door for each task, with seconds."""
    results = {}
    for task, requests in tasks.items():
        began = time.monotonic()
        with processor_seconds(*processes) as seconds:
            answers = door.loglikelihood(requests, disable_tqdm=True)
            results[task] = {
                "answers": answers,
                "processor_seconds": round(seconds(), 1),
                "seconds": round(time.monotonic() - began, 1),
            }
    return results


def compared(door: str, task: str, result: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Print how the answers of a door differ from others; returns whether they are alike."""
    pairs = list(zip(result.pop("answers"), wanted["answers"], strict=True))
    difference = max(abs(answer[0] - other[0]) for answer, other in pairs)
    alike = sum(answer[1] == other[1] for answer, other in pairs)
    line = {"task": task, "door": door, "requests": len(pairs)}
    line |= {"largest_difference": difference, "alike": alike, **result}
    print(json.dumps(line), flush=True)
    return difference < ALIKE and alike == len(pairs)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reference", metavar="REF")
    parser.add_argument("--report")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--lambada", type=Path)
    parser.add_argument("--sst2", type=Path)
    parser.add_argument("--items", type=int, default=25)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--hf", type=Path, metavar="FOLDER")
    asked = parser.parse_args()

    tasks: dict[str, list[Any]] = {}
    if asked.lambada:
        tasks["lambada"] = last_words(asked.lambada, asked.items)
    if asked.sst2:
        tasks["sst2"] = reviews(asked.sst2, asked.items)
    prompts = [SimpleNamespace(args=PROMPT)]

    served = asked.report or asked.reference
    with server(served, asked.store) as (host, process):
        there = over_http(host, served.rpartition("/")[2], asked)
        of_server = timed(there, tasks, process)
        text_over_http = there.generate_until(prompts)
    here = in_process(asked)
    of_here = timed(here, tasks)
    text = here.generate_until(prompts)
    of_hf = timed(of_transformers(asked.hf, asked.batch_size), tasks) if asked.hf else {}

    is_alike = text == text_over_http
    print(json.dumps({"text": text_over_http, "alike": is_alike}), flush=True)
    for task in tasks:
        wanted = of_here[task] | {}
        is_alike &= compared("server", task, of_server[task], wanted)
        if of_hf:
            compared("hf", task, of_hf[task], wanted)
        compared("process", task, of_here[task], wanted)
    return 0 if is_alike else 1


if __name__ == "__main__":
    sys.exit(main())
