"""Text of an imported model, token by token, beside `generate` of transformers; and what memories
and drafts change.

    memlm tokenize --tokenizer FOLDER --train train.jsonl --test test.jsonl --name code
    memlm import-model FOLDER tokens/code --name smol
    memlm build-index tokens/code --index exact --name exact
    memlm build-datastore model/smol | memlm build-index --name smol
    python -m tests.benchmarks.bench_generate FOLDER --store memlm-store
    python -m tests.benchmarks.bench_generate --own

FOLDER is a model as `save_pretrained` wrote it. All times are of the processor, with one thread, in
turns: ratios of one run compare. Prompts are from the test split. `--own` measures what a token of
models made here costs behind longer and longer texts.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from stages.artifacts.store import Store
from stages.generation import GenerationRequest
from stages.generation.generate import generate_each, open_writer
from stages.generation.mixing import MemoryMixer
from stages.generation.session import TextSession
from stages.inspection.reading import MemoryReader
from stages.inspection.request import Request
from stages.models.language_model import LanguageModel
from tests.stages.small_text import text_model, text_tokens

PROMPTS = (100, 500, 2000)
"""Tokens of a prompt."""
TOKENS = 32
"""Tokens that are written behind a prompt."""
TOGETHER = 8
"""Prompts of a batch."""
BATCH_PROMPT = 100
"""Tokens of the longest prompt of a batch; the others are up to a third shorter."""
MEMORIES = {
    "kNN-LM, k 1,024": "external:k=1024,temperature=10,lambda=0.25",
    "exact": "exact:matches=64,temperature=1,lambda=0.25",
}
Run = Callable[[], object]


def processor_seconds(run: Run) -> float:
    """Processor time of a run."""
    began = time.process_time()
    run()
    return time.process_time() - began


def medians(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    """Median processor time of each run; they take turns, after one that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            seconds = processor_seconds(run)
            if number:
                times[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def ours(reader: MemoryReader, prompts: Sequence[Sequence[int]], **settings: Any) -> list[int]:
    """Write the likeliest tokens behind prompts; returns those of the first one."""
    wanted = GenerationRequest(
        **{"max_tokens": TOKENS, "temperature": 0, "stop_at_eos": False} | settings
    )
    steps = generate_each(reader, prompts, wanted)
    return [token.id for step in steps if step.number == 0 for token in step.tokens]


def theirs(model: Any, prompts: Sequence[Sequence[int]]) -> list[int]:
    """The same by transformers, which pads prompts at the beginning."""
    longest = max(map(len, prompts))
    rows = [[0] * (longest - len(ids)) + list(ids) for ids in prompts]
    mask = [[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts]
    with torch.no_grad():
        written = model.generate(
            torch.tensor(rows),
            attention_mask=torch.tensor(mask),
            max_new_tokens=TOKENS,
            min_new_tokens=TOKENS,
            do_sample=False,
            pad_token_id=0,
        )
    found: list[int] = written[0, longest:].tolist()
    return found


def beside_transformers(
    reader: MemoryReader, model: Any, ids: list[int], rounds: int
) -> Iterator[dict[str, Any]]:
    """Seconds of whole texts, prompt included."""
    cases = {f"prompt of {length:,}": [ids[:length]] for length in PROMPTS}
    step = BATCH_PROMPT // 3 // TOGETHER
    cases[f"{TOGETHER} prompts of {BATCH_PROMPT - step * (TOGETHER - 1)} to {BATCH_PROMPT}"] = [
        ids[200 * row : 200 * row + BATCH_PROMPT - step * row] for row in range(TOGETHER)
    ]
    for name, prompts in cases.items():
        same = ours(reader, prompts) == theirs(model, prompts)
        runs: dict[str, Run] = {
            "memlm": partial(ours, reader, prompts),
            "transformers": partial(theirs, model, prompts),
        }
        seconds = medians(runs, rounds)
        yield {
            "what": name,
            "seconds": seconds["memlm"],
            "beside": seconds["transformers"],
            "ratio": seconds["memlm"] / seconds["transformers"],
            "same_text": same,
        }


def memory_share(name: str, reader: MemoryReader, ids: list[int]) -> dict[str, Any]:
    """Seconds that memories take of a token, over those of the model; both in the same steps, since
    the times of two runs differ by more than a memory takes.
    """
    mix, predict = MemoryMixer.mix, LanguageModel.predict
    seconds = {"mix": 0.0, "predict": 0.0}

    def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            began = time.process_time()
            found = call(*given)
            seconds[name] += time.process_time() - began
            return found

        return run

    session = TextSession(reader)
    text = session.add(ids[: PROMPTS[0]])
    for _ in range(3):
        session.put([text], session.step().argmax(1).tolist())
    with (
        patch.object(MemoryMixer, "mix", timed("mix", mix)),
        patch.object(LanguageModel, "predict", timed("predict", predict)),
    ):
        began = time.process_time()
        for _ in range(TOKENS):
            session.put([text], session.step().argmax(1).tolist())
        whole = time.process_time() - began
    memories = seconds["mix"] - seconds["predict"]
    return {
        "what": name,
        "seconds": memories / TOKENS,
        "beside": (whole - memories) / TOKENS,
        "ratio": whole / (whole - memories),
    }


def with_drafts(reader: MemoryReader, ids: list[int], rounds: int) -> dict[str, Any]:
    """Tokens a second with drafts of an exact index, over those without; several prompts."""
    prompts = [ids[start : start + PROMPTS[0]] for start in range(0, 2000, 500)]
    more = {"max_tokens": 2 * TOKENS, "batch_size": 1}
    runs: dict[str, Run] = {
        "alone": lambda: ours(reader, prompts, **more),
        "drafted": lambda: ours(reader, prompts, draft="exact", **more),
    }
    seconds = medians(runs, rounds)
    tokens = 2 * TOKENS * len(prompts)
    return {
        "what": "drafts",
        "tokens_per_second": tokens / seconds["drafted"],
        "beside": tokens / seconds["alone"],
        "ratio": seconds["alone"] / seconds["drafted"],
    }


def opening(store: Store, folder: Path, rounds: int) -> dict[str, Any]:
    """Seconds until a model can write, over those of `from_pretrained`."""
    from transformers import AutoModelForCausalLM

    runs: dict[str, Run] = {
        "memlm": lambda: opened(store, "none"),
        "transformers": lambda: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
    }
    seconds = medians(runs, rounds)
    ratio = seconds["memlm"] / seconds["transformers"]
    return {
        "what": "opening",
        "seconds": seconds["memlm"],
        "beside": seconds["transformers"],
        "ratio": ratio,
    }


def opened(store: Store, memory: str, draft: str = "none") -> MemoryReader:
    """The model or index called `smol` with one memory."""
    source = "index/smol" if memory.startswith("external") else "model/smol"
    index = "index/exact" if memory.startswith("exact") or draft == "exact" else None
    request = Request(source=source, memory=(memory,), index=index, device="cpu")
    return open_writer(request, store, draft)


LENGTHS = (256, 1024, 4096, 8192)
"""Tokens before those that are timed."""
SEGMENT = 128
_SIZES: dict[str, Any] = {
    "layers": 4,
    "width": 256,
    "heads": 4,
    "ffn_width": 1024,
    "dropout": 0.0,
}
_STREAM = {"segment_length": SEGMENT, "mem_length": SEGMENT}
OWN: dict[str, dict[str, Any]] = {
    "softmax": {"backbone": "transformer", "positions": "sinusoidal", **_SIZES},
    "MemSizer": {
        **{"backbone": "transformer", "positions": "sinusoidal", **_SIZES},
        **{"attention": {"name": "memsizer"}},
    },
    "LSTM": {"backbone": "lstm", "layers": 2, "width": 256, "dropout": 0.0},
    "Transformer-XL": {"backbone": "transformer-xl", **_SIZES, **_STREAM},
}


def own_models(folder: Path) -> Iterator[dict[str, Any]]:
    """Seconds a token behind texts of several lengths, over those behind the shortest."""
    store = Store(folder / "store")
    tokens = text_tokens(store, folder)
    for name, model in OWN.items():
        made = text_model(store, tokens, model, segment_length=SEGMENT)
        request = Request(source=made.reference, memory=("none",), device="cpu")
        reader = open_writer(request, store)
        seconds = [token_seconds(reader, length) for length in LENGTHS]
        yield {
            "what": name,
            "ms": round(1e3 * seconds[0], 3),
            "ratios": dict(zip(LENGTHS, [second / seconds[0] for second in seconds], strict=True)),
        }


def token_seconds(reader: MemoryReader, length: int) -> float:
    """Mean processor time of a token behind `length` others, over two windows of text."""
    session = TextSession(reader)
    random = np.random.default_rng(0)
    text = session.add(random.integers(0, reader.text.vocabulary_size, length).tolist())

    def write(tokens: int) -> None:
        for _ in range(tokens):
            session.put([text], session.step().argmax(1).tolist())

    write(1)
    return processor_seconds(partial(write, 2 * SEGMENT)) / (2 * SEGMENT)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--store", type=Path, default=Path("memlm-store"))
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.own:
        with tempfile.TemporaryDirectory() as folder:
            for row in own_models(Path(folder)):
                print(json.dumps(row), flush=True)
        return
    from transformers import AutoModelForCausalLM

    store = Store(given.store)
    tokens = store.get("tokens/code", "tokens").zarr("tokens.zarr")
    ids = tokens["test/ids"][:].astype(int).tolist()
    plain = opened(store, "none")
    model = AutoModelForCausalLM.from_pretrained(given.folder, dtype=torch.float32).eval()
    for row in beside_transformers(plain, model, ids, given.rounds):
        print(json.dumps(row), flush=True)
    for name, memory in MEMORIES.items():
        print(json.dumps(memory_share(name, opened(store, memory), ids)), flush=True)
    drafted = opened(store, "none", "exact")
    print(json.dumps(with_drafts(drafted, ids, given.rounds)), flush=True)
    print(json.dumps(opening(store, given.folder, given.rounds)), flush=True)


if __name__ == "__main__":
    main()
