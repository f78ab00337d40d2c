"""The head of spans, beside loops in float64."""

import math

import pytest
import torch
import torch.nn.functional as F

from stages.models.head_settings import SpanSettings
from stages.models.heads import SpanHead, best_spans


def made() -> tuple[SpanHead, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    head, hidden = SpanHead(5, SpanSettings()).double(), torch.randn(3, 6, 5, dtype=torch.float64)
    head.weight.data.normal_()
    mask = torch.ones(3, 6, dtype=torch.bool)
    mask[:, 1:3] = mask[1, 5:] = False
    return head, hidden, mask


def test_the_loss_is_half_of_the_log_probability_of_start_and_end() -> None:
    head, hidden, mask = made()
    labels, weight = torch.tensor([[3, 5], [0, 0], [4, 4]]), head.weight.detach()
    nats = []
    for row in range(3):
        for part in range(2):
            scores = {
                place: sum(
                    float(a) * float(b)
                    for a, b in zip(hidden[row, place], weight[part], strict=True)
                )
                for place in range(6)
                if mask[row, place]
            }
            total = math.log(sum(math.exp(one) for one in scores.values()))
            nats.append(total - scores[int(labels[row, part])])
    loss = F.cross_entropy(head(hidden, mask), labels)
    assert float(loss.detach()) == pytest.approx(sum(nats) / 6, rel=1e-12)
    loss.backward()
    assert head.weight.grad is not None and bool(head.weight.grad.isfinite().all())


def test_the_best_span_is_that_of_all_pairs() -> None:
    head, hidden, mask = made()
    scores = head(hidden, mask).detach()
    for row, found in enumerate(best_spans(scores).tolist()):
        log_p = scores[row].log_softmax(0)
        pairs = [(0, 0), *((a, b) for a in range(1, 6) for b in range(a, 6))]
        assert tuple(found) == max(
            pairs, key=lambda pair: float(log_p[pair[0], 0] + log_p[pair[1], 1])
        )


def test_no_answer_begins_before_the_text() -> None:
    scores = torch.tensor([[[9.0, 0.0], [0.0, 8.0], [1.0, 0.0]]])
    assert best_spans(scores).tolist() == [[0, 0]]


def test_a_long_text_takes_no_table_of_all_pairs() -> None:
    scores = torch.zeros(1, 1 << 18, 2)
    scores[0, 1000, 0] = scores[0, 200_000, 1] = 50.0
    assert best_spans(scores).tolist() == [[1000, 200_000]]
