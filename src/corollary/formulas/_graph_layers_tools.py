"""What the checks on graphs and graph spectra share."""

from __future__ import annotations

import numpy as np

from corollary.formulas._library_tools import built, edges_and_weights, tensor


def gcn(A, X, W):
    """The library's layer without a bias."""
    from corollary.nn import GCNConv

    layer = built(lambda: GCNConv(*W.shape, bias=False), lin__weight=W.T)
    return layer(tensor(X), edges_and_weights(A)[0]).numpy()


def gcn_matrix(A):
    """The matrix by which the library's layer mixes nodes."""
    return gcn(A, np.eye(len(A)), np.eye(len(A)))
