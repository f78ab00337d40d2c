"""Slow references of TRIME's objective: who reads whom said position by position, and one softmax a
token.

Source: Zhong et al. 2022 (arXiv:2205.12674), equation 5 and section 4.
"""

import math

import torch


def local(rows, length):
    """Entries of `trime`: for each position (row, place) the positions that it reads."""
    return {(b, i): [(b, j) for j in range(i)] for b in range(rows) for i in range(length)}


def chained(rows, length, together, documents=None):
    """Entries of `trime-long`: `documents[b][i]` is the document of a position; None: all are of
    one.
    """
    entries = local(rows, length)
    for (b, i), read in entries.items():
        first = b // together * together
        for other in range(first, b):
            for j in range(length):
                if documents is None or documents[other][j] == documents[b][i]:
                    read.append((other, j))
    return entries


def of_others(rows, length, with_local):
    """Entries of `trime-ext`."""
    own = local(rows, length)
    return {
        (b, i): [(c, j) for c in range(rows) if c != b for j in range(length)]
        + (own[b, i] if with_local else [])
        for b in range(rows)
        for i in range(length)
    }


def joint_loss(log_p, log_z, keys, targets, entries, temperature=1.0, readable=None):
    """Mean of -log p(target), p(w) ∝ exp(log_z) p_model(w) + Σ_{entries with value w} exp(q·k/(√d
    τ)).

    Args:
        log_p: of the targets by the model, [B, L]; log_z: of its vocabulary's scores, [B, L].
        keys: [B, L, d], differentiable; `readable`: what stands for them where they are read, if
        not themselves.
    """
    readable = keys if readable is None else readable
    losses = []
    for (b, i), read in entries.items():
        scores = {
            c: keys[b, i] @ readable[c] / math.sqrt(keys.shape[-1]) / temperature for c in read
        }
        right = [score for c, score in scores.items() if targets[c] == targets[b, i]]
        total = torch.stack([log_z[b, i], *scores.values()]).logsumexp(0)
        target = torch.stack([log_z[b, i] + log_p[b, i], *right]).logsumexp(0)
        losses.append(total - target)
    return torch.stack(losses).mean()
