"""Whether a model was trained for long enough, by its metrics; see `stages.training.outputs`."""

from collections.abc import Iterator
from math import exp

from stages.metrics import undertrained
from stages.numbers import number, passes
from stages.reports.remarks.remark import Figures, Finding


def long_enough(model: Figures) -> Iterator[Finding]:
    """How often a model read its text, how validation ended, and whether a longer run would have made it better.

    Of a model with a `head` for labels only the first is told: it is not validated, and no memory of text is read."""
    if "passes" not in model:
        return
    yield "passes", {"passes": passes(model["passes"])}
    if model.get("head") is not None:
        return
    validations = model["last_validations"]
    if len(validations) < 2:
        yield (
            "validated-once" if validations else "never-validated",
            {"step": f"{sum(v['step'] for v in validations):,}"},
        )
    else:
        before, last = validations
        values = {"before": f"{before['step']:,}", "last": f"{last['step']:,}", "step": f"{model['valid_step']:,}"}
        losses = {"first": before["loss"], "second": last["loss"], "lowest": model["valid_loss"]}
        yield _ending(model), values | {name: number(exp(min(loss, 700))) for name, loss in losses.items()}
    if undertrained(model):
        yield "too-short", {}


def _ending(model: Figures) -> str:
    """The code of how validation ended."""
    if model["still_falling"]:
        return "still-falling" if undertrained(model) else "fell-with-rate"
    return "lowest-before-end" if model["valid_step"] < model["steps"] else "settled"
