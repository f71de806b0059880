r"""Compiled sweeps of collapsed inference for latent Dirichlet allocation.

With topics and mixtures integrated out, the topic :math:`z` of one token of word :math:`w` in document
:math:`d`, given all others, has

.. math::
    p(z = k \mid \text{rest}) \propto (N_{dk} + \alpha_k) \frac{N_{wk} + \eta}{N_k + V \eta}, \tag{1}

counts without the token itself. Collapsed variational inference (CVB0) keeps a distribution
:math:`\gamma_{dw}` per word of a document and sets it to (1) with expected counts. Gibbs sampling draws
from (1). It is split into a part with few terms and a smooth one,

.. math::
    N_{dk} \frac{N_{wk} + \eta}{N_k + V \eta} + \alpha_k \frac{N_{wk} + \eta}{N_k + V \eta}; \tag{2}

the first is summed over the document's own topics, the second is drawn in constant time from an alias
table made at the start of the sweep, and a Metropolis-Hastings step makes up for the table's age. (The table
also counts the token itself, which shifts the draws by a share of order :math:`1 / N_w`.)

Documents come in blocks that run at once. For CVB0, whose documents are read in the order of their words,
each block works on another range of words at a time, so that no two touch the same counts. For Gibbs
each block starts from the counts at the start of the sweep, sees its own changes only, and the changes
are added up afterwards. Either way the result is the same for any number of threads.

References
----------
.. [1] A. Asuncion, M. Welling, P. Smyth, Y. W. Teh (2009). On smoothing and inference for topic
   models. UAI. (CVB0)
.. [2] A. Q. Li, A. Ahmed, S. Ravi, A. J. Smola (2014). Reducing the sampling complexity of topic
   models. KDD. (alias tables)
.. [3] D. Newman, A. Asuncion, P. Smyth, M. Welling (2009). Distributed algorithms for topic models.
   JMLR 10, 1801-1828. (blocks)
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from corollary.compiled import njit

__all__ = ["add_changes", "alias_tables", "cvb0_sweep", "draw_topics", "gibbs_sweep", "soft_topics"]

FAST = {"contract", "reassoc", "nsz", "arcp"}
OPTIONS = {"fastmath": FAST, "error_model": "numpy", "cache": True}
PROPOSALS = 2  # Metropolis-Hastings steps per token


@njit(parallel=True, **OPTIONS)
def add_changes(total, copies):  # pragma: no cover - compiled
    """Add to ``total`` (V, K) what the blocks' copies (B, V, K) of it have changed, in their order."""
    for w in prange(total.shape[0]):
        row = total[w]
        for k in range(row.size):
            before = row[k]
            change = before - before
            for b in range(copies.shape[0]):
                change += copies[b, w, k] - before
            row[k] = before + change


# --- where to begin --------------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def soft_topics(indptr, indices, counts, T, gamma, nd):  # pragma: no cover - compiled
    """Set gamma (nnz, K) to what topics T (V, K) alone say, and add up the documents' counts nd (D, K)."""
    K = T.shape[1]
    for d in range(indptr.size - 1):
        for e in range(indptr[d], indptr[d + 1]):
            t, g = T[indices[e]], gamma[e]
            total = np.float32(0)
            for k in range(K):
                total += t[k]
            for k in range(K):
                g[k] = t[k] / total
                nd[d, k] += counts[e] * g[k]


@njit(cache=True, error_model="numpy")
def draw_topics(word, T, u):  # pragma: no cover - compiled
    """Draw a topic for every token from T (V, K) alone; u are uniform numbers."""
    out = np.empty(word.size, np.int32)
    for t in range(word.size):
        row = T[word[t]]
        left = u[t] * row.sum()
        k = 0
        while k < row.size - 1 and left >= row[k]:
            left -= row[k]
            k += 1
        out[t] = k
    return out


# --- collapsed variational -------------------------------------------------------------------------------


