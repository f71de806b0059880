"""What the checks on recurrence and sequences share."""

from __future__ import annotations

import numpy as np

from corollary.formulas._library_tools import built


def logistic(a):
    """The logistic function."""
    return 1 / (1 + np.exp(-a))


def tanh_states(U, V, x, z):
    """States z^0, ..., z^T of a tanh network."""
    states = [z]
    for x_t in x:
        states.append(np.tanh(U @ states[-1] + V @ x_t))
    return np.array(states)


def library_encoder(cell, layers, **options):
    """The library's encoder, from the weights on input and state, and the bias, of each of its layers."""
    from corollary.sequences.network import SequenceEncoder

    parts, width = {}, layers[0][1].shape[1]
    for i, (V, U, b) in enumerate(layers):
        place = "l0_reverse" if i and options.get("bidirectional") else f"l{i}"
        values = {"weight_ih": V, "weight_hh": U, "bias_ih": b, "bias_hh": np.zeros_like(b)}
        parts |= {f"cell__{name}_{place}": value for name, value in values.items()}
    return built(lambda: SequenceEncoder(layers[0][0].shape[1], width, cell, **options), **parts)
