"""One update of the weights."""

from stages.methods.method import Method, OwnsStep, Update


def make_update(method: Method, update: Update) -> float:
    """One update, the method's own way if it has one; returns its loss, the mean a token, in nats."""
    return method.step(update) if isinstance(method, OwnsStep) else plain_step(update)


def plain_step(update: Update) -> float:
    """Gradients of the mean loss of the forward batches, then the optimizer's step."""
    total = 0.0
    for batch in update.batches():
        loss = update.loss(batch) / update.accumulate
        update.backward(loss)
        total += float(loss.detach())
    update.change_weights(total)
    return total
