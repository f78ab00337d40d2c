import pytest
import torch
import torch.nn.functional as F

from stages.errors import UsageError
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.vocabulary import AdaptiveVocabulary, make_vocabulary

V, D = 30, 16


def config(**settings):
    return TransformerConfig(vocab_size=V, width=D, heads=2, **settings)


def adaptive(**settings):
    torch.manual_seed(1)
    return make_vocabulary(config(cutoffs=(6, 15), factor=2, **settings)).double()


def sample(n=64):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(n, D, dtype=torch.float64, generator=generator)
    return hidden.requires_grad_(), torch.randint(V, (n,), generator=generator)


KINDS = {
    "full": {},
    "full untied": {"tied": False},
    "full, scaled": {"score_scale": 0.5},
    "full, with a bias": {"score_bias": True},
    "full, all of it": {"tied": False, "score_scale": 1.5, "score_bias": True, "score_cap": 2.0},
    "adaptive": {"cutoffs": (6, 15), "factor": 2},
    "adaptive untied": {"cutoffs": (6, 15), "factor": 2, "tied": False},
}


@pytest.fixture(params=KINDS, ids=list(KINDS))
def vocabulary(request):
    torch.manual_seed(0)
    vocabulary = make_vocabulary(config(**KINDS[request.param])).double()
    if isinstance(vocabulary, AdaptiveVocabulary):
        vocabulary.sort_by(torch.arange(V) % 7)
    elif vocabulary.bias is not None:
        torch.nn.init.normal_(vocabulary.bias)
    return vocabulary


def test_dense_log_probs_are_a_distribution(vocabulary):
    hidden, _ = sample()
    total = vocabulary.log_probs(hidden).logsumexp(1)
    torch.testing.assert_close(total, torch.zeros_like(total))


def test_loss_and_log_prob_agree_with_dense_log_probs(vocabulary):
    hidden, targets = sample()
    dense = vocabulary.log_probs(hidden)
    torch.testing.assert_close(vocabulary.loss(hidden, targets), F.nll_loss(dense, targets))
    with torch.no_grad():
        log_prob, _ = vocabulary.log_prob(hidden, targets)
    torch.testing.assert_close(log_prob, dense.gather(1, targets[:, None]).squeeze(1))


def test_scores_are_scaled_shifted_and_capped():
    torch.manual_seed(0)
    vocabulary = make_vocabulary(config(score_scale=1.5, score_bias=True, score_cap=2.0)).double()
    torch.nn.init.normal_(vocabulary.bias)
    hidden, _ = sample(8)
    scores = 1.5 * hidden @ vocabulary.embedding.T + vocabulary.bias
    torch.testing.assert_close(
        vocabulary.log_probs(hidden), (2 * torch.tanh(scores / 2)).log_softmax(-1)
    )


def test_what_bends_scores_is_of_a_full_softmax():
    with pytest.raises(ValueError, match="cutoffs"):
        config(score_cap=2.0, cutoffs=(6, 15), factor=2)


def test_gradients_agree_with_dense_log_probs(vocabulary):
    hidden, targets = sample()
    wanted = [hidden, *vocabulary.parameters()]
    got = torch.autograd.grad(vocabulary.loss(hidden, targets), wanted, allow_unused=True)
    loss = F.nll_loss(vocabulary.log_probs(hidden), targets)
    want = torch.autograd.grad(loss, wanted, allow_unused=True)
    torch.testing.assert_close(got, want)


def test_tied_scores_are_products_with_the_input_embeddings():
    for settings in ({}, {"cutoffs": (6, 15), "factor": 2}):
        torch.manual_seed(0)
        vocabulary = make_vocabulary(config(**settings)).double()
        hidden, targets = sample(8)
        frequent = targets % 6
        score = (vocabulary.embed(frequent) * hidden).sum(1)
        log_prob, log_z = vocabulary.log_prob(hidden, frequent)
        torch.testing.assert_close(log_prob, score - log_z)


