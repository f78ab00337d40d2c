"""How far back memories of layers find something: documents much longer than those that were learned from.

    python -m tests.benchmarks.bench_reach [--lengths 48 192 768 3072 --seeds 1 2 3]

One layer of width 32 learns `beginnings` (which of 8 names stood in the first segment of a document? A guess is right
for 0.125) on documents of six segments of 8 tokens with 8 cached positions, and is then asked at the end of longer
ones, with a memory as long as they are, where it has a length. A line a model: the share of right answers by length of
the document, a mean over data drawn with each of the seeds and its smallest and largest.
"""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from stages.models.config import BackboneConfig, parse_model
from stages.models.language_model import LanguageModel
from stages.models.windows import WindowSettings
from tests.stages.models.layers.made_tasks import accuracy, batches_of, beginnings, learned

SEGMENT, LEARNED, NAMES, ROWS = 8, 48, 8, 64
SHAPE = {"backbone": "transformer-xl", "width": 32, "layers": 1, "heads": 2, "ffn_width": 64, "dropout": 0.0}
SIGNAL = {"name": "infinity", "basis": 16, "widths": (0.05, 0.1), "samples": 16, "contraction": 0.75}
MODELS: dict[str, dict[str, Any]] = {
    "transformer-xl": {},
    "memorizing": {"name": "memorizing", "long_length": LEARNED, "neighbors": 8},
    "compressive": {"name": "compressive", "long_length": LEARNED // 4, "rate": 4},
    "infinity-even": SIGNAL | {"sticky": False},
    "infinity-sticky": SIGNAL,
}


def trained(attention: dict[str, Any], seed: int) -> LanguageModel:
    chosen = {"attention": attention} if attention else {}
    config = parse_model({**SHAPE, "mem_length": SEGMENT, **chosen}).sized(2 * NAMES + 1, SEGMENT)
    task = beginnings(4096, NAMES, LEARNED + 1, SEGMENT, 100 + seed)
    return learned(config, batches_of(task, 64, seed), 480, 1e-2, segment=SEGMENT)


def read(model: LanguageModel, config: BackboneConfig, length: int, seed: int) -> float:
    """Share of right answers at the end of documents of `length` inputs, with a memory of all of them."""
    remembered = None if config.lengths.long_length is None else length
    longer = LanguageModel(config.reading(WindowSettings(SEGMENT, SEGMENT, None, remembered)))
    longer.load_state_dict(model.state_dict())
    return accuracy(longer.eval(), beginnings(ROWS, NAMES, length + 1, SEGMENT, 1000 + seed))


def measured(name: str, lengths: list[int], seeds: list[int]) -> Iterator[tuple[int, list[float]]]:
    models = [trained(MODELS[name], seed) for seed in seeds]
    for length in lengths:
        yield length, [read(model, model.config, length, seed) for model, seed in zip(models, seeds, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[48, 192, 768, 3072], help="multiples of 8")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    given = parser.parse_args()
    for name in given.models:
        for length, right in measured(name, given.lengths, given.seeds):
            mean = sum(right) / len(right)
            row = {"model": name, "length": length, "right": mean, "least": min(right), "most": max(right)}
            print(json.dumps({key: round(v, 3) if isinstance(v, float) else v for key, v in row.items()}), flush=True)


if __name__ == "__main__":
    main()
