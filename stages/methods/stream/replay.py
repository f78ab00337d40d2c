"""Replay: at intervals, some examples of memory are learnt once more."""

from torch import Tensor

from stages.methods.method import Update
from stages.methods.stream.classifying import add_gradients
from stages.methods.stream.config import ReplayConfig
from stages.methods.stream.memory import DrawsDocuments


class Replay(DrawsDocuments[ReplayConfig]):
    """Every `every` examples, a step on each batch of a draw from memory.

    Source: de Masson d'Autume et al. 2019 (arXiv:1906.01076), section 3.2: sparse experience replay.
    """

    def step(self, update: Update) -> Tensor:
        loss, batches = add_gradients(update)
        update.change_weights()
        self.write(update, batches)
        for number in range(self.draws_due(batches)):
            for batch in self.draw(update, number, len(batches[0].labels)):
                update.backward(update.loss(batch))
                update.change_weights()
        return loss
