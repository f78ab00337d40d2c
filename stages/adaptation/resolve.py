"""Settings of dynamic evaluation that follow from artifacts, and what it refuses. Free of torch."""

from collections.abc import Mapping

from stages.adaptation.settings import EPSILON, RANK, SEGMENT, Dynamic
from stages.artifacts.artifact import Artifact
from stages.errors import UsageError
from stages.examples.cutting import WindowSettings
from stages.methods.config import TRAIN
from stages.models.config import model_of

AUTHORS_SEGMENT = 5
"""Tokens of a segment for which the authors' code gives its grid; numbers grow with a segment."""
RATES = (0.000015, 0.00003, 0.00006, 0.00012)
DECAYS = (0.001, 0.003)
"""Default candidates for such a segment. The authors' are within the same bounds."""
LONGEST_SCALED = 64
"""Longest segment with which the default candidates grow."""
LOW_RANK_RATES = (0.0003, 0.001, 0.003)
"""Default candidates of Adam's rate."""


def resolve_dynamic(
    dynamic: Dynamic,
    read: Mapping[str, Artifact],
    windows: WindowSettings,
    *,
    score: str,
    workers: int,
) -> Dynamic:
    """The settings with segment, rank and candidates filled in.

    Args:
        read: what the evaluation reads, by role.
        windows: windows or segments in which the model reads.
        score: tokens that are scored, `all` or `last-word`.
        workers: processes that compute shards.
    Raises: UsageError for models that cannot learn so, and for settings that do not fit them.
    """
    _require_model(read["model"])
    if score != "all":
        raise UsageError(
            f"--memory {dynamic.spelled}: last words are ranked when a range is read, and the "
            "weights are others then: leave --score out."
        )
    if workers > 1 and dynamic.scope == "stream":
        raise UsageError(
            f"--memory {dynamic.spelled}: each segment is read with what the one before taught, so "
            "ranges cannot be read side by side: leave --workers out."
        )
    if dynamic.what == "all" and TRAIN not in read["tokens"].metrics["splits"]:
        raise UsageError(
            f"--memory {dynamic.spelled}: what=all measures gradients on train, and "
            f"{read['tokens'].reference} has no train: use what=lora."
        )
    segment = _segment(dynamic, read["model"], windows)
    update: dict[str, object] = {"segment": segment}
    if dynamic.what == "lora":
        update["rank"] = dynamic.rank or RANK
        update["decay"] = (0.0,)
    else:
        update["epsilon"] = dynamic.epsilon or EPSILON
    if dynamic.rate == "tune":
        rates = LOW_RANK_RATES if dynamic.what == "lora" else _scaled(RATES, segment)
        update["rate"] = (0.0, *rates)
    if dynamic.decay == "tune" and dynamic.what != "lora":
        update["decay"] = _scaled(DECAYS, segment)
    return dynamic.model_copy(update=update)


def _scaled(candidates: tuple[float, ...], segment: int) -> tuple[float, ...]:
    factor = min(segment, LONGEST_SCALED) / AUTHORS_SEGMENT
    return tuple(float(f"{factor * value:.4g}") for value in candidates)


def _segment(dynamic: Dynamic, artifact: Artifact, windows: WindowSettings) -> int:
    """Tokens of a segment; of a model that reads windows, those that a window scores."""
    if model_of(artifact).carries_state:
        return dynamic.segment or SEGMENT
    if dynamic.segment not in (None, windows.stride):
        raise UsageError(
            f"--memory {dynamic.spelled}: {artifact.reference} reads windows, and learns from each: "
            f"leave segment out, and give --stride {dynamic.segment}."
        )
    return windows.stride


def _require_model(artifact: Artifact) -> None:
    """Refuse a model that dynamic evaluation does not know.

    Raises: UsageError with the reason.
    """
    model = model_of(artifact)
    reasons = {
        "translates, and reads every sentence with its source": model.reads.source,
        "makes keys, and predicts no token": model.pools,
        "learned with a gate of neighbours": model.reads_neighbors,
    }
    for reason, holds in reasons.items():
        if holds:
            raise UsageError(
                f"{artifact.reference} {reason}: dynamic evaluation is of language models alone."
            )
