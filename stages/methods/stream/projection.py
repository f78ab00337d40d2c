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
from stages.examples.documents import documents_of
from stages.examples.examples import Task
from stages.methods.method import Update
from stages.methods.stream.classifying import add_gradients
from stages.methods.stream.config import AGemConfig, GemConfig
from stages.methods.stream.memory import KEEP, DrawsDocuments, KeepsDocuments, learnt

JITTER = 1e-10
"""Share of the mean diagonal of G Gᵀ that is added to it, since gradients may be linearly
dependent.
"""


def a_gem_projection(
    gradient: Float[Tensor, " n"], reference: Float[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """The gradient without its part against a reference: the nearest one whose product with it is
    not negative.

    Source: Chaudhry et al. 2019 (A-GEM, arXiv:1812.00420), equation 11.

    >>> a_gem_projection(torch.tensor([1.0, -2.0]), torch.tensor([0.0, 3.0]))
    tensor([1., 0.])
    """
    # In float64: products of long vectors in float32 lose their last digits to the order of sums.
    double = gradient.double()
    direction = reference.double()
    product = double @ direction
    if product >= 0:
        return gradient
    share = product / (direction @ direction)
    return (double - share * direction).to(gradient.dtype)


def gem_projection(
    gradient: Float[Tensor, " n"], references: Float[Tensor, "k n"], margin: float
) -> Float[Tensor, " n"]:
    """The nearest gradient whose inner product with each reference is not negative (for a margin of
    0).

    With Gᵀ's columns the references, v = argmin of ½ |Gᵀ v + g|² over v ≥ margin, and Gᵀ v + g is
    returned: a larger margin follows the references more. As v = margin + w, w ≥ 0, this is
    non-negative least squares of size k on the Cholesky factor of G Gᵀ. If no product is negative,
    the gradient stays as it is.

    Raises: UsageError for gradients that are not finite.
    Source: Lopez-Paz and Ranzato 2017 (GEM, arXiv:1706.08840), equation 11.

    >>> references = torch.tensor([[0.0, 3.0], [2.0, 0.0]])
    >>> gem_projection(torch.tensor([1.0, -2.0]), references, margin=0.0).round(decimals=6).abs()
    tensor([1., 0.])
    """
    rows = references.double()
    double = gradient.double()
    gram = (rows @ rows.T).cpu().numpy()
    products = (rows @ double).cpu().numpy()
    if not (np.isfinite(gram).all() and np.isfinite(products).all()):
        raise UsageError(
            "A gradient is no number: try a lower --lr, or clipping (--set clip_norm=1)."
        )
    if (products >= 0).all():
        return gradient

    # References may be linearly dependent, and then G Gᵀ has no Cholesky factor.
    num_references = len(gram)
    gram += JITTER * gram.trace() / num_references * np.eye(num_references)
    factor = np.linalg.cholesky(gram)

    # The gradient of the quadratic form at v = margin, negative: L Lᵀ w should be equal to it.
    margins = np.full(num_references, margin)
    right = -(gram @ margins + products)
    target = solve_triangular(factor, right, lower=True)
    w, _ = nnls(factor.T, target)

    v = torch.from_numpy(margin + w).to(rows.device)
    projected = double + v @ rows
    return projected.to(gradient.dtype)


def pop_gradient(parameters: Sequence[nn.Parameter]) -> Tensor:
    """The gradients of parameters as one vector, zeros if one has none; the parameters' own are
    cleared.
    """
    parts: list[Tensor] = []
    for parameter in parameters:
        if parameter.grad is None:
            parts.append(torch.zeros_like(parameter).flatten())
        else:
            parts.append(parameter.grad.flatten().clone())
        parameter.grad = None
    return torch.cat(parts)


def set_gradient(parameters: Sequence[nn.Parameter], gradient: Tensor) -> None:
    """Give parameters their gradients from one vector."""
    sizes = [parameter.numel() for parameter in parameters]
    for parameter, part in zip(parameters, gradient.split(sizes), strict=True):
        parameter.grad = part.view_as(parameter).clone()


class AGem(DrawsDocuments[AGemConfig]):
    """A-GEM. With `every` 1 it projects at each step, as in the paper; else rarely, as in papers on
    language. Its control adds the gradient of the draw instead.

    Source: Chaudhry et al. 2019 (arXiv:1812.00420), algorithm 2.
    """

    def step(self, update: Update) -> Tensor:
        loss, batches = add_gradients(update)
        if self.draws_due(batches) and len(self.memory):
            weights = learnt(update)
            gradient = pop_gradient(weights)
            self.add_gradients_of(update, self.draw(update, 0), len(batches[0].labels))
            reference = pop_gradient(weights)
            if self.settings.reference == "added":
                set_gradient(weights, gradient + reference)
            else:
                set_gradient(weights, a_gem_projection(gradient, reference))
        update.change_weights()
        self.write(update, batches)
        return loss


class Gem(KeepsDocuments[GemConfig]):
    """GEM: a share of each task's documents is kept at its end, and each step reads all that are
    kept.

    Source: Lopez-Paz and Ranzato 2017 (arXiv:1706.08840), algorithm 1.
    """

    def end_task(self, task: Task) -> None:
        documents = documents_of(task.examples)
        count = documents.count
        size = max(1, int(self.settings.share * count))
        random = self.random(KEEP, self.task)
        indices = random.choice(count, size, replace=False)
        self.memory.write(documents.chosen[indices], self.task, 1.0, random)

    def step(self, update: Update) -> Tensor:
        loss, batches = add_gradients(update)
        self.count(batches)
        if len(self.memory):
            weights = learnt(update)
            gradient = pop_gradient(weights)
            references: list[Tensor] = []
            for task in range(self.task):
                rows = self.memory.rows[self.memory.tasks == task]
                self.add_gradients_of(update, rows, len(batches[0].labels))
                references.append(pop_gradient(weights))
            projected = gem_projection(gradient, torch.stack(references), self.settings.margin)
            set_gradient(weights, projected)
        update.change_weights()
        return loss
