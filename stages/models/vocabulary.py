"""Input embeddings and output softmax of a vocabulary, full or adaptive, tied or not.

Adaptive input and softmax: Baevski and Auli 2019 (arXiv:1809.10853) and Grave et al. 2017
(arXiv:1609.04309). Words are split by frequency into clusters; rarer clusters have narrower
embeddings. The head scores the first cluster's words and one entry for each further cluster.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stages.errors import UsageError
from stages.models.config import VocabularyConfig
from stages.models.cross_entropy import MemoryTerms, capped, linear_cross_entropy, linear_log_prob
from stages.models.layers.dropout import Dropout
from stages.models.soft_labels import SoftLabels, linear_soft_cross_entropy

INITIAL_NORM = 0.3
"""Norm of an embedding before training. With 1, as in fairseq, a tied model begins by predicting
its own input. Its loss on WikiText-2 is then 15 instead of 10, and still higher after 150 steps."""


class Vocabulary(nn.Module):
    """Token ids -> embeddings, and hidden states -> log-probabilities of the next token, in nats."""

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings [..., d] of token ids [...]; tied weights score with the same vectors."""
        raise NotImplementedError

    def loss(self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Mean negative log-likelihood of targets int64 [N] given hidden states [N, d].

        Args:
            smoothing: ε; the loss is (1 - ε) (-log p(target)) + ε times the mean of -log p(w) over
            all tokens w.
        """
        raise NotImplementedError

    def soft_loss(self, hidden: Tensor, labels: SoftLabels) -> Tensor:
        """Mean over hidden states [N, d] of -Σ_w s(w) log p(w), for shares s(w) of few tokens."""
        raise NotImplementedError

    def joint_loss(
        self, hidden: Tensor, targets: Tensor, memory_target: Tensor, memory_total: Tensor
    ) -> Tensor:
        """Mean negative log-likelihood of targets in one softmax with a memory, whose log-sums are
        [N].

        With adaptive softmax the vocabulary's part is exp(Z) p(w), where Z is the logsumexp of the
        head's scores.
        """
        raise NotImplementedError

    def log_prob(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of each target, and the logsumexp of the scores (of the head's, if
        adaptive); both [N].
        """
        raise NotImplementedError

    def log_probs(self, hidden: Tensor) -> Tensor:
        """Log-probabilities [N, V] of every token."""
        raise NotImplementedError

    def predict(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities [N, V] of every token, and the logsumexp of the scores [N] as in
        `log_prob`, from one product with the weights.
        """
        raise NotImplementedError


class JoinedRows(nn.Module):
    """Parametrization of a vocabulary weight as two parts: the rows before `first`, and the rows of
    added tokens.
    """

    def __init__(self, first: int) -> None:
        super().__init__()
        self.first = first

    def forward(self, old: Tensor, new: Tensor) -> Tensor:
        return torch.cat((old, new))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        # Copies, because a checkpoint cannot hold two views of one tensor.
        return weight[: self.first].clone(), weight[self.first :].clone()


def make_vocabulary(config: VocabularyConfig) -> Vocabulary:
    """Build the vocabulary of a configuration, whose `vocab_size` must be set."""
    if not config.scores_tokens:
        return InputTable(config)
    return AdaptiveVocabulary(config) if config.cutoffs else FullVocabulary(config)


def _embedding(config: VocabularyConfig, rows: int, width: int) -> nn.Parameter:
    return _initialized(
        config, torch.empty(rows, width), partial(nn.init.normal_, std=INITIAL_NORM * width**-0.5)
    )


def _initialized(
    config: VocabularyConfig, weight: Tensor, begin: Callable[[Tensor], Tensor]
) -> nn.Parameter:
    if config.initial_range is None:
        return nn.Parameter(begin(weight))
    return nn.Parameter(nn.init.uniform_(weight, -config.initial_range, config.initial_range))


def _projections(config: VocabularyConfig, widths: Iterable[int]) -> Iterator[nn.Parameter]:
    """Projections [d, width] of clusters."""
    for width in widths:
        weight = torch.empty(config.width, width)
        yield _initialized(config, weight, nn.init.xavier_uniform_)


class InputTable(Vocabulary):
    """One embedding of width d for each token, and no output side, for a model that only makes
    keys.
    """

    def __init__(self, config: VocabularyConfig) -> None:
        super().__init__()
        assert config.vocab_size is not None, "the stage fills it in"
        self.embedding = _embedding(config, config.vocab_size, config.width)

    def embed(self, tokens: Tensor) -> Tensor:
        return nn.functional.embedding(tokens, self.embedding)


class FullVocabulary(InputTable):
    """One embedding of width d for each token, and one softmax over scores c tanh((a W f + b) / c)."""

    def __init__(self, config: VocabularyConfig) -> None:
        super().__init__(config)
        self.scale = config.score_scale
        self.cap = config.score_cap
        types, width = self.embedding.shape
        self.output = None if config.tied else _embedding(config, types, width)
        self.bias = nn.Parameter(torch.zeros(types)) if config.score_bias else None

    @property
    def output_weight(self) -> Tensor:
        return self.embedding if self.output is None else self.output

    def loss(self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        scored, weight = self._factors(hidden)
        loss = linear_cross_entropy(scored, weight, targets, cap=self.cap) / len(targets)
        if not smoothing:
            return loss
        assert self.cap is None, "a bent score has no mean embedding"
        # The mean of log p(w) is Ē·f - log Z, and log Z is in the loss already: the dense scores
        # are not needed.
        target_weights = weight.index_select(0, targets)
        beyond_mean = target_weights - weight.mean(0)
        score_beyond_mean = (beyond_mean * scored).sum(-1)
        return loss + smoothing * score_beyond_mean.mean()

    def soft_loss(self, hidden: Tensor, labels: SoftLabels) -> Tensor:
        scored, weight = self._factors(hidden)
        return linear_soft_cross_entropy(scored, weight, labels, self.cap) / len(hidden)

    def joint_loss(
        self, hidden: Tensor, targets: Tensor, memory_target: Tensor, memory_total: Tensor
    ) -> Tensor:
        memory = MemoryTerms(torch.zeros_like(memory_total), memory_target, memory_total)
        return linear_cross_entropy(*self._factors(hidden), targets, memory, self.cap) / len(
            targets
        )

    def log_prob(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return linear_log_prob(*self._factors(hidden), targets, self.cap)

    def log_probs(self, hidden: Tensor) -> Tensor:
        hidden, weight = self._factors(hidden)
        return capped(hidden @ weight.T, self.cap).log_softmax(-1)

    def predict(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        scaled = hidden if self.scale == 1 else self.scale * hidden
        # A bias as a column of the weights, as elsewhere, would copy them for a single token.
        scores = capped(nn.functional.linear(scaled, self.output_weight, self.bias), self.cap)
        log_z = scores.logsumexp(-1)
        return scores - log_z[:, None], log_z

    def _factors(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states [N, d] and the weight [V, d] whose products are the scores; a bias adds one
        column to each.
        """
        hidden = hidden if self.scale == 1 else self.scale * hidden
        if self.bias is None:
            return hidden, self.output_weight
        return nn.functional.pad(hidden, (0, 1), value=1.0), torch.cat(
            (self.output_weight, self.bias[:, None]), 1
        )


class _ClusterRows(NamedTuple):
    """Inputs of one cluster's softmax: its tokens are `rows` of the batch."""

    rows: Tensor
    hidden: Tensor
    weight: Tensor
    targets: Tensor


class AdaptiveVocabulary(Vocabulary):
    """Clusters by frequency rank. If tied, the output shares the embeddings and all projections.

    If tied, a word's score is the product of its input embedding, P_c E_c[w], with the hidden
    state. If untied, the head is not projected, as in torch's AdaptiveLogSoftmaxWithLoss.
    """

    rank: Tensor

    def __init__(self, config: VocabularyConfig) -> None:
        super().__init__()
        d = config.width
        size = config.vocab_size
        assert size is not None, "the stage fills it in"
        if config.cutoffs[-1] >= size:
            raise UsageError(
                f"Adaptive cutoff {config.cutoffs[-1]} is not below the vocabulary size {size}; lower model.cutoffs."
            )
        self.bounds = (0, *config.cutoffs, size)
        sizes = [stop - start for start, stop in pairwise(self.bounds)]
        # rarer tokens have narrower embeddings
        widths = [d // config.factor**cluster for cluster in range(len(sizes))]
        embedding = partial(_embedding, config)

        # the order of creation is that of random numbers
        self.embeddings = nn.ParameterList(map(embedding, sizes, widths))
        self.projections = nn.ParameterList(_projections(config, widths))
        self.clusters = embedding(len(sizes) - 1, d)
        self.tied = config.tied
        if not self.tied:
            self.outputs = nn.ParameterList(map(embedding, sizes, widths))
            # the head's inputs are not projected
            self.tail_projections = nn.ParameterList(_projections(config, widths[1:]))
        self.tail_dropout = Dropout(config.tail_dropout)
        self.register_buffer("rank", torch.arange(size))

    def sort_by(self, counts: Tensor) -> None:
        """Rank the tokens by falling count [V] (ties by id), which determines their clusters.

        The ranks are saved with the weights.
        """
        # Stable, so that tokens with equal counts have the same rank on every machine.
        order = torch.argsort(counts, descending=True, stable=True)
        self.rank[order] = torch.arange(len(order), device=order.device)

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings [*tokens, d], cluster by cluster."""
        ranks = self.rank[tokens.flatten()]
        clusters = self._cluster(ranks)
        rows = []
        parts = []
        factors = zip(self.embeddings, self.projections, strict=True)
        for c, (embedding, projection) in enumerate(factors):
            rows_of_cluster = (clusters == c).nonzero().squeeze(1)
            words = ranks[rows_of_cluster] - self.bounds[c]
            narrow = nn.functional.embedding(words, embedding)
            rows.append(rows_of_cluster)
            parts.append(nn.functional.linear(narrow, projection))

        # Rows come cluster by cluster; one gather puts them back in the order of the tokens.
        place = torch.empty_like(ranks)
        place[torch.cat(rows)] = torch.arange(len(ranks), device=ranks.device)
        return torch.cat(parts).index_select(0, place).unflatten(0, tokens.shape)

    def loss(self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        assert not smoothing, "clusters have no mean embedding"
        parts = self._parts(hidden, targets)
        return sum(
            (linear_cross_entropy(p.hidden, p.weight, p.targets) for p in parts),
            start=hidden.new_zeros(()),
        ) / len(targets)

    def soft_loss(self, hidden: Tensor, labels: SoftLabels) -> Tensor:
        ranked = labels._replace(tokens=self.rank[labels.tokens])
        of_entries = ranked._replace(tokens=self._entry(ranked.tokens))
        loss = linear_soft_cross_entropy(*self._head(hidden), of_entries)
        for c in range(1, len(self.bounds) - 1):
            loss = loss + self._soft_tail_loss(c, hidden, ranked)
        return loss / len(hidden)

    def _soft_tail_loss(self, cluster: int, hidden: Tensor, ranked: SoftLabels) -> Tensor:
        """Sum of -Σ_w s(w) log p(w | cluster) over positions and the words of a cluster.

        Args:
            ranked: labels with ranks instead of tokens.
        """
        inside = ranked.select(self._cluster(ranked.tokens) == cluster)
        # Only positions with a share in the cluster are scored.
        rows, places = inside.rows.unique_consecutive(return_inverse=True)
        tail = self._tail(cluster, hidden.index_select(0, rows))
        labels = SoftLabels(places, inside.tokens - self.bounds[cluster], inside.shares)
        return linear_soft_cross_entropy(tail, self._words(cluster), labels)

    def joint_loss(
        self, hidden: Tensor, targets: Tensor, memory_target: Tensor, memory_total: Tensor
    ) -> Tensor:
        head, *tails = self._parts(hidden, targets)
        # log p of a target within its cluster, [n]; 0 for those in the head
        within = torch.zeros_like(memory_total)
        for part in tails:
            log_prob, _ = linear_log_prob(part.hidden, part.weight, part.targets)
            within = within.index_add(0, part.rows, log_prob)

        memory = MemoryTerms(within, memory_target, memory_total)
        total = linear_cross_entropy(head.hidden, head.weight, head.targets, memory)
        return total / len(targets)

    def log_prob(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        head, *tails = self._parts(hidden, targets)
        log_prob, log_z = linear_log_prob(head.hidden, head.weight, head.targets)
        for part in tails:
            log_prob[part.rows] += linear_log_prob(part.hidden, part.weight, part.targets)[0]
        return log_prob, log_z

    def log_probs(self, hidden: Tensor) -> Tensor:
        return self.predict(hidden)[0]

    def predict(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        head_hidden, head_weight = self._head(hidden)
        head_scores = head_hidden @ head_weight.T
        head_log_probs = head_scores.log_softmax(-1)

        # the head scores frequent tokens, and then each further cluster
        num_frequent = self.bounds[1]
        by_rank = [head_log_probs[:, :num_frequent]]
        for c in range(1, len(self.bounds) - 1):
            log_prob_of_cluster = head_log_probs[:, num_frequent + c - 1, None]
            tail_scores = self._tail(c, hidden) @ self._words(c).T
            by_rank.append(tail_scores.log_softmax(-1) + log_prob_of_cluster)

        log_probs = torch.cat(by_rank, 1).index_select(1, self.rank)
        return log_probs, head_scores.logsumexp(-1)

    def _parts(self, hidden: Tensor, targets: Tensor) -> Iterator[_ClusterRows]:
        """The head, which scores all tokens, then each further cluster with its own tokens."""
        ranks = self.rank[targets]
        clusters = self._cluster(ranks)
        all_rows = torch.arange(len(ranks), device=ranks.device)
        head_hidden, head_weight = self._head(hidden)
        yield _ClusterRows(all_rows, head_hidden, head_weight, self._entry(ranks))

        for c in range(1, len(self.bounds) - 1):
            rows = (clusters == c).nonzero().squeeze(1)
            tail_hidden = self._tail(c, hidden.index_select(0, rows))
            words = ranks[rows] - self.bounds[c]
            yield _ClusterRows(rows, tail_hidden, self._words(c), words)

    def _entry(self, ranks: Tensor) -> Tensor:
        """Rows of the head's weight: words of the first cluster, then one for each further
        cluster.
        """
        cluster = self._cluster(ranks)
        return torch.where(cluster == 0, ranks, self.bounds[1] + cluster - 1)

    def _cluster(self, ranks: Tensor) -> Tensor:
        return torch.stack([ranks >= bound for bound in self.bounds[1:-1]]).sum(0)

    def _words(self, cluster: int) -> Tensor:
        """Output embeddings [size, d_c] of a cluster's words."""
        return (self.embeddings if self.tied else self.outputs)[cluster]

    def _head(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states [N, d] and rows [words + clusters, d] of the first softmax."""
        weight = torch.cat((self._words(0), self.clusters))
        return (hidden @ self.projections[0] if self.tied else hidden), weight

    def _tail(self, cluster: int, hidden: Tensor) -> Tensor:
        """Project hidden states [n, d] to the width of a further cluster, [n, d_c]."""
        projections = list(self.projections)[1:] if self.tied else self.tail_projections
        return self.tail_dropout(hidden @ projections[cluster - 1])
