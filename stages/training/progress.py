"""Progress of a training run."""

import math
import time
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass
class Progress:
    """Progress of a run so far; saved with each checkpoint. Losses are means a token, in nats."""

    step: int = 0
    seconds: float = 0.0
    """Time spent in updates."""
    loss_sum: float = 0.0
    """Sum of the updates' losses since the last line of the journal, and of how many."""
    loss_count: int = 0
    auxiliary_sum: float | None = None
    """Part of `loss_sum` that layers added; None: nothing."""
    document_sum: int = 0
    """Documents that the same updates read, each once an update."""
    line_step: int = 0
    """Step of the last line of the journal, and the time spent by then."""
    line_seconds: float = 0.0
    train_loss: float | None = None
    """The loss in the last line of the journal."""
    valid_loss: float | None = None
    """The lowest of all validations, and its step."""
    valid_step: int | None = None
    valid_digest: str | None = None
    """BLAKE2b of the file of the weights that did best; None: saved before there were such."""
    journal_bytes: int = 0
    journal_digest: str | None = None
    """BLAKE2b of this many bytes of the journal."""

    def count(self, seconds: float) -> None:
        """Count an update."""
        self.step += 1
        self.seconds += seconds

    def add(self, loss: float, auxiliary: float | None, documents: int) -> None:
        """Count the loss of an update that read a part of this many documents, and what of it layers added."""
        self.loss_sum += loss
        self.loss_count += 1
        self.document_sum += documents
        if auxiliary is not None:
            self.auxiliary_sum = (self.auxiliary_sum or 0.0) + auxiliary

    def start_line(self, train_loss: float) -> None:
        """Begin a new line of the journal after one that said `train_loss`."""
        self.train_loss = train_loss
        self.loss_sum, self.loss_count, self.auxiliary_sum, self.document_sum = 0.0, 0, None, 0
        self.line_step, self.line_seconds = self.step, self.seconds

    def note_validation(self, valid_loss: float) -> bool:
        """Note a validation; whether it is the best so far."""
        best = self.valid_loss is None or valid_loss < self.valid_loss
        if best:
            self.valid_loss, self.valid_step = valid_loss, self.step
        return best

    @property
    def mean_loss(self) -> float:
        """Training loss since the last line of the journal, or of that line if it has just been written."""
        if self.loss_count:
            return self.loss_sum / self.loss_count
        return math.nan if self.train_loss is None else self.train_loss

    @property
    def mean_auxiliary(self) -> float | None:
        """Part of `mean_loss` that layers added; None: nothing."""
        return None if self.auxiliary_sum is None else self.auxiliary_sum / max(1, self.loss_count)

    @property
    def mean_documents(self) -> float | None:
        """Documents that an update read, on average since the last line of the journal; None: there was none."""
        return round(self.document_sum / self.loss_count, 1) if self.loss_count else None

    @property
    def steps_per_second(self) -> float:
        """Updates a second since the last line of the journal; over the whole run if that was just written."""
        since_line = self.step - self.line_step, self.seconds - self.line_seconds
        steps, seconds = since_line if self.step > self.line_step else (self.step, self.seconds)
        return steps / max(seconds, 1e-9)


class Pace:
    """Tokens a second since the first report of a run, with what lies between updates, such as validations.

    The time left that is shown beside it follows the same mean, so that either leads to the other.
    """

    def __init__(self, update_tokens: int) -> None:
        self._update_tokens = update_tokens
        self._began: tuple[int, float] | None = None

    def tokens_per_second(self, step: int) -> float | None:
        """Speed of the updates up to `step`, which is reported now; None for the first, which it counts from."""
        now = time.monotonic()
        if self._began is None:
            self._began = step, now
        first, began = self._began
        return (step - first) * self._update_tokens / (now - began) if now > began else None


class CopiedNumber:
    """A number of the device, which is copied while the host continues."""

    def __init__(self, number: Tensor) -> None:
        """`number`: a scalar. It is the last thing that was asked of its device, so `value` waits for nothing later."""
        self._copy = number.detach().to("cpu", non_blocking=True)
        # An event of its own: to wait for the device would be to wait for the updates queued since, too.
        self._copied = torch.cuda.Event() if number.is_cuda else None
        if self._copied is not None:
            self._copied.record()

    def value(self) -> float:
        """The number, once it is there."""
        if self._copied is not None:
            self._copied.synchronize()
        return float(self._copy)


class UpdateFigures(NamedTuple):
    """Figures that an update reports."""

    step: int
    """Its number, from 1."""
    loss: CopiedNumber
    auxiliary: CopiedNumber | None
    """The part of the loss that layers added; None: nothing."""
    documents: int
    """Number of documents that it has read, in whole or in part."""
