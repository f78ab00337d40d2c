"""One pass of a model over a split, range after range, each with the state that the one before it left."""

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from stages.artifacts.output import ShardOutput
from stages.encoding.token_range import TokenRange

if TYPE_CHECKING:
    from stages.encoding.carried_state import CarriedState
    from stages.encoding.state_store import StateStore
    from stages.evaluation.evaluator import Evaluator, RangeResult
    from stages.memory.search_gate import SearchGate

SAMPLE = "sample"
"""Phase, and key of the one part, that looks at a sample of the tuning split."""
TUNE = "tune"
SELECT = "select"
"""Phase, and key of the one part, that chooses by what the parts of the tuning split left."""
WEIGH = "weigh"
"""Phase that reads the tuning split once more, with what was chosen, for weights that are learned."""
LEARN = "learn"
"""Phase, and key of the one part, that learns weights from what that left."""
SCORE = "score"


@dataclass(frozen=True)
class Part(TokenRange):
    """Tokens of a split, and what is done with them, its phase: SAMPLE, TUNE, SELECT, WEIGH, LEARN or SCORE."""

    phase: str


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
        return [self._part(number) for number in range(ceil(self.tokens / self.step))]

    def number(self, part: Part) -> int:
        """Place of a part in the pass."""
        return part.start // self.step

    def read_range(
        self,
        part: Part,
        evaluator: "Evaluator",
        states: "StateStore",
        output: ShardOutput,
        gate: "SearchGate | None" = None,
    ) -> "RangeResult":
        """Read a part with the model, going on from the one before it; a gate says where neighbours are found."""
        carried = self._carried_into(part, evaluator, states)
        probed, known = self.phase == SCORE, self.phase in (WEIGH, SCORE)
        result = evaluator.read_range(self.split, part.start, part.stop, carried, probed=probed, known=known, gate=gate)
        idle = self.number(part) - self._parts_back - 1
        states.keep(output, part.key, result.after, idle=self._part(idle).key if idle >= 0 else None)
        return result

    def state_bytes(self, of_one: int) -> int:
        """Size of the states on disk when there are most: those to go on from, and of two parts under way."""
        return (self._parts_back + 1 + 2) * of_one

    def _carried_into(self, part: Part, evaluator: "Evaluator", states: "StateStore") -> "CarriedState":
        """The state before a part: in memory, if this process computed the part before.

        Else it is made again from the last saved state, by reading the tokens behind it once more.
        """
        from stages.encoding.carried_state import CarriedState

        number = self.number(part)
        latest = states.after(self._part(number - 1).key) if number else None
        if latest is not None:
            return latest
        reached = max(0, number - self._parts_back)
        carried, lost = CarriedState(reached * self.step), list[TokenRange]()
        if evaluator.carries_state:
            carried, lost = states.latest(map(self._part, reversed(range(reached))))
        for earlier in (*lost, *map(self._part, range(reached, number))):  # cut as before: others round differently
            carried = evaluator.past(self.split, earlier.start, earlier.stop, carried)
        return carried

    @property
    def _parts_back(self) -> int:
        """Parts before one whose positions its readings may reach."""
        return ceil(self.reach / self.step)

    def _part(self, number: int) -> Part:
        start = number * self.step
        return Part(f"{self.phase}-{number:06d}", start, min(start + self.step, self.tokens), self.phase)
