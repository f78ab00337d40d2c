"""One pass of a model over a split, range after range, each with the state that the one before it left."""

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Shard

if TYPE_CHECKING:
    from stages.encoding.carried_state import CarriedState
    from stages.encoding.state_store import StateStore
    from stages.evaluation.evaluator import Evaluator, RangeResult

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
class RangePass:
    """A pass over a split of `tokens` tokens, in parts of `step`."""

    phase: str
    split: str
    tokens: int
    step: int
    reach: int
    """Positions that readings reach back from a token, 0 for none."""

    @property
    def parts(self) -> list[Part]:
        """All of the split, in order."""
        starts = range(0, self.tokens, self.step)
        return [Part(self._key(n), self.phase, s, min(s + self.step, self.tokens)) for n, s in enumerate(starts)]

    def number(self, part: Part) -> int:
        """Place of a part in the pass."""
        return part.start // self.step

    def read_range(
        self, part: Part, evaluator: "Evaluator", states: "StateStore", output: ShardOutput
    ) -> "RangeResult":
        """Read a part with the model, going on from the one before it."""
        carried = self._carried_into(part, evaluator, states)
        probed = self.phase == SCORE
        result = evaluator.read_range(self.split, part.start, part.stop, carried, probed=probed)
        idle = self.number(part) - self._parts_back - 1
        states.keep(output, part.key, result.after, idle=self._key(idle) if idle >= 0 else None)
        return result

    def state_bytes(self, of_one: int) -> int:
        """Size of the states on disk when there are most: those to go on from, and of two parts under way."""
        return (self._parts_back + 1 + 2) * of_one

    def _carried_into(self, part: Part, evaluator: "Evaluator", states: "StateStore") -> "CarriedState":
        """What is carried into a part: from memory if this process computed the part before.

        Else it is made again from the last saved state, by reading the tokens behind it once more.
        """
        number = self.number(part)
        latest = states.after(self._key(number - 1))
        if latest is not None:
            return latest
        carried = self._nearest_saved(max(0, number - self._parts_back), evaluator, states)
        for start in range(carried.start, part.start, self.step):
            carried = evaluator.past(self.split, start, start + self.step, carried)
        return carried

    def _nearest_saved(self, number: int, evaluator: "Evaluator", states: "StateStore") -> "CarriedState":
        """What is carried into a part, or into the latest before it whose states are on disk, if a model has any."""
        from stages.encoding.carried_state import CarriedState

        if not evaluator.carries_state:
            return CarriedState(number * self.step)
        return states.latest([self._key(earlier) for earlier in range(number)], self.step)

    @property
    def _parts_back(self) -> int:
        """Parts before one whose positions its readings may reach."""
        return ceil(self.reach / self.step)

    def _key(self, number: int) -> str:
        return f"{self.phase}-{number:06d}"
