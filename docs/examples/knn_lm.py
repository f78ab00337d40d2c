"""kNN-LM on a language model from Hugging Face: what it has seen once, it looks up.

    python docs/examples/knn_lm.py gpt2 train.txt valid.txt test.txt

The model reads the training text once. Of every position we keep two things: a *key*, the hidden
state that stands for all text before it, and a *value*, the token that came next. That is the
datastore. At test we search it for the keys nearest to the present context: the tokens that
followed them, weighted by how near they are, are a second opinion about the next token. The two
opinions are mixed:

    p(token) = (1 - lambda) p_model(token) + lambda p_memory(token)

How much the memory counts (lambda), and how much nearer is better (the temperature), is chosen on
the validation text. No weight of the model changes. Khandelwal et al. 2020, "Generalization through
Memorization: Nearest Neighbor Language Models" (arXiv:1911.00172). They take keys before the last
feed-forward block; the last hidden state, which every model of transformers gives, comes close.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import memlm
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

CONTEXT = 256
"""Tokens that the model reads at once. More cost more, and help."""
NEIGHBORS = 64
"""Entries of the datastore that each position reads."""


class Scored(NamedTuple):
    """A text as the model reads it; n positions."""

    keys: Tensor
    """The hidden state that each token is predicted from, [n, d]."""
    targets: Tensor
    """The token that comes, [n]."""
    log_p: Tensor
    """Its log-probability by the model alone, [n]."""


@torch.no_grad()
def score(model: Any, ids: Tensor) -> Scored:
    """Read a text window by window. Its first token has nothing before it, and is not predicted."""
    parts = []
    for start in range(0, len(ids) - 1, CONTEXT):
        window = ids[start : start + CONTEXT + 1]
        inputs, targets = window[:-1], window[1:]
        output = model(inputs[None], output_hidden_states=True)
        log_p = output.logits[0].float().log_softmax(-1).gather(1, targets[:, None])[:, 0]
        parts.append(Scored(output.hidden_states[-1][0].float(), targets, log_p))
    return Scored(*(torch.cat(column) for column in zip(*parts, strict=True)))


def main(name: str, train: str, valid: str, test: str) -> tuple[float, float]:
    """Print, and return, the perplexity of the test text without and with memory."""
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModelForCausalLM.from_pretrained(name).eval()

    def scored(file: str) -> Scored:
        ids = tokenizer(
            Path(file).read_text("utf-8"), return_tensors="pt", verbose=False
        ).input_ids[0]
        return score(model, ids)

    # The memory: one row for each token of the training text. Half precision loses nothing that the
    # search would see.
    seen = scored(train)
    datastore = memlm.Datastore(seen.keys.half(), seen.targets)
    index = memlm.Index(
        datastore
    )  # exact for few keys, approximate for many; memlm.Index(datastore, "flat") is exact
    print(f"the datastore has {len(datastore.values):,} keys of width {datastore.keys.shape[1]}")

    # The numbers of the reading: those with the smallest perplexity on the validation text.
    held = scored(valid)
    numbers = memlm.tune(held.log_p, index.entries(held.keys, NEIGHBORS), held.targets)
    print(f"chosen: lambda {numbers.weight:.2f}, temperature {numbers.temperature:.3g}")

    # The test text, which has taken no part in any of this.
    asked = scored(test)
    entries = index.entries(asked.keys, NEIGHBORS)
    log_p = memlm.read(asked.log_p, entries, asked.targets, **numbers._asdict())
    alone, with_memory = memlm.perplexity(asked.log_p), memlm.perplexity(log_p)
    print(f"perplexity without memory {alone:.2f}, with memory {with_memory:.2f}")
    return alone, with_memory


if __name__ == "__main__":
    main(*sys.argv[1:])
