"""Learning rate over the steps."""

import math

from stages.training.config import ScheduleConfig


def learning_rate_factor(step: int, steps: int, schedule: ScheduleConfig) -> float:
    """Learning rate of an update as a multiple of the highest one.

    Rises linearly over the warm-up, then: `cosine` falls to `final` at the last step, `inverse-sqrt`
    falls as sqrt(warmup / step), `constant` stays.

    Args:
        step: number of the update, from 1.
        steps: all updates of the training.
    """
    warmup = schedule.warmup
    if step < warmup:
        return step / warmup
    match schedule.name:
        case "cosine":
            progress = (step - warmup) / max(1, steps - warmup)
            return schedule.final + (1 - schedule.final) * (1 + math.cos(math.pi * min(1.0, progress))) / 2
        case "inverse-sqrt":
            return math.sqrt(max(1, warmup) / step)
        case _:
            return 1.0
