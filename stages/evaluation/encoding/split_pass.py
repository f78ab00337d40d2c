"""One pass of a model over a split, range after range, each with the history that the one before it left."""

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from stages.artifacts.stage import Shard

if TYPE_CHECKING:
    from stages.evaluation.encoding.history import History
    from stages.evaluation.encoding.trail import Trail
    from stages.evaluation.evaluator import Consultation, Evaluator

SAMPLE = "sample"
"""Phase, and key of the one part, that looks at a sample of the tuning split."""
TUNE = "tune"
SCORE = "score"


@dataclass(frozen=True)
class Part(Shard):
    """Tokens [start, stop) of a split, and what is done with them, its phase: SAMPLE, TUNE or SCORE."""

    phase: str
    start: int
    stop: int


@dataclass(frozen=True)
class SplitPass:
    """A pass over a split of `tokens` tokens, in parts of `step`."""

    phase: str
    split: str
    tokens: int
    step: int

    @property
    def parts(self) -> list[Part]:
        """All of the split, in order."""
        starts = range(0, self.tokens, self.step)
        return [Part(self._key(n), self.phase, s, min(s + self.step, self.tokens)) for n, s in enumerate(starts)]

    def number(self, part: Part) -> int:
        """Place of a part in the pass."""
        return part.start // self.step

    def consult(self, part: Part, evaluator: "Evaluator", trail: "Trail") -> "Consultation":
        """Read a part with the model, going on from the one before it."""
        history = self._history(part, evaluator, trail)
        analysed = self.phase == SCORE
        consultation = evaluator.consult(self.split, part.start, part.stop, history, analysed=analysed)
        trail.keep(part.key, consultation.after)
        return consultation

    def _history(self, part: Part, evaluator: "Evaluator", trail: "Trail") -> "History":
        """What the part before left in memory; of an earlier run's, what its tokens give when they are read again."""
        number = self.number(part)
        latest = trail.after(self._key(number - 1))
        if latest is not None:
            return latest
        first = max(0, number - ceil(evaluator.reach / self.step))
        history = trail.restart(self._key(first - 1) if first else None, first * self.step)
        for earlier in range(first, number):
            history = evaluator.past(self.split, earlier * self.step, (earlier + 1) * self.step, history)
        states = trail.restart(self._key(number - 1) if number else None, part.start)
        return replace(history, encoder_state=states.encoder_state)

    def _key(self, number: int) -> str:
        return f"{self.phase}-{number:06d}"
