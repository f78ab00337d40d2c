"""Memory+ in the feed-forward place of blocks: product keys with shared values and a gate."""

import torch.nn.functional as F
from torch import Tensor, nn

from stages.models.layers.memory_plus_settings import MemoryPlusSettings
from stages.models.layers.product_keys import HasSlots, Lookup, read_slots
from stages.models.layers.settings import AttentionConfig
from stages.models.layers.sublayer import Apart, FeedForward, LearnsApart, SharesWeights


class MemoryPlus(FeedForward, LearnsApart, SharesWeights, HasSlots):
    """(y ⊙ SiLU(x W_1)) W_2, with y what the heads read of values that the model has once.

    Source: Berges et al. 2024 (arXiv:2412.09764), section 3.
    """

    def __init__(self, config: AttentionConfig, settings: MemoryPlusSettings) -> None:
        super().__init__()
        width = config.width
        self.lookup = Lookup(config, settings)
        self.values: nn.Parameter | None = nn.Parameter(self.lookup.keys.new_empty(settings.slots, width))
        self.gate, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.value_lr = settings.value_lr
        # In a tuple a module is no part of this one: its values are saved, and learn, once.
        self._owner: tuple[MemoryPlus, ...] = (self,)

    def share(self, first: "MemoryPlus") -> None:
        self.values, self._owner = None, (first,)

    @property
    def table(self) -> nn.Parameter:
        values = self._owner[0].values
        assert values is not None, "the first layer has them"
        return values

    def initialize(self, blocks: int) -> None:
        self.lookup.initialize()
        for weight in (self.values, self.gate.weight, self.out.weight):
            if weight is not None:
                nn.init.normal_(weight, std=weight.shape[1] ** -0.5)

    def apart(self) -> Apart:
        """The values, of the layer that has them."""
        return Apart([] if self.values is None else [self.values], self.value_lr)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, d]."""
        read: Tensor = self.out(read_slots(self.lookup(x), self.table) * F.silu(self.gate(x)))
        return read
