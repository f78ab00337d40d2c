"""What a scored range leaves behind of a model's gate."""

from typing import Any

import numpy as np

from stages.evaluation.gate.analysis import GateScores, Shown, histogram
from stages.evaluation.readings.complete import doubling_cutoffs
from stages.evaluation.results.metrics import finite


def gate_record(gate: GateScores) -> dict[str, Any]:
    """What `stages.evaluation.gate.report` needs of c counted tokens, JSON; sums are in float64."""
    nll = -gate.log_p.double().sum(0).cpu().numpy()
    return {
        "tokens": len(gate.mean),
        "sum": float(gate.mean.double().sum()),
        "token_histogram": histogram(gate.mean).tolist(),
        "value_histogram": gate.values.tolist(),
        "hits": {str(k): int((gate.first_hits < k).sum()) for k in doubling_cutoffs(gate.neighbors)},
        "nll": [finite(float(one)) for one in nll],
        "passage": _shown(gate.shown),
    }


def _shown(shown: Shown) -> list[dict[str, Any]]:
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
