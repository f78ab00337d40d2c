"""What a scored range leaves behind of a model's gate."""

from typing import Any

import numpy as np

from stages.diagnostics.gate.analysis import GateScores, ShownPassage, histogram
from stages.memory.hyperparameter import doubling_cutoffs
from stages.metrics import finite


def gate_record(gate: GateScores) -> dict[str, Any]:
    """What `stages.diagnostics.gate.report` needs of c counted tokens, JSON; sums are in float64."""
    nll = -gate.log_p.double().sum(0).cpu().numpy()
    return {
        "tokens": len(gate.mean),
        "sum": float(gate.mean.double().sum()),
        "token_histogram": histogram(gate.mean).tolist(),
        "value_histogram": gate.values.tolist(),
        "matches": {str(k): int((gate.first_matches < k).sum()) for k in doubling_cutoffs(gate.neighbors)},
        "nll": [finite(float(one)) for one in nll],
        "passage": _shown(gate.shown),
    }


def _shown(shown: ShownPassage) -> list[dict[str, Any]]:
    probabilities = np.exp(shown.log_p.double().cpu().numpy())
    return [
        {"token": token, "probability": probability, "gate": [round(value, 6) for value in gates], "neighbors": others}
        for token, probability, gates, others in zip(
            shown.targets.tolist(),
            probabilities.tolist(),
            shown.gates.double().cpu().tolist(),
            shown.neighbors.tolist(),
            strict=True,
        )
    ]
