"""A neural cache: a language model that remembers what it has read a moment ago.

    python docs/examples/neural_cache.py [text.txt]

A text repeats itself: a name that was used once is used again soon. An LSTM forgets it after some
twenty words. The cache keeps, of the last words, the hidden state that each was predicted from.
Where the present state is like one of them, the word that came then is likely to come now:

    p_cache(word) ~ sum over the last positions i where `word` came of exp(theta * h . h_i)

The two distributions are mixed, p = (1 - lambda) p_model + lambda p_cache. Nothing is trained for
it: the states are there anyway, and the cache follows the text as it is read. Grave et al. 2017,
"Improving Neural Language Models with a Continuous Cache" (arXiv:1612.04426).

Here a small LSTM learns the words of Python's own documentation for a minute, with a training loop
that hides nothing.
"""

import re
import sys
from collections import Counter
from pathlib import Path

import memlm
import torch
from torch import Tensor

SEGMENT, STREAMS, VOCABULARY = 32, 16, 2000
CACHE = 500
"""Positions back that the cache reaches."""
UNKNOWN, END = 0, 1


def numbered(text: str) -> Tensor:
    """A text as ids: its commonest words have numbers, all others share one."""
    words = re.findall(r"\w+|[^\w\s]", text.lower())
    common = [word for word, _ in Counter(words).most_common(VOCABULARY - 2)]
    number = {word: 2 + place for place, word in enumerate(common)}
    return torch.tensor([number.get(word, UNKNOWN) for word in words])


def train(model: memlm.LanguageModel, ids: Tensor, steps: int) -> None:
    """Read the text as sixteen streams side by side, segment after segment, and learn each next
    word.
    """
    streams = ids[: len(ids) // STREAMS * STREAMS].view(STREAMS, -1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    state, place = None, 0
    for step in range(1, steps + 1):
        if place + SEGMENT >= streams.shape[1]:  # the text is over: begin again, and forget
            state, place = None, 0
        inputs = streams[:, place : place + SEGMENT]
        targets = streams[:, place + 1 : place + SEGMENT + 1]
        encoding = model.encode(inputs, state)
        loss = model.loss(encoding.hidden.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        # What the network carries goes on to the next segment; its gradient does not.
        state = {name: tensor.detach() for name, tensor in encoding.state.items()}
        place += SEGMENT
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.2f}")


def main(text: str, steps: int = 400) -> tuple[float, float]:
    """Print, and return, the perplexity of the last twentieth of a text without and with the cache."""
    torch.manual_seed(0)
    ids = numbered(text)
    learned, held, asked = ids.tensor_split([len(ids) * 18 // 20, len(ids) * 19 // 20])
    model = memlm.new_model(VOCABULARY, SEGMENT, backbone="lstm", width=96, layers=1, dropout=0.2)
    train(model, learned, steps)

    def read(ids: Tensor) -> tuple[Tensor, memlm.Entries, Tensor]:
        """A text word by word: its log-probability by the model, what the cache holds at that
        moment, the word.
        """
        scores = memlm.score_ids(model, ids.tolist(), END, SEGMENT)
        return (
            scores.log_p,
            memlm.recent(scores.keys["hidden"], scores.targets, CACHE),
            scores.targets,
        )

    # lambda, theta (one over the temperature) and the size of the cache are chosen on text between
    # the two.
    numbers = memlm.tune(*read(held), k=[100, CACHE])
    print(
        f"chosen: lambda {numbers.weight:.2f}, theta {1 / numbers.temperature:.3g}, the last {numbers.k} words"
    )

    log_p, cache, targets = read(asked)
    alone = memlm.perplexity(log_p)
    with_memory = memlm.perplexity(memlm.read(log_p, cache, targets, **numbers._asdict()))
    print(f"perplexity without memory {alone:.2f}, with memory {with_memory:.2f}")
    return alone, with_memory


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).read_text("utf-8"))
    else:
        from pydoc_data.topics import topics

        main("\n".join(topics.values()))
