"""LAMOL, beside loops in float64: its loss, what it writes, and what it keeps of that."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from stages.errors import ArtifactError
from stages.methods import METHODS
from stages.methods.method import BatchIndex, Carried
from stages.methods.stream.lamol import ORDER, Samples
from stages.methods.stream.spelled import Example, Spelling, answers, write
from stages.models.config import parse_model
from stages.models.head_settings import LanguageSettings
from stages.models.language_model import LanguageModel
from stages.models.weights import save_weights, start_from
from tests.stages.methods.stream.updates import WORDS, stream

HEAD = LanguageSettings(answers=((1,), (2, 3), (4,), (5, 1)), first=WORDS)
LENGTH, EOS = 9, 0


def made(**settings: object) -> tuple[LanguageModel, object]:
    torch.manual_seed(0)
    config = parse_model(
        {"layers": 1, "width": 8, "heads": 2, "ffn_width": 8, "dropout": 0.0}
    ).sized(WORDS + 4, LENGTH)
    model = LanguageModel(config.model_copy(update={"head": HEAD})).double()
    chosen = METHODS.settings("lamol").model_validate(settings)
    method = METHODS.load("lamol")(chosen)
    method.begin_stream(model, stream(), 3)
    method._spelling = Spelling(HEAD, EOS, LENGTH)
    return model, method


def log_probs(model: LanguageModel, tokens: list[int]) -> np.ndarray:
    """Of each next token after one sequence, [n, V]."""
    with torch.no_grad():
        return model.log_probs(model.encode(torch.tensor([tokens])).hidden[0]).numpy()


@pytest.mark.parametrize(("samples", "weight"), [("gen", 5.0), ("task", 1.0)])
def test_the_loss_is_that_of_both_formats(samples: str, weight: float) -> None:
    model, method = made(samples=samples, ans_weight=weight, lm_weight=0.3)
    task = stream()[1]
    which = np.array([3, 0, 7])
    batch = method.batch(task.examples, which, BatchIndex(0, 0, 1, 0))
    asked, whole, weights = [], [], []
    for document in task.examples.chosen[which]:
        start, stop = task.examples.offsets[document : document + 2]
        stop = min(stop, start + task.examples.cutting.context)
        text = [int(one) for one in task.examples.ids[start:stop] if one != EOS]
        answer = list(HEAD.answers[task.examples.labels[document]])
        begin = WORDS + 1 if samples == "gen" else WORDS + 2 + 1
        targets = [*text, WORDS, *answer, EOS]
        found = log_probs(model, [EOS, *targets[:-1]])
        asked += [-found[place, targets[place]] for place in range(len(text) + 1, len(targets))]
        found = log_probs(model, [begin, *targets[:-1]])
        whole += [-found[place, one] for place, one in enumerate(targets)]
        weights += [weight if one == WORDS else 1.0 for one in targets]
    wanted = np.mean(asked) + 0.3 * np.average(whole, weights=weights)
    loss = method.loss(model, batch, Carried()).mean
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("name", ["seq", "multitask"])
def test_without_samples_the_loss_is_that_of_the_answers_alone(name: str) -> None:
    model, method = made(lm_weight=0.0)
    plain, task, which = (
        METHODS.load(name)(METHODS.settings(name)()),
        stream()[1],
        np.array([3, 0, 7]),
    )
    plain.begin_stream(model, stream(), 3)
    plain._spelling = Spelling(HEAD, EOS, LENGTH)
    (own, *_), (wanted, *_) = (
        one.loss(model, one.batch(task.examples, which, BatchIndex(0, 0, 1, 0)), Carried())
        for one in (plain, method)
    )
    assert float(own.detach()) == pytest.approx(float(wanted.detach()), rel=1e-10)


def test_answers_are_the_most_probable_tokens_one_by_one() -> None:
    model, _ = made()
    model.vocabulary.embedding.data *= 8
    texts = [np.array(one) for one in ([3], [4, 5, 6, 7], [8, 9], [11, 2, 1])]
    found = answers(model, texts, Spelling(HEAD, EOS, LENGTH))
    for text, own in zip(texts, found, strict=True):
        read, wanted = [EOS, *text.tolist(), WORDS], []
        for _ in range(3):
            best = int(log_probs(model, read)[-1].argmax())
            if best == EOS:
                break
            wanted.append(best)
            read.append(best)
        assert own == tuple(wanted)


def test_samples_are_drawn_from_the_best_tokens_and_end() -> None:
    model, _ = made()
    spelling = Spelling(HEAD, EOS, LENGTH)
    first = write(model, np.full(4000, WORDS + 1), spelling, 3, np.random.default_rng(0))
    found = log_probs(model, [WORDS + 1])[0]
    best = np.argsort(-found)[:3]
    shares = np.exp(found[best]) / np.exp(found[best]).sum()
    counts = np.array([np.mean([row[0] == one for row in first]) for one in best])
    np.testing.assert_allclose(counts, shares, atol=0.03)
    assert all(len(row) <= LENGTH and EOS not in row[:-1] for row in first)
    again = write(model, np.full(4000, WORDS + 1), spelling, 3, np.random.default_rng(0))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize(
    "tokens",
    [
        [3, WORDS, 1],
        [3, 1, EOS],
        [WORDS, 1, EOS],
        [3, WORDS, EOS],
        [3, WORDS, 1, WORDS, EOS],
        [3, WORDS + 1, WORDS, 1, EOS],
        [3, WORDS + 2, 1, EOS],
        [],
    ],
)
def test_what_is_no_example_is_not_kept(tokens: list[int]) -> None:
    assert Spelling(HEAD, EOS, LENGTH).parsed(np.array(tokens, np.int64), WORDS + 1) is None


def test_what_is_an_example_is_read_as_it_was_spelled() -> None:
    spelling = Spelling(HEAD, EOS, LENGTH)
    example = Example(np.array([3, 4, 12 - 1]), np.array([2, 3]), WORDS + 2)
    (row,) = spelling.batch([example]).targets.numpy()
    found = spelling.parsed(row, WORDS + 2)
    assert (
        found is not None and found.text.tolist() == [3, 4, 11] and found.answer.tolist() == [2, 3]
    )


def test_all_samples_are_learnt_equally_often_and_kept() -> None:
    _, method = made(samples="real", gamma=0.5)
    tasks = stream()
    method.begin_task(tasks[1])
    kept = method._samples[1].examples
    assert len(kept) == 6, "half of 12"
    rows = [row for number in range(6) for row in method._share(4, 12, number)]
    assert [sum(one is example for one in rows) for example in kept] == [2] * 6
    _, other = made(samples="real", gamma=0.5)
    other.load_state_dict(method.state_dict())
    for one, again in zip(kept, other._samples[1].examples, strict=True):
        assert one.begin == again.begin
        assert (
            one.text.tolist() == again.text.tolist()
            and one.answer.tolist() == again.answer.tolist()
        )


@pytest.mark.parametrize(
    ("size", "of", "samples"), [(1, 49, 49), (7, 25, 100), (16, 2000, 400), (3, 10, 7)]
)
def test_a_share_is_of_whole_numbers_and_in_drawn_order(size: int, of: int, samples: int) -> None:
    """Floats say that 7 / 25 * 100 is more than 28: a batch would learn a sample more."""
    _, method = made()
    method._place, kept = 1, [Example(np.array([one]), np.array([1]), 0) for one in range(samples)]
    method._samples[1] = Samples(kept)
    count = math.ceil(Fraction(size * samples, of))
    for number in (0, 1, 57):
        wanted = []
        for place in range(number * count, (number + 1) * count):
            order = np.random.default_rng([3, ORDER, 1, place // samples]).permutation(samples)
            wanted.append(int(order[place % samples]))
        assert [int(one.text[0]) for one in method._share(size, of, number)] == wanted


def test_tokens_that_only_the_model_has_begin_near_the_mean(tmp_path) -> None:  # type: ignore[no-untyped-def]
    model, _ = made()
    small = LanguageModel(model.config.model_copy(update={"head": None, "vocab_size": WORDS}))
    save_weights(small.state_dict(), tmp_path / "w.safetensors")
    start_from(model.float(), tmp_path / "w.safetensors")
    rows, own = model.vocabulary.embedding, small.vocabulary.embedding
    assert torch.equal(rows[:WORDS], own) and (rows[WORDS:] - own.mean(0)).abs().max() < 0.15


@pytest.mark.parametrize(("longest", "kept"), [(2, 2), (9, 3)])
def test_answers_of_documents_leave_half_of_the_room_to_the_text(longest: int, kept: int) -> None:
    spelling = Spelling(LanguageSettings(answers=(), longest=longest, first=WORDS), EOS, 6)
    assert (spelling.longest, spelling.room) == (kept, 4 - kept)


def test_a_model_whose_scores_are_no_numbers_answers_nothing() -> None:
    model, _ = made()
    model.vocabulary.embedding.data.fill_(torch.nan)
    with pytest.raises(ArtifactError):
        answers(model, [np.array([3])], Spelling(HEAD, EOS, LENGTH))
