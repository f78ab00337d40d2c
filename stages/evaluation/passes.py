"""Passes over a split, cut into parts that read one behind the other."""

from dataclasses import dataclass
from math import ceil
from typing import Literal

from stages.artifacts.output import ShardOutput
from stages.encoding.carried_state import CarriedState, StateStore
from stages.encoding.window_settings import TokenRange
from stages.evaluation.range_reader import RangeOptions, RangeReader, RangeResult
from stages.memory.predicted_gain import PredictedGain

SCORE = "score"
"""Name of the pass over the split that is reported."""


@dataclass(frozen=True)
class Part(TokenRange):
    """A task on a range of a split: its tokens are observed or scored, or a choice is made from the
    whole split.

    For the tasks `translate` and `try`, [start, stop) counts sentences instead of tokens.
    """

    task: Literal[
        "gradients", "learn", "settle", "sample", "observe", "try", "choose", "score", "translate"
    ]
    row: int = 0
    """Row whose memory is read while translating; 0: the model alone."""
    candidate: int = 0
    """Number of the candidate settings that are tried."""

    @property
    def unit(self) -> str:
        return "sentences" if self.task in ("translate", "try") else "tokens"


@dataclass(frozen=True)
class RangePass:
    """A pass over a split of `tokens` tokens, in parts of `step` tokens; each part starts from the
    state before it.
    """

    name: str
    words: str
    """Words shown while the pass runs, before the name of the split."""
    contexts: bool
    """Whether features of contexts are computed, for weights that need them."""
    split: str
    tokens: int
    step: int
    reach: int
    """Largest distance, in tokens, that readings reach back from a token; 0 for none."""
    chained: bool
    """Whether a part resumes from the state of the part before it."""

    @property
    def parts(self) -> list[Part]:
        """All of the split, in order."""
        return [self._part(number) for number in range(ceil(self.tokens / self.step))]

    @property
    def choice(self) -> Part:
        """The shard after all parts, which chooses settings from their observations."""
        return Part(f"{self.name}-choice", 0, self.tokens, "choose", phase=f"{self.name}-choice")

    @property
    def sample(self) -> Part:
        """The shard that reads short ranges of the split, before the first pass over it."""
        return Part("sample", 0, self.tokens, "sample", phase="sample")

    def number(self, part: Part) -> int:
        """Number of a part in the pass."""
        return part.start // self.step

    def read_range(
        self,
        part: Part,
        reader: RangeReader,
        states: StateStore,
        output: ShardOutput,
        where: PredictedGain | None = None,
    ) -> RangeResult:
        """Read a part with the model, resuming from the part before it; `where` selects the tokens
        to search for.
        """
        carried = self._carried_into(part, reader, states)
        options = RangeOptions(probed=self.name == SCORE, contexts=self.contexts, where=where)
        result = reader.read(self.split, part.start, part.stop, carried, options)
        # no later part reaches back to this state, so its file can be deleted
        idle = self.number(part) - self._parts_back - 1
        idle_key = self._part(idle).key if idle >= 0 else None
        states.keep(output, part.key, result.after, idle=idle_key)
        return result

    def state_bytes(self, of_one: int) -> int:
        """Peak size of the states on disk: the states to resume from, and the states of two parts
        under way.
        """
        return (self._parts_back + 1 + 2) * of_one

    def _carried_into(self, part: Part, reader: RangeReader, states: StateStore) -> CarriedState:
        """The state before a part: from memory, if this process computed the part before.

        Otherwise it is rebuilt: the tokens after the last saved state are read once more.
        """
        number = self.number(part)
        latest = states.after(self._part(number - 1).key) if number else None
        if latest is not None:
            return latest
        reached = max(0, number - self._parts_back)
        carried = CarriedState(reached * self.step)
        lost = list[TokenRange]()
        if reader.carries_state:
            carried, lost = states.latest(map(self._part, reversed(range(reached))))
        # cut as before: other cuts round differently
        for earlier in (*lost, *map(self._part, range(reached, number))):
            carried = reader.past(self.split, earlier.start, earlier.stop, carried)
        return carried

    @property
    def _parts_back(self) -> int:
        """Number of earlier parts that the readings of a part may reach."""
        return ceil(self.reach / self.step)

    def _part(self, number: int) -> Part:
        start = number * self.step
        stop = min(start + self.step, self.tokens)
        task: Literal["score", "observe"] = "score" if self.name == SCORE else "observe"
        title = f"{self.words} {self.split}, {self.tokens:,} tokens"
        chain = self.name if self.chained else None
        return Part(
            f"{self.name}-{number:06d}",
            start,
            stop,
            task,
            phase=self.name,
            title=title,
            chain=chain,
        )