@njit(**OPTIONS)
def _cvb0_tile(
    first, last, split, part, indices, counts, gamma, nd, nw, nk, alpha, eta
):  # pragma: no cover - compiled
    """Set gamma for one range of words in documents ``first`` to ``last``; return their log-likelihood."""
    V, K = nw.shape
    q, inv = np.empty(K, np.float32), np.empty(K, np.float32)
    one, none, floor = np.float32(1), np.float32(0), np.float32(1e-30)
    log_likelihood = 0.0
    for d in range(first, last):
        n = nd[d]
        for k in range(K):
            inv[k] = one / (nk[k] + V * eta)
        for e in range(split[d, part], split[d, part + 1]):
            g, m, c = gamma[e], nw[indices[e]], counts[e]
            total = floor
            for k in range(K):
                v = (max(n[k] - g[k], none) + alpha[k]) * (max(m[k] - g[k], none) + eta) * inv[k]
                q[k] = v
                total += v
            scale = one / total
            for k in range(K):
                new = q[k] * scale
                change = c * (new - g[k])
                g[k] = new
                n[k] += change
                m[k] += change
                nk[k] += change
            log_likelihood += c * math.log(total)
    return log_likelihood


@njit(parallel=True, **OPTIONS)
def _cvb0_diagonal(
    step, bounds, split, indices, counts, gamma, nd, nw, nk, alpha, eta, out
):  # pragma: no cover - compiled
    P = bounds.size - 1
    for b in prange(P):
        part = (b + step) % P
        out[b] += _cvb0_tile(
            bounds[b], bounds[b + 1], split, part, indices, counts, gamma, nd, nw, nk[b], alpha, eta
        )


def cvb0_sweep(bounds, split, indices, counts, gamma, nd, nw, alpha, eta):
    """Set every gamma (nnz, K) to eq. 1, and with it the counts nd (D, K) and nw (V, K); return the log-likelihoods.

    ``bounds`` (P + 1,) are ranges of documents, ``split`` (D, P + 1) says where the words of each range
    begin in a document. At one time each range of documents works on another range of words, so no count
    but N_k is touched by two.
    """
    P = len(bounds) - 1
    total = nw.sum(axis=0, dtype=np.float64)
    out = np.zeros(P)
    for step in range(P):
        nk = np.repeat(total[None].astype(np.float32), P, axis=0)
        before = nk[0].astype(np.float64)
        _cvb0_diagonal(step, bounds, split, indices, counts, gamma, nd, nw, nk, alpha, eta, out)
        total += (nk - before).sum(axis=0)
    return out


# --- collapsed Gibbs -------------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def _alias(weight, chance, other, small, large):  # pragma: no cover - compiled
    """Make Walker's table: slot k is k with probability ``chance[k]``, else ``other[k]``; return the total."""
    K = weight.size
    total = 0.0
    for k in range(K):
        total += weight[k]
    n_small = n_large = 0
    for k in range(K):
        chance[k] = weight[k] * K / total
        other[k] = k
        if chance[k] < 1:
            small[n_small] = k
            n_small += 1
        else:
            large[n_large] = k
            n_large += 1
    while n_small and n_large:
        n_small -= 1
        low, high = small[n_small], large[n_large - 1]
        other[low] = high
        chance[high] -= 1 - chance[low]
        if chance[high] < 1:
            n_large -= 1
            small[n_small] = high
            n_small += 1
    for i in range(n_small):  # what rounding left over
        chance[small[i]] = 1
    for i in range(n_large):
        chance[large[i]] = 1
    return total


@njit(parallel=True, cache=True, error_model="numpy")
def alias_tables(nw, nk, alpha, eta, weight, chance, other, total):  # pragma: no cover - compiled
    """Fill the tables of the smooth part of eq. 2 for every word: weight, chance, other (V, K), total (V,)."""
    V, K = nw.shape
    for w in prange(V):
        for k in range(K):
            weight[w, k] = alpha[k] * (nw[w, k] + eta) / (nk[k] + V * eta)
        total[w] = _alias(weight[w], chance[w], other[w], np.empty(K, np.int32), np.empty(K, np.int32))


