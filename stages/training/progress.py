"""Progress of a training run."""

import math
import time
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass
class Progress:
    """Progress of a run so far; saved with each checkpoint. Losses are means per token, in nats."""

    step: int = 0
    seconds: float = 0.0
    """Time spent in updates."""
    loss_sum: float = 0.0
    """Sum of the updates' losses since the last line of the journal, and the number of updates."""
    loss_count: int = 0
    auxiliary_sum: float | None = None
    """Part of `loss_sum` from auxiliary losses of layers; None: there are none."""
    document_sum: int = 0
    """Documents that the same updates read, each counted once per update."""
    line_step: int = 0
    """Step of the last line of the journal, and the time spent by then."""
    line_seconds: float = 0.0
    train_loss: float | None = None
    """The loss in the last line of the journal."""
    valid_loss: float | None = None
    """The lowest validation loss, and its step."""
    valid_step: int | None = None
    valid_digest: str | None = None
    """BLAKE2b of the file of the best weights; None: from a version without digests."""
    journal_bytes: int = 0
    journal_digest: str | None = None
    """BLAKE2b of the first bytes of the journal, up to its saved size."""

    def count(self, seconds: float) -> None:
        """Count an update."""
        self.step += 1
        self.seconds += seconds

    def add(self, loss: float, auxiliary: float | None, documents: int) -> None:
        """Count the loss of an update, the part of it from auxiliary losses, and the number of documents read."""
        self.loss_sum += loss
        self.loss_count += 1
        self.document_sum += documents
        if auxiliary is not None:
            self.auxiliary_sum = (self.auxiliary_sum or 0.0) + auxiliary

    def start_line(self, train_loss: float) -> None:
        """Begin a new line of the journal after one with the loss `train_loss`."""
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
        """Mean training loss since the last line of the journal, or in that line if it has just been written."""
        if self.loss_count:
            return self.loss_sum / self.loss_count
        return math.nan if self.train_loss is None else self.train_loss

    @property
    def mean_auxiliary(self) -> float | None:
        """Part of `mean_loss` from auxiliary losses of layers; None: there are none."""
        return None if self.auxiliary_sum is None else self.auxiliary_sum / max(1, self.loss_count)

    @property
    def mean_documents(self) -> float | None:
        """Mean number of documents per update since the last line of the journal; None: no update since."""
        return round(self.document_sum / self.loss_count, 1) if self.loss_count else None

    @property
    def steps_per_second(self) -> float:
        """Updates a second since the last line of the journal; over the whole run if that was just written."""
        since_line = self.step - self.line_step, self.seconds - self.line_seconds
        steps, seconds = since_line if self.step > self.line_step else (self.step, self.seconds)
        return steps / max(seconds, 1e-9)


class Pace:
    """Tokens per second since the first report of a run, including time between updates, such as validations.

    The remaining time shown next to it uses the same mean, so that the two agree.
    """

    def __init__(self, update_tokens: int) -> None:
        self._update_tokens = update_tokens
        self._began: tuple[int, float] | None = None

    def tokens_per_second(self, step: int) -> float | None:
        """Speed of the updates up to the current `step`; None at the first report, where counting starts."""
        now = time.monotonic()
        if self._began is None:
            self._began = step, now
        first, began = self._began
        return (step - first) * self._update_tokens / (now - began) if now > began else None


class CopiedNumber:
    """A number on the device that is copied while the host continues."""

    def __init__(self, number: Tensor) -> None:
        """`number`: a scalar, the latest result queued on its device, so that `value` waits for no later work."""
        self._copy = number.detach().to("cpu", non_blocking=True)
        # A separate event: waiting for the whole device would include updates queued since.
        self._copied = torch.cuda.Event() if number.is_cuda else None
        if self._copied is not None:
            self._copied.record()

    def value(self) -> float:
        """The number; waits until it is copied."""
        if self._copied is not None:
            self._copied.synchronize()
        return float(self._copy)


class UpdateFigures(NamedTuple):
    """Figures that an update reports."""

    step: int
    """Its number, from 1."""
    loss: CopiedNumber
    auxiliary: CopiedNumber | None
    """Part of the loss from auxiliary losses of layers; None: there are none."""
    documents: int
    """Number of documents read, in whole or in part."""
