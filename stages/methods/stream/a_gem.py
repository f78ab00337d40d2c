"""A-GEM: at intervals, a gradient that would raise the loss on a draw from memory is projected."""

from torch import Tensor

from stages.methods.method import Update
from stages.methods.stream.classifying import add_gradients
from stages.methods.stream.config import AGemConfig
from stages.methods.stream.memory import DrawsDocuments, learnt
from stages.methods.stream.projection import beside, put_gradient, take_gradient


class AGem(DrawsDocuments[AGemConfig]):
    """With `every` 1 the method of the paper, which projects at each step; sparse, as papers on language use it.

    Source: Chaudhry et al. 2019 (arXiv:1812.00420), algorithm 2.
    """

    def step(self, update: Update) -> Tensor:
        loss, batches = add_gradients(update)
        if self.draws_due(batches) and len(self.memory):
            weights = learnt(update)
            gradient, drawn = take_gradient(weights), list(self.draw(update, 0, len(batches[0].labels)))
            for batch in drawn:
                update.backward(update.loss(batch) * len(batch.labels) / sum(len(one.labels) for one in drawn))
            put_gradient(weights, beside(gradient, take_gradient(weights)))
        update.change_weights()
        self.write(update, batches)
        return loss
