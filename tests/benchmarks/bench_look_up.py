"""Pairs looked up within reach of attention and far beyond it, with a memory of entries, without one, and with others.

    python -m tests.benchmarks.bench_look_up [--updates 2400 --seeds 0 1 2 --models NAME …]

One layer of width 48 reads streams of 1,024 tokens in segments of 64 with 64 cached positions. A token says `a:b`, one
of 32 names and of 16 values; `?a` asks for it. *Near*: the pair was stated within 64 tokens; *far*: beyond the 128 that
a layer can reach. A guess is right for 1/16. A line a model and a seed: shares of right answers, and seconds of
processor time of the training. `read` is the size of the memory at test.
"""

import argparse
import json
import time
from typing import Any

from stages.models.config import BackboneConfig, parse_model
from stages.models.devices import tune_allocator
from stages.models.language_model import LanguageModel
from stages.models.windows import WindowSettings
from tests.stages.models.layers.made_tasks import accuracy, batches_of, learned, look_up

NAMES, VALUES, SEGMENT, LENGTH, ROWS = 32, 16, 64, 1024, 32
TYPES = NAMES * VALUES + NAMES + VALUES
SHAPE = {"backbone": "transformer-xl", "width": 48, "layers": 1, "heads": 4, "ffn_width": 96, "dropout": 0.0}
ENTRIES = 512
MODELS: dict[str, tuple[dict[str, Any], tuple[int | None, ...]]] = {
    "transformer-xl": ({}, (None,)),
    "memorizing": ({"attention": {"name": "memorizing", "long_length": ENTRIES}}, (0, ENTRIES, 2 * ENTRIES)),
    "compressive": ({"attention": {"name": "compressive", "long_length": ENTRIES // 4, "rate": 4}}, (None,)),
    "infinity": ({"attention": {"name": "infinity", "basis": 128, "samples": 128, "contraction": 0.75}}, (None,)),
}
"""With the sizes of memory that each is read with; None: that of training."""


def resized(model: LanguageModel, config: BackboneConfig, entries: int | None) -> LanguageModel:
    if entries is None:
        return model
    other = LanguageModel(config.reading(WindowSettings(SEGMENT, SEGMENT, None, entries)))
    other.load_state_dict(model.state_dict())
    return other.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=2400, help="of 32 segments of 64 tokens each")
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    given = parser.parse_args()
    tune_allocator()
    for seed in given.seeds:
        task, _ = look_up(min(4096, ROWS * given.updates * SEGMENT // LENGTH), NAMES, VALUES, LENGTH + 1, 2 * seed)
        test, back = look_up(64, NAMES, VALUES, LENGTH + 1, 2 * seed + 1)
        near, far = test.asked & (back <= SEGMENT), back > 2 * SEGMENT
        for name in given.models:
            chosen, sizes = MODELS[name]
            config = parse_model({**SHAPE, "mem_length": SEGMENT, **chosen}).sized(TYPES, SEGMENT)
            started = time.process_time()
            model = learned(config, batches_of(task, ROWS, seed), given.updates, given.lr, SEGMENT, seed)
            took = round(time.process_time() - started, 1)
            for entries in sizes:
                reader = resized(model, config, entries)
                right = {
                    part: round(accuracy(reader, test, where), 3) for part, where in (("near", near), ("far", far))
                }
                print(json.dumps({"model": name, "seed": seed, "read": entries, **right, "seconds": took}), flush=True)


if __name__ == "__main__":
    main()
