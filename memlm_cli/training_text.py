"""Whether a model was trained for long enough, as text for people."""

from collections.abc import Iterator, Mapping
from math import exp
from typing import TYPE_CHECKING, Any

from stages.errors import ArtifactError
from stages.evaluation.figures.remarks import LONGER, passes, unknown_rate_line
from stages.metrics import undertrained
from stages.numbers import number

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact

Figures = Mapping[str, Any]


def training_lines(model: "Artifact") -> Iterator[str]:
    """Whether a model was trained for long enough, and how much of valid is no word that it could know."""
    line = training_line(model.metrics)
    if line is not None:
        yield line
    if model.metrics.get("valid_perplexity") is not None:
        yield from unknown_rate_line("valid", _unknown_rate(model))


def _unknown_rate(model: "Artifact") -> float | None:
    """Share of unknown tokens of valid; None where the tokens are no longer there."""
    try:
        rate: float = model.input("tokens").metrics["splits"]["valid"]["unknown_rate"]
    except ArtifactError:
        return None
    return rate


def training_line(model: Figures) -> str | None:
    """How often a model read its text, how validation ended, and what to do; None where its metrics do not say.

    Args:
        model: metrics of a model, see `stages.training.convergence`.
    """
    if "passes" not in model:
        return None
    return f"{passes(model['passes'])} over the text; {_ending(model)}{_more(model)}"


def _ending(model: Figures) -> str:
    validations = [(f"{one['step']:,}", _perplexity(one["loss"])) for one in model["last_validations"]]
    if not validations:
        return "there is no validation split to tell when it is enough"
    if len(validations) == 1:
        return f"validated once only, at step {validations[0][0]} (--set valid_every=N tells whether it still falls)"
    (before, first), (last, second) = validations
    lowest = f"{_perplexity(model['valid_loss'])} at step {model['valid_step']:,}"
    if model["still_falling"]:
        steps = f"({first} at step {before}; lowest {lowest})"
        if undertrained(model):
            return f"validation perplexity was still falling late in the run {steps}"
        return (
            f"validation perplexity fell as the learning rate did {steps}: after so many passes no sign of more to come"
        )
    if model["valid_step"] < model["steps"]:
        return f"validation perplexity was lowest {lowest}, whose weights are kept, and {second} at the last step"
    fell = f"validation perplexity fell by less than 1% at the end ({first} at step {before}, {second} at step {last})"
    return f"{fell}, a sign that more steps would gain little"


def _perplexity(loss: float) -> str:
    return number(exp(min(loss, 700)))


def _more(model: Figures) -> str:
    """Advice on a run that was too short."""
    if not undertrained(model):
        return ""
    return f": train longer, {LONGER} (a memory gains more on an undertrained model)"
