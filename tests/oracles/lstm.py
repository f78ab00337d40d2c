"""Long short-term memory, one token and one gate at a time."""

import numpy as np


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(
    inputs: np.ndarray, layers: list[dict[str, np.ndarray]], h: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs [L, d] of the last layer, and h and c [layers, d] after the last token.

    Args:
        inputs: [L, d].
        layers: for each gate X of i, f, g, o its weights "Wx", "Ux" [d, d] and biases "bx", "cx"
        [d].
        h, c: state before the first token, [layers, d].
    """
    h, c, outputs = h.copy(), c.copy(), []
    for x in inputs:
        for number, w in enumerate(layers):
            before = {
                gate: w[f"W{gate}"] @ x + w[f"b{gate}"] + w[f"U{gate}"] @ h[number] + w[f"c{gate}"]
                for gate in "ifgo"
            }
            c[number] = sigmoid(before["f"]) * c[number] + sigmoid(before["i"]) * np.tanh(
                before["g"]
            )
            h[number] = sigmoid(before["o"]) * np.tanh(c[number])
            x = h[number]
        outputs.append(x.copy())
    return np.stack(outputs), h, c
