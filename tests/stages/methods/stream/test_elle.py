"""ELLE, beside loops in float64: its loss with prompts, its growth, what it keeps, and what
recovers.
"""

import numpy as np
import pytest
import torch

from stages.errors import UsageError
from stages.methods import METHODS
from stages.methods.method import BatchIndex, Carried
from stages.models.config import parse_model
from stages.models.growth import grown_config
from stages.models.head_settings import LanguageSettings
from stages.models.language_model import LanguageModel
from tests.stages.methods.stream.updates import SIZE, WORDS, Watched, stream

EOS = 0


def made(**settings: object) -> Watched:
    torch.manual_seed(0)
    config = parse_model(
        {"layers": 1, "width": 8, "heads": 2, "ffn_width": 8, "dropout": 0.0}
    ).sized(WORDS + 4, 5)
    model = LanguageModel(
        config.model_copy(update={"head": LanguageSettings(answers=(), first=WORDS)})
    ).double()
    method = METHODS.load("elle")(METHODS.settings("elle").model_validate(settings))
    method.begin_stream(model, stream(), 3)
    return Watched(model, method, lr=0.1)


def learnt(update: Watched, place: int) -> None:
    task = stream()[place]
    update.method.begin_task(task)
    update.optimizer = torch.optim.SGD(update.model.parameters(), lr=0.1)
    for start in range(0, task.examples.count, SIZE):
        index = BatchIndex(start // SIZE, start // SIZE, 9, 3)
        update.read(update.method.batch(task.examples, np.arange(start, start + SIZE), index))
    update.method.end_task(task)


@pytest.mark.parametrize("prompt", [True, False])
def test_the_loss_is_the_mean_over_all_tokens_behind_the_prompt_of_the_domain(prompt: bool) -> None:
    update, task, nats = made(prompt=prompt), stream()[1], []
    batch = update.method.batch(task.examples, np.array([3, 0, 7]), BatchIndex(0, 0, 1, 3))
    for document in task.examples.chosen[[3, 0, 7]]:
        start, stop = task.examples.offsets[document : document + 2]
        targets = [int(one) for one in task.examples.ids[start : min(stop, start + 5)]]
        inputs = [WORDS + 2 + 1 if prompt else EOS, *targets[:-1]]
        with torch.no_grad():
            found = update.model.log_probs(update.model.encode(torch.tensor([inputs])).hidden[0])
        nats += [-float(found[place, one]) for place, one in enumerate(targets)]
    loss = update.method.loss(update.model, batch, Carried()).mean
    assert float(loss.detach()) == pytest.approx(np.mean(nats), rel=1e-12)


def test_it_grows_before_each_domain_but_the_first_and_is_the_same_function_but_for_noise() -> None:
    update = made(wider=(2,), deeper=(1,), noise=0.0, kept=0.3)
    model, tokens = update.model, torch.randint(WORDS, (3, 5))
    learnt(update, 0)
    assert model.config.width == 8  # the first domain is learnt as it began
    before, numbers = (
        model.log_probs(model.encode(tokens).hidden),
        sum(one.numel() for one in model.parameters()),
    )
    update.method.begin_task(stream()[1])
    assert (
        model.config.width,
        model.config.heads,
        model.config.ffn_width,
        model.config.layers,
    ) == (16, 4, 16, 1)
    assert sum(one.numel() for one in model.parameters()) > 2 * numbers
    torch.testing.assert_close(
        model.log_probs(model.encode(tokens).hidden), before, rtol=1e-11, atol=1e-12
    )


def test_it_recovers_on_memory_alone_before_it_learns_the_second_domain() -> None:
    update = made(recovery=3, recovery_batch=5, kept=0.3, mixed=0.5)
    learnt(update, 0)
    kept = update.method.memory.rows.tolist()
    assert len(kept) == 6 and set(kept) < set(range(20))  # a third of 20 documents, rounded up
    assert all(len(one) == SIZE for one in update.learnt), "memory was empty"
    update.learnt.clear()
    learnt(update, 1)
    assert len(update.learnt) == 3 + 3 and update.steps == 5 + 3 + 3
    assert all(len(one) == 5 and set(one) <= set(kept) for one in update.learnt[:3])
    for number, one in enumerate(update.learnt[3:]):
        assert one[:SIZE] == list(range(20 + SIZE * number, 24 + SIZE * number)), "the domain"
        assert len(one) == SIZE + 2 and set(one[SIZE:]) <= set(kept)  # and half as many of memory
    assert len(update.method.memory) == 6 + 4


@pytest.mark.parametrize(("mixed", "size"), [(0.1, 1), (0.1, 4), (0.25, 3), (0.5, 4)])
def test_batches_of_any_size_read_their_share_of_memory(mixed: float, size: int) -> None:
    update, task = made(mixed=mixed, kept=1.0), stream()[1]
    learnt(update, 0)
    batches = [
        update.method.batch(task.examples, np.arange(size), BatchIndex(n, n, 40, 3))
        for n in range(40)
    ]
    drawn = [len(batch.documents) - size for batch in batches]
    assert sum(drawn) == mixed * size * 40 and max(drawn) - min(drawn) <= 1


def test_copies_differ_by_the_noise_and_anew_for_each_domain() -> None:
    def grew(noise: float, task: int) -> torch.Tensor:
        update = made(wider=(2, 2), deeper=(1, 1), noise=noise)
        first, second = stream()
        update.method._tasks = [first] * task + [second]
        update.method.begin_task(second)
        return update.model.state_dict()["backbone.blocks.0.ffn.up.weight"]

    exact = grew(0.0, 1)
    added = grew(0.5, 1) - exact
    assert not added[:, :8].any()  # what reads the first of each has none
    assert float(added[:, 8:].std()) == pytest.approx(0.5, rel=0.2)
    assert not torch.equal(grew(0.5, 2) - exact, added)


@pytest.mark.parametrize("times", [(2**53, 1), (1, 2**53), (2**106, 1), (1, 2**106)])
def test_sizes_that_no_model_can_have_are_refused(times: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="wider and deeper"):
        grown_config(parse_model({"layers": 1, "width": 8}).sized(WORDS, 5), *times)


def test_sizes_before_each_domain_are_those_of_the_last_divided() -> None:
    settings = METHODS.settings("elle").model_validate({"wider": (2, 3), "deeper": (1, 2)})
    last = parse_model({"layers": 2, "width": 24, "heads": 6, "ffn_width": 48})
    sizes = [
        (one.width, one.heads, one.ffn_width, one.layers)
        for one in (settings.task_model(last, n) for n in range(4))
    ]
    assert sizes == [(4, 1, 8, 1), (8, 2, 16, 1), (24, 6, 48, 2), (24, 6, 48, 2)]
    assert [settings.times(place) for place in range(4)] == [(1, 1), (2, 1), (3, 2), (1, 1)]
