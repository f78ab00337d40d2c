"""A small training in a process of its own: `compiled_run.py FOLDER BACKBONE plain|compiled|traced
[STOP_AT]`.

Prints the lines of its journal, names of its weights, a digest of all that must not depend on
interruptions, and how many graphs were compiled. With STOP_AT it saves after every step, and ends
behind that one. `traced`: as compiled, but the graphs are run as they are, which spares a minute of
the C++ compiler.
"""

import hashlib
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

from stages.models.config import parse_model
from tests.builders.training import Notes, V, outcome, settings, trainer

XL = {
    "backbone": "transformer-xl",
    "width": 8,
    "heads": 2,
    "layers": 2,
    "mem_length": 8,
    "dropout": 0.1,
}
MODELS = {"transformer": settings().model, "transformer-xl": parse_model(XL).sized(V, 8)}


def trained(path: Path, backbone: str, kind: str, *stop: str) -> dict[str, Any]:
    """What a run in a folder ends with; its JSON is what is printed."""
    if kind == "traced":
        torch.compile = partial(torch.compile, backend="eager")  # type: ignore[assignment]
    notes = Notes(at=lambda step: str(step) in stop and os._exit(1))
    run = trainer(
        path, notes, None, 0 if stop else 1e9, model=MODELS[backbone], compile=kind != "plain"
    )
    run.train()
    state, best, lines = outcome(path, run)
    digest = hashlib.sha256(b"".join(state.values()) + best).hexdigest()
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    return {"lines": lines, "names": sorted(state), "digest": digest, "graphs": graphs}


if __name__ == "__main__":
    print(json.dumps(trained(Path(sys.argv[1]), *sys.argv[2:])))
