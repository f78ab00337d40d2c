"""A memory layer of one's own, in a Transformer-XL: how to write one, and what it is worth.

    python docs/examples/memory_layer.py

The layer below attends to its own segment, as any attention does, and to a matrix M of *fast
weights* that sums up all segments before it. When a segment ends, its keys and values are written
there, and what is older fades:

    read:   q M                        write:  M <- decay M + mean over the segment of phi(k) v^T

So M costs the same however long the stream is. It is linear attention (Katharopoulos et al. 2020,
arXiv:2006.16236) over the past, as in Infini-attention (Munkhdalai et al. 2024, arXiv:2404.07143),
without their normalization.

Three things make a layer: its settings, its memory (a NamedTuple of tensors), and its code. One
line registers it; then `backbone`, commands (`--set model.attention.name=fast-weights`),
checkpoints and evaluation know it.

The task is one that needs the past: a stream changes its topic now and then, and a topic uses 4 of
32 tokens. The first tokens of a segment can only be guessed by who remembers the segments before.
"""

from typing import Literal, NamedTuple

import memlm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

SEGMENT, STREAMS, TOKENS, TOPIC = 16, 16, 32, 4


class FastWeights(NamedTuple):
    """Memory of a layer, for each of B streams."""

    matrix: Tensor
    """M, [B, d, d]."""


class FastWeightSettings(memlm.StreamAttentionSettings):
    """Settings of the layer; all but the name have defaults."""

    name: Literal["fast-weights"] = "fast-weights"
    decay: float = 0.8
    """Share of M that a further segment leaves."""

    def memory_spec(self, model: memlm.AttentionConfig, context: int) -> NamedTuple:
        return FastWeights(memlm.StateArray((1, model.width, model.width)))  # type: ignore[arg-type]


class FastWeightAttention(memlm.StreamAttention[FastWeights]):
    """Attention to the segment, and to a sum of all before it; d is the width of the model."""

    def __init__(self, config: memlm.AttentionConfig, settings: FastWeightSettings) -> None:
        super().__init__()
        self.decay = settings.decay
        self.query, self.key, self.value, self.out, self.recall = (
            nn.Linear(config.width, config.width, bias=False) for _ in range(5)
        )

    def initialize(self, blocks: int) -> None:
        for layer in self.children():
            nn.init.xavier_uniform_(layer.weight)

    def begin(self, x: Tensor) -> FastWeights:
        """An empty memory for inputs [B, n, d]."""
        return FastWeights(x.new_zeros(len(x), x.shape[2], x.shape[2]))

    def forward(
        self, inputs: memlm.StreamInputs, passage: memlm.SegmentContext, memory: FastWeights
    ) -> memlm.Attended[FastWeights]:
        x = inputs.normalized  # [B, m + n, d]: m cached positions, then the n that are read now
        ((begin, first, stop),) = (
            passage.spans
        )  # positions first .. stop - 1 attend to those from `begin` on
        queries, keys, values = (
            self.query(x[:, first:stop]),
            self.key(x[:, begin:stop]),
            self.value(x[:, begin:stop]),
        )
        # A position sees itself and what stands before it, never what comes.
        sees = torch.ones(stop - first, stop - begin, dtype=torch.bool, device=x.device).tril(
            first - begin
        )
        local = F.scaled_dot_product_attention(queries, keys, values, attn_mask=sees)
        remembered = _positive(queries) @ memory.matrix
        hidden = self.out(local) + self.recall(remembered)
        if passage.ends_segment:
            segment = x[
                :, passage.cached - passage.place : stop
            ]  # all of it, however many calls it took to read
            keys, values = _positive(self.key(segment)), self.value(segment)
            memory = FastWeights(self.decay * memory.matrix + keys.mT @ values / segment.shape[1])
        return memlm.Attended(hidden, memory)


def _positive(x: Tensor) -> Tensor:
    """phi: weights of a sum are positive, as those of a softmax are."""
    return F.elu(x) + 1


memlm.STREAM_ATTENTION.targets["fast-weights"] = memlm.Part(
    f"{__name__}:FastWeightSettings", f"{__name__}:FastWeightAttention"
)


def streams(length: int, generator: torch.Generator) -> Tensor:
    """Token ids, [streams, length]: topics of eight segments, each with four tokens of its own."""
    rows = []
    for _ in range(STREAMS):
        topics = -(-length // (8 * SEGMENT))
        words = torch.stack(
            [torch.randperm(TOKENS, generator=generator)[:TOPIC] for _ in range(topics)]
        )
        drawn = torch.randint(TOPIC, (topics, 8 * SEGMENT), generator=generator)
        rows.append(words.gather(1, drawn).flatten()[:length])
    return torch.stack(rows)


def segments(ids: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Inputs and targets, [streams, SEGMENT] each, in the order of the streams."""
    cuts = range(0, ids.shape[1] - SEGMENT, SEGMENT)
    return [(ids[:, at : at + SEGMENT], ids[:, at + 1 : at + SEGMENT + 1]) for at in cuts]


@torch.no_grad()
def score(model: memlm.LanguageModel, ids: Tensor, *, remember: bool) -> float:
    """Perplexity of streams; without memory every segment begins anew."""
    log_p, state = [], None
    for inputs, targets in segments(ids):
        encoding = model.eval().encode(inputs, state if remember else None)
        log_p.append(model.log_prob(encoding.hidden.flatten(0, 1), targets.flatten())[0])
        state = encoding.state
    return memlm.perplexity(torch.cat(log_p))


def main(steps: int = 400) -> tuple[float, float]:
    """Train, then print and return the perplexity of other streams without and with memory."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    attention = {"name": "fast-weights", "decay": 0.7}
    sizes = {
        "width": 64,
        "layers": 1,
        "heads": 2,
        "ffn_width": 128,
        "dropout": 0.0,
        "mem_length": 0,
    }
    model = memlm.new_model(
        TOKENS, SEGMENT, backbone="transformer-xl", attention=attention, **sizes
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    state = None
    for step, (inputs, targets) in enumerate(
        segments(streams((steps + 1) * SEGMENT, generator)), 1
    ):
        encoding = model.train().encode(inputs, state)
        loss = model.loss(encoding.hidden.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = {name: tensor.detach() for name, tensor in encoding.state.items()}
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.2f}")
    asked = streams(64 * SEGMENT, generator)
    alone, with_memory = score(model, asked, remember=False), score(model, asked, remember=True)
    print(f"perplexity without memory {alone:.2f}, with memory {with_memory:.2f}")
    return alone, with_memory


if __name__ == "__main__":
    main()