def test_untied_adaptive_softmax_equals_torch():
    ours = adaptive(tied=False)
    torchs = torch.nn.AdaptiveLogSoftmaxWithLoss(D, V, [6, 15], div_value=2).double()
    with torch.no_grad():
        torchs.head.weight.copy_(torch.cat((ours.outputs[0], ours.clusters)))
        for tail, projection, words in zip(
            torchs.tail, ours.tail_projections, list(ours.outputs)[1:], strict=True
        ):
            tail[0].weight.copy_(projection.T)
            tail[1].weight.copy_(words)
    hidden, targets = sample()
    expected = torchs(hidden, targets)
    torch.testing.assert_close(ours.loss(hidden, targets), expected.loss)
    torch.testing.assert_close(ours.log_prob(hidden, targets)[0], expected.output)
    torch.testing.assert_close(ours.log_probs(hidden), torchs.log_prob(hidden))
    got = torch.autograd.grad(ours.loss(hidden, targets), hidden)
    torch.testing.assert_close(got, torch.autograd.grad(torchs(hidden, targets).loss, hidden))


def test_adaptive_log_z_is_that_of_the_head():
    vocabulary = adaptive()
    hidden, targets = sample()
    head = torch.cat((vocabulary.embeddings[0], vocabulary.clusters))
    expected = (hidden @ vocabulary.projections[0] @ head.T).logsumexp(1)
    torch.testing.assert_close(vocabulary.log_prob(hidden, targets)[1], expected)


def test_sorting_by_count_permutes_tokens_and_nothing_else():
    counts = torch.tensor([3, 9, 9, 0, *range(10, 36)])
    plain, sorted_ = adaptive(), adaptive()
    sorted_.sort_by(counts)
    assert sorted_.rank[[29, 1, 2, 0, 3]].tolist() == [0, 26, 27, 28, 29]
    hidden, targets = sample()
    torch.testing.assert_close(sorted_.embed(targets), plain.embed(sorted_.rank[targets]))
    torch.testing.assert_close(
        sorted_.loss(hidden, targets), plain.loss(hidden, sorted_.rank[targets])
    )


def test_sorting_tokens_that_are_sorted_changes_nothing():
    vocabulary = adaptive()
    vocabulary.sort_by(torch.tensor([5] * 10 + [2] * 20))
    assert vocabulary.rank.tolist() == list(range(V))


def test_embeddings_keep_the_shape_of_the_tokens(vocabulary):
    tokens = torch.arange(24).reshape(2, 3, 4)
    embedded = vocabulary.embed(tokens)
    assert embedded.shape == (2, 3, 4, D)
    torch.testing.assert_close(embedded[1, 2, 3], vocabulary.embed(tokens[1, 2, 3:])[0])


def test_cutoffs_must_lie_inside_the_vocabulary():
    with pytest.raises(UsageError, match=r"model\.cutoffs"):
        make_vocabulary(config(cutoffs=(6, 30)))


def test_joint_loss_and_gradients_are_those_of_one_softmax(vocabulary):
    hidden, targets = sample()
    hidden = hidden.detach().requires_grad_()
    generator = torch.Generator().manual_seed(1)
    memory_target, memory_total = torch.randn(
        2, len(targets), dtype=hidden.dtype, generator=generator
    )
    memory_target[::4] = -torch.inf
    loss = vocabulary.joint_loss(hidden, targets, memory_target, memory_total)
    log_p = vocabulary.log_probs(hidden).gather(1, targets[:, None]).squeeze(1)
    log_z = vocabulary.log_prob(hidden, targets)[1]
    joint = torch.logaddexp(log_p + log_z, memory_target) - torch.logaddexp(log_z, memory_total)
    torch.testing.assert_close(loss, -joint.mean())
    parameters = [hidden, *vocabulary.parameters()]
    got = torch.autograd.grad(loss, parameters, allow_unused=True)
    torch.testing.assert_close(
        got, torch.autograd.grad(-joint.mean(), parameters, allow_unused=True)
    )
