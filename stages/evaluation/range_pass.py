"""A pass over a split, part by part: which tokens each part has, and the state that it resumes from."""

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Literal

from stages.artifacts.output import ShardOutput
from stages.encoding.window_settings import TokenRange

if TYPE_CHECKING:
    from stages.encoding.carried_state import CarriedState, StateStore
    from stages.evaluation.range_reader import RangeReader, RangeResult
    from stages.memory.predicted_gain import PredictedGain

SCORE = "score"
"""Name of the pass over the split that is reported."""


@dataclass(frozen=True)
class Part(TokenRange):
    """Tokens of a split, and what is done: a range is observed or scored, a choice is made from all of the split.

    To be translated, or tried a candidate on, are sentences [start, stop).
    """

    task: Literal["sample", "observe", "try", "choose", "score", "translate"]
    row: int = 0
    """Row whose memory is read in a translation; 0: the model alone."""
    candidate: int = 0
    """Number of the settings that are tried."""


@dataclass(frozen=True)
class RangePass:
    """A pass over a split of `tokens` tokens, in parts of `step`, each with the state that the one before it left."""

    name: str
    words: str
    """Shown while it runs, before the name of the split."""
    contexts: bool
    """Whether features of contexts are computed, if a weight needs them."""
    split: str
    tokens: int
    step: int
    reach: int
    """Positions that readings reach back from a token, 0 for none."""
    chained: bool
    """Whether a part resumes from what the one before it read."""

    @property
    def parts(self) -> list[Part]:
        """All of the split, in order."""
        return [self._part(number) for number in range(ceil(self.tokens / self.step))]

    @property
    def choice(self) -> Part:
        """The shard behind all parts, which chooses by what they left."""
        return Part(f"{self.name}-choice", 0, self.tokens, "choose", phase=f"{self.name}-choice")

    @property
    def sample(self) -> Part:
        """A look at short ranges of the split, before the first pass over it."""
        return Part("sample", 0, self.tokens, "sample", phase="sample")

    def number(self, part: Part) -> int:
        """Number of a part in the pass."""
        return part.start // self.step

    def read_range(
        self,
        part: Part,
        reader: "RangeReader",
        states: "StateStore",
        output: ShardOutput,
        where: "PredictedGain | None" = None,
    ) -> "RangeResult":
        """Read a part with the model, resuming from the one before it; `where` says which tokens are searched for."""
        carried = self._carried_into(part, reader, states)
        probed = self.name == SCORE
        result = reader.read(
            self.split, part.start, part.stop, carried, probed=probed, contexts=self.contexts, where=where
        )
        # no later part reaches back to this state, so its file may go
        idle = self.number(part) - self._parts_back - 1
        states.keep(output, part.key, result.after, idle=self._part(idle).key if idle >= 0 else None)
        return result

    def state_bytes(self, of_one: int) -> int:
        """Size of the states on disk when there are most: those to resume from, and of two parts under way."""
        return (self._parts_back + 1 + 2) * of_one

    def _carried_into(self, part: Part, reader: "RangeReader", states: "StateStore") -> "CarriedState":
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
        if reader.carries_state:
            carried, lost = states.latest(map(self._part, reversed(range(reached))))
        for earlier in (*lost, *map(self._part, range(reached, number))):  # cut as before: others round differently
            carried = reader.past(self.split, earlier.start, earlier.stop, carried)
        return carried

    @property
    def _parts_back(self) -> int:
        """Parts before one whose positions its readings may reach."""
        return ceil(self.reach / self.step)

    def _part(self, number: int) -> Part:
        start = number * self.step
        stop = min(start + self.step, self.tokens)
        task: Literal["score", "observe"] = "score" if self.name == SCORE else "observe"
        title, chain = f"{self.words} {self.split}, {self.tokens:,} tokens", self.name if self.chained else None
        return Part(f"{self.name}-{number:06d}", start, stop, task, phase=self.name, title=title, chain=chain)
