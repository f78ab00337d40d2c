"""lm-evaluation-harness asks a server and a model in process for the same: the last words of texts.

    python -m tests.endurance.harness_over_http INDEX REPORT LAMBADA --store STORE [--items 25]

LAMBADA is a file of JSON lines with `text`. Prints the largest difference between two
log-probabilities, for how many items both say alike whether the word is the likeliest, and whether
both write the same behind a prompt. Ends with 1 if anything differs.
"""

import argparse
import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lm_eval.models.openai_completions import LocalCompletionsAPI

from memlm_cli.harness import MemlmLM
from tests.endurance.serving import server

PROMPT = ("The tower was built in", {"until": ["."], "max_gen_toks": 12})
ALIKE = 1e-4
"""Nats by which sums over a word may differ."""


def last_words(file: Path, items: int) -> list[Any]:
    """Requests for the last word of each text."""
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line, _ in zip(lines, range(items), strict=False)]
    split = [text.rsplit(" ", 1) for text in texts]
    return [SimpleNamespace(args=(context, f" {word}")) for context, word in split]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index")
    parser.add_argument("report")
    parser.add_argument("lambada", type=Path)
    parser.add_argument("--store", required=True)
    parser.add_argument("--items", type=int, default=25)
    asked = parser.parse_args()

    words, prompts = last_words(asked.lambada, asked.items), [SimpleNamespace(args=PROMPT)]
    with server(asked.report, Path(asked.store)) as (host, _):
        there = LocalCompletionsAPI(
            base_url=f"http://{host}/v1/completions",
            model=asked.report.rpartition("/")[2],
            tokenizer_backend="remote",
            max_length=512,
            batch_size=5,
        )
        over_http, text_over_http = there.loglikelihood(words), there.generate_until(prompts)

    here = MemlmLM(asked.index, report=asked.report, store=asked.store, device="cpu")
    in_process, text = here.loglikelihood(words), here.generate_until(prompts)
    pairs = list(zip(over_http, in_process, strict=True))
    difference = max(abs(one[0] - other[0]) for one, other in pairs)
    alike = sum(one[1] == other[1] for one, other in pairs)
    print(f"largest difference {difference:.1e} nats; likeliest alike {alike} of {len(pairs)}")
    print(f"texts {'the same' if text == text_over_http else 'differ'}: {text_over_http}")
    return 0 if difference < ALIKE and alike == len(pairs) and text == text_over_http else 1


if __name__ == "__main__":
    sys.exit(main())