@njit(cache=True, error_model="numpy")
def _uniform(state):  # pragma: no cover - compiled
    """Return a number in [0, 1) and move the generator (xorshift64*) on."""
    s = state[0]
    s ^= s >> np.uint64(12)
    s ^= s << np.uint64(25)
    s ^= s >> np.uint64(27)
    state[0] = s
    return ((s * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(11)) * 2.0**-53


@njit(cache=True, error_model="numpy")
def _gibbs_block(
    first, last, start, word, topic, nw, nk, alpha, eta, weight, chance, other, total, state
):  # pragma: no cover - compiled
    """Draw the topic of every token of documents ``first`` to ``last`` anew."""
    V, K = nw.shape
    nd = np.zeros(K, np.int64)
    # topics of the document, and where they stand
    active, place = (
        np.empty(K, np.int64),
        np.empty(K, np.int64),
    )
    cumulative = np.empty(K)
    inv = np.empty(K)
    for k in range(K):
        inv[k] = 1 / (nk[k] + V * eta)
    log_likelihood = 0.0
    for d in range(first, last):
        n_active = 0
        for t in range(start[d], start[d + 1]):
            k = topic[t]
            if nd[k] == 0:
                active[n_active] = k
                place[k] = n_active
                n_active += 1
            nd[k] += 1
        for t in range(start[d], start[d + 1]):
            w, z = word[t], topic[t]
            m = nw[w]
            nd[z] -= 1
            m[z] -= 1
            nk[z] -= 1
            inv[z] = 1 / (nk[z] + V * eta)
            if nd[z] == 0:
                n_active -= 1
                moved = active[n_active]
                active[place[z]] = moved
                place[moved] = place[z]
            own = 0.0
            for i in range(n_active):
                k = active[i]
                own += nd[k] * (m[k] + eta) * inv[k]
                cumulative[i] = own
            log_likelihood += math.log(own + total[w])
            for _ in range(PROPOSALS):
                u = _uniform(state) * (own + total[w])
                if u < own:
                    i = 0
                    while cumulative[i] <= u:
                        i += 1
                    k = active[i]
                else:
                    u = _uniform(state) * K
                    k = np.int64(u)
                    if u - k >= chance[w, k]:
                        k = np.int64(other[w, k])
                if k == z:
                    continue
                fresh_k, fresh_z = (m[k] + eta) * inv[k], (m[z] + eta) * inv[z]
                target = (nd[k] + alpha[k]) * fresh_k * (nd[z] * fresh_z + weight[w, z])
                origin = (nd[z] + alpha[z]) * fresh_z * (nd[k] * fresh_k + weight[w, k])
                if _uniform(state) * origin < target:
                    z = k
            topic[t] = z
            if nd[z] == 0:
                active[n_active] = z
                place[z] = n_active
                n_active += 1
            nd[z] += 1
            m[z] += 1
            nk[z] += 1
            inv[z] = 1 / (nk[z] + V * eta)
        for i in range(n_active):
            nd[active[i]] = 0
    return log_likelihood


@njit(parallel=True, cache=True, error_model="numpy")
def gibbs_sweep(
    bounds,
    start,
    word,
    topic,
    nw,
    nk,
    alpha,
    eta,
    weight,
    chance,
    other,
    total,
    seeds,
    copies,
    log_likelihood,
):  # pragma: no cover - compiled
    """Draw every token's topic, block by block, each from the counts nw (V, K) and its own seed."""
    for b in prange(bounds.size - 1):
        mine = copies[b]
        mine[:] = nw
        log_likelihood[b] = _gibbs_block(
            bounds[b],
            bounds[b + 1],
            start,
            word,
            topic,
            mine,
            nk.copy(),
            alpha,
            eta,
            weight,
            chance,
            other,
            total,
            seeds[b : b + 1].copy(),
        )
