"""A learned weight, with searches only where the memory is expected to gain most."""

from dataclasses import dataclass

from stages.memory.search_gate import SearchGate
from stages.retrieval.weights.learned import Learned


@dataclass(frozen=True)
class Searched(Learned):
    """The weights of `Learned`; the model's own distribution is read where no search is made.

    Source: He, Neubig and Berg-Kirkpatrick 2021 (arXiv:2109.04212), adaptive retrieval; see `SearchGate`.
    """

    @property
    def search_gate(self) -> SearchGate | None:
        return self.gains
