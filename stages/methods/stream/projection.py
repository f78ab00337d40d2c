"""A-GEM and GEM: gradients that do not raise the loss on memory, by projection of all weights as
one vector.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.linalg import solve_triangular
from scipy.optimize import nnls
from torch import Tensor, nn

from stages.errors import UsageError
from stages.examples.documents import Documents
from stages.examples.examples import Task
from stages.methods.method import Update
from stages.methods.stream.classifying import add_gradients
from stages.methods.stream.config import AGemConfig, GemConfig
from stages.methods.stream.memory import KEEP, DrawsDocuments, KeepsDocuments, learnt

JITTER = 1e-10
"""Share of the mean diagonal of G Gᵀ that is added to it, since gradients may be linearly
dependent.
"""


def beside(gradient: Float[Tensor, " n"], reference: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """The gradient without its part against a reference: the nearest one whose product with it is
    not negative.

    Source: Chaudhry et al. 2019 (A-GEM, arXiv:1812.00420), equation 11.

    >>> beside(torch.tensor([1.0, -2.0]), torch.tensor([0.0, 3.0]))
    tensor([1., 0.])
    """
    product = gradient.double() @ reference.double()
    if product >= 0:
        return gradient
    share = product / (reference.double() @ reference.double())
    return (gradient.double() - share * reference.double()).to(gradient.dtype)


def among(
    gradient: Float[Tensor, " n"], others: Float[Tensor, "k n"], margin: float
) -> Float[Tensor, " n"]:
    """The nearest gradient whose inner product with each of the others is not negative (for a
    margin of 0).

    With Gᵀ's columns the others, v = argmin of ½ |Gᵀ v + g|² over v ≥ margin, and Gᵀ v + g is
    returned: a larger margin follows the others more. As v = margin + w, w ≥ 0, this is
    non-negative least squares of size k on the Cholesky factor of G Gᵀ. If no product is negative,
    the gradient stays as it is.

    Raises: UsageError for gradients that are not finite.
    Source: Lopez-Paz and Ranzato 2017 (GEM, arXiv:1706.08840), equation 11.

    >>> among(torch.tensor([1.0, -2.0]), torch.tensor([[0.0, 3.0], [2.0, 0.0]]), margin=0.0).round(decimals=6).abs()
    tensor([1., 0.])
    """
    rows, own = others.double(), gradient.double()
    products, aligned = (rows @ rows.T).cpu().numpy(), (rows @ own).cpu().numpy()
    if not (np.isfinite(products).all() and np.isfinite(aligned).all()):
        raise UsageError(
            "A gradient is no number: try a lower --lr, or clipping (--set clip_norm=1)."
        )
    if (aligned >= 0).all():
        return gradient
    products += JITTER * products.trace() / len(products) * np.eye(len(products))
    factor = np.linalg.cholesky(products)
    wanted = solve_triangular(
        factor, -(products @ np.full(len(products), margin) + aligned), lower=True
    )
    v = margin + nnls(factor.T, wanted)[0]
    return (own + torch.from_numpy(v).to(rows.device) @ rows).to(gradient.dtype)


def take_gradient(parameters: Sequence[nn.Parameter]) -> Tensor:
    """The gradients of parameters as one vector, zeros if one has none; the parameters' own are
    cleared.
    """
    flat = [
        torch.zeros_like(one).flatten() if one.grad is None else one.grad.flatten().clone()
        for one in parameters
    ]
    for one in parameters:
        one.grad = None
    return torch.cat(flat)


def put_gradient(parameters: Sequence[nn.Parameter], gradient: Tensor) -> None:
    """Give parameters their gradients from one vector."""
    for one, part in zip(
        parameters, gradient.split([one.numel() for one in parameters]), strict=True
    ):
        one.grad = part.view_as(one).clone()


class AGem(DrawsDocuments[AGemConfig]):
    """A-GEM. With `every` 1 it projects at each step, as in the paper; else rarely, as in papers on
    language.

    Source: Chaudhry et al. 2019 (arXiv:1812.00420), algorithm 2.
    """

    def step(self, update: Update) -> Tensor:
        loss, batches = add_gradients(update)
        if self.draws_due(batches) and len(self.memory):
            weights = learnt(update)
            gradient = take_gradient(weights)
            self.add_gradients_of(update, self.draw(update, 0), len(batches[0].labels))
            put_gradient(weights, beside(gradient, take_gradient(weights)))
        update.change_weights()
        self.write(update, batches)
        return loss


class Gem(KeepsDocuments[GemConfig]):
    """GEM: a share of each task's documents is kept at its end, and each step reads all that are
    kept.

    Source: Lopez-Paz and Ranzato 2017 (arXiv:1706.08840), algorithm 1.
    """

    def end_task(self, task: Task) -> None:
        count, random = task.examples.count, self.random(KEEP, self.task)
        chosen = random.choice(count, max(1, int(self.settings.share * count)), replace=False)
        assert isinstance(task.examples, Documents)
        self.memory.write(task.examples.chosen[chosen], self.task, 1.0, random)

    def step(self, update: Update) -> Tensor:
        loss, batches = add_gradients(update)
        self.count(batches)
        if len(self.memory):
            weights = learnt(update)
            gradient = take_gradient(weights)
            before = list[Tensor]()
            for task in range(self.task):
                self.add_gradients_of(
                    update, self.memory.rows[self.memory.tasks == task], len(batches[0].labels)
                )
                before.append(take_gradient(weights))
            put_gradient(weights, among(gradient, torch.stack(before), self.settings.margin))
        update.change_weights()
        return loss
