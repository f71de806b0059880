"""Attention and transformers: weighted recall, heads and masks, positions, patches and masked words."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import softmax

from corollary.formulas._library_tools import built, seeded, tensor
from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula


def _reference(Q, K, V, **options):
    """Torch's attention over the rows of three matrices."""
    return F.scaled_dot_product_attention(*(torch.tensor(a[None]) for a in (Q, K, V)), **options)[0].numpy()


@formula(
    "att-softmax-gating",
    latex=r"f_\phi(\xi, x^{1:s}) = \mathrm{softmax}_t(\phi(\xi, x^t)),"
    r"\qquad \text{output } [x^1 \cdots x^s]\,f_\phi(\xi, x^{1:s})",
    where="002, 003 Attention",
    right=lambda scores, X: softmax(scores, axis=1) @ X,
    wrong=lambda scores, X: softmax(scores, axis=0) @ X,
    systems=("transformer", "seq2seq"),
    functions=("corollary.sequences.seq2seq.Seq2SeqNetwork",),
)
def softmax_gating(rng, claim):
    """Attention weighs the inputs by a softmax of their scores: a convex combination for every query."""
    from corollary.sequences.seq2seq import Seq2SeqNetwork

    queries, X = rng.normal(size=(3, 4)), rng.normal(size=(6, 4))
    gated = claim(queries @ X.T, X)
    with seeded(0):
        net = Seq2SeqNetwork(2, 2, width=4, embedding_dimension=2)
    weights = net.attend(tensor(queries[None]), (None, tensor(X[None]), None))[0].numpy()
    directions = rng.normal(size=(4, 50))  # in every direction the result lies between the extreme inputs
    return all_of(
        equal(gated, _reference(queries, X, X, scale=1.0), tol=1e-10),
        equal(gated, weights @ X, tol=1e-10),
        at_most(gated @ directions, (X @ directions).max(0)),
        at_least(gated @ directions, (X @ directions).min(0)),
    )


def _one_hop(query, keys, values):
    """The library's memory network with one word to each fact, after one hop."""
    from corollary.sequences.memory import MemoryNet, position_weights

    n, d = keys.shape
    scale = position_weights(torch.tensor(1), 1, d)[0].double().numpy()  # what a single word is multiplied by
    rows = np.zeros((2, n + 2, d))  # number 0 is padding, n + 1 the question
    rows[0, 1:-1], rows[1, 1:-1], rows[0, -1] = keys / scale, values / scale, query / scale
    net = built(
        lambda: MemoryNet(n + 2, 2, width=d, n_hops=1, n_facts=n),
        **{f"tables__{i}__weight": rows[i] for i in range(2)},
        **{f"ages__{i}": np.zeros((n, d)) for i in range(2)},
        head__weight=np.zeros((2, d)),
        head__bias=np.zeros(2),
    )
    facts = torch.arange(1, n + 1).reshape(1, n, 1)
    return net.hops(facts, torch.tensor([[n + 1]]))[0][0].numpy()


@formula(
    "att-key-value",
    latex=r"F(\xi, (x^t, z^t)_t) = [z^1 \cdots z^s]\,f(\xi, x^{1:s})",
    where="002 Attention",
    right=lambda query, keys, values: softmax(keys @ query) @ values,
    wrong=lambda query, keys, values: softmax(keys @ query) @ keys,
    systems=("transformer", "memory-network"),
    functions=("corollary.sequences.memory.MemoryNet",),
)
def key_value(rng, claim):
    """Keys decide where to look, values what is read; a sharp query reads one value."""
    keys, values = rng.normal(size=(5, 4)), rng.normal(size=(5, 4))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    query, target = rng.normal(size=4), int(rng.integers(5))
    recalled = _one_hop(query, keys, values) - query  # the library adds what it finds to the query
    return all_of(
        equal(claim(query, keys, values), recalled, tol=1e-10),
        equal(claim(query, keys, values), _reference(query[None], keys, values, scale=1.0)[0], tol=1e-10),
        equal(claim(1e6 * keys[target], keys, values), values[target], tol=1e-10),
    )


@formula(
    "att-scaled-dot-product",
    latex=r"\phi(\xi, x) = \frac{\xi \cdot x}{\sqrt n}, \qquad \xi, x \in \mathbb R^n",
    where="002, 003 Attention; 004 §5.1",
    right=lambda products, n, m: products / np.sqrt(n),
    wrong=lambda products, n, m: products / n,
    errata=(
        Erratum(
            "E78",
            printed=r"$\xi \cdot x/\sqrt m$ with $\xi, x \in \mathbb R^n$",
            correction=r"$\xi \cdot x/\sqrt n$",
            form=lambda products, n, m: products / np.sqrt(m),
            where="002 Transformers",
            kind="dimensions",
        ),
    ),
    systems=("transformer",),
)
def scaled_dot_product(rng, claim):
    """Dividing by the root of their length keeps products of standard normal vectors at unit variance."""
    n, m = 4, 16  # the length of the vectors, and of the sequence
    products = np.einsum("ij,ij->i", *rng.normal(size=(2, 4000, n)))
    scores = claim(products, n, m)
    # 4000 draws: the variance has a standard error of 3 %, the mean of 0.016
    return all_of(equal(scores.var(), 1.0, tol=0.15), equal(scores.mean(), 0.0, tol=0.1))


@formula(
    "att-single-head",
    latex=r"\text{rows: } \mathrm{softmax}\Big(\frac{QK^\top}{\sqrt d}\Big)V; \qquad "
    r"\text{columns: } V\,\mathrm{softmax}\Big(\frac{Q^\top K}{\sqrt k}\Big)^\top",
    where="002, 003 Attention; 004 §5.1",
    right=lambda Q, K, V: V @ softmax(Q.T @ K / np.sqrt(len(Q)), axis=1).T,
    wrong=lambda Q, K, V: V @ softmax(Q.T @ K, axis=1).T,
    errata=(
        Erratum(
            "E76",
            printed=r"$\mathrm{softmax}(Q^\top K/\sqrt k)\,V$ with $V \in \mathbb R^{r \times T}$",
            correction=r"$V\,\mathrm{softmax}(Q^\top K/\sqrt k)^\top$",
            form=lambda Q, K, V: softmax(Q.T @ K / np.sqrt(len(Q)), axis=1) @ V,  # defined only for r = T
            where="004 §5.1",
            kind="dimensions",
        ),
    ),
    systems=("transformer",),
)
def single_head(rng, claim):
    """Each token reads the values of all tokens; reordering the tokens reorders the result."""
    Q, K, V = rng.normal(size=(3, 5, 5))  # columns are tokens; as many features as tokens
    order = rng.permutation(5)
    head = claim(Q, K, V)
    return all_of(
        equal(head, _reference(Q.T, K.T, V.T).T, tol=1e-10),
        equal(claim(Q[:, order], K[:, order], V[:, order]), head[:, order], tol=1e-10),
    )


def _heads(X, U_Q, U_K, U_V):
    return [
        softmax((X @ Q) @ (X @ K).T / np.sqrt(Q.shape[1]), axis=1) @ (X @ V) for Q, K, V in zip(U_Q, U_K, U_V)
    ]


def _multi_head(X, U_Q, U_K, U_V, W_O):
    return np.hstack(_heads(X, U_Q, U_K, U_V)) @ W_O


def _multi_head_unscaled(X, U_Q, U_K, U_V, W_O):
    return _multi_head(X, U_Q * np.sqrt(U_Q.shape[2]), U_K, U_V, W_O)


def _multi_head_interleaved(X, U_Q, U_K, U_V, W_O):
    return np.stack(_heads(X, U_Q, U_K, U_V), axis=2).reshape(len(X), -1) @ W_O


@formula(
    "att-multi-head",
    latex=r"\mathrm{Concat}(H_1, \dots, H_h)\,W^O, \quad H_i = \mathrm{Att}(XU_Q^i, XU_K^i, XU_V^i),"
    r"\quad U_{Q,K}^i \in \mathbb R^{e \times d_k},\ U_V^i \in \mathbb R^{e \times d_v},"
    r"\ W^O \in \mathbb R^{hd_v \times e}",
    where="002, 003 Attention",
    right=_multi_head,
    wrong=_multi_head_interleaved,
    errata=(
        Erratum(
            "E78",
            printed=r"no scaling, and $Y \in \mathbb R^{L \times d}$ from $W_v \in \mathbb R^{d \times hd}$",
            correction=r"scores over $\sqrt{d_k}$; $L \times hd$ before the output projection",
            form=_multi_head_unscaled,
            where="002 Transformers",
            kind="dimensions",
        ),
    ),
    systems=("transformer", "gpt", "bert", "vit"),
    functions=("corollary.vision.vit.Attention",),
)
def multi_head(rng, claim):
    """Several heads attend on their own projections; their outputs are joined and mixed once more."""
    from corollary.vision.vit import Attention

    e, h, d = 6, 2, 3
    X, U, W_O = rng.normal(size=(5, e)), rng.normal(size=(3, h, e, d)), rng.normal(size=(h * d, e))
    joined = U.transpose(0, 1, 3, 2).reshape(-1, e)
    parts = {"qkv__weight": joined, "out__weight": W_O.T, "out__bias": np.zeros(e)}
    layer = built(lambda: Attention(e, h, bias=False), **parts)
    return equal(claim(X, *U, W_O), layer(tensor(X[None]))[0], tol=1e-10)


def _masked(X, memory, U_Q, U_K, U_V, causal, blank=-np.inf):
    scores = (X @ U_Q) @ (memory @ U_K).T / np.sqrt(U_Q.shape[1])
    if causal:
        scores = np.where(np.tri(*scores.shape, dtype=bool), scores, blank)
    return softmax(scores, axis=1) @ (memory @ U_V)


@formula(
    "att-mask-and-cross",
    latex=r"\text{causal: } s_{tt'} = -\infty \text{ for } t' > t; \qquad "
    r"\text{cross: } Q = X_{\mathrm{dec}}U_Q,\ K = X_{\mathrm{enc}}U_K,\ V = X_{\mathrm{enc}}U_V",
    where="002, 003 Attention",
    right=_masked,
    wrong=lambda *args: _masked(*args, blank=0.0),
    systems=("transformer", "gpt"),
    functions=("corollary.language.decoder.Block",),
)
def mask_and_cross(rng, claim):
    """A causal mask hides later tokens entirely; cross-attention asks with one sequence and reads another."""
    from corollary.language.decoder import Block

    X, memory, U = rng.normal(size=(5, 4)), rng.normal(size=(7, 4)), rng.normal(size=(3, 4, 4))
    changed = X.copy()
    changed[3:] += rng.normal(size=(2, 4))
    masked = claim(X, X, *U, True)
    I, none = np.eye(4), np.zeros(4)
    block = built(  # a block of GPT that adds its attention to the input, and nothing else
        lambda: Block(4, 1, 4, 0.0, "relu", 1e-5, scale=0.5),
        qkv__weight=np.vstack([u.T for u in U]), qkv__bias=np.zeros(12), mix__weight=I, mix__bias=none,
        expand__weight=0 * I, expand__bias=none, contract__weight=0 * I, contract__bias=none,
        norm1__weight=none + 1, norm1__bias=none, norm2__weight=none + 1, norm2__bias=none,
    )  # fmt: skip
    block.norm1 = torch.nn.Identity()
    return all_of(
        equal(masked, block(tensor(X[None]))[0].numpy() - X, tol=1e-10),
        equal(masked, _reference(X @ U[0], X @ U[1], X @ U[2], is_causal=True), tol=1e-10),
        equal(claim(changed, changed, *U, True)[:3], masked[:3], tol=1e-15),
        equal(claim(X, memory, *U, False), _reference(X @ U[0], memory @ U[1], memory @ U[2]), tol=1e-10),
    )


@formula(
    "att-contextual-embedding",
    latex=r"\xi^s = \sum_t a_{st}\,W x^t, \qquad \Xi = A X W^\top",
    where="003 Attention",
    right=lambda A, X, W: A @ X @ W.T,
    wrong=lambda A, X, W: A @ X @ W,
    systems=("transformer",),
)
def contextual_embedding(rng, claim):
    """A contextual embedding averages the transformed tokens with the attention weights."""
    A, X, W = softmax(rng.normal(size=(5, 5)), axis=1), rng.normal(size=(5, 4)), rng.normal(size=(4, 4))
    sums = np.array([sum(A[s, t] * (W @ X[t]) for t in range(5)) for s in range(5)])
    return equal(claim(A, X, W), sums, tol=1e-12)


_C = 10_000
PARTS = ("weight", "bias")


def _sinusoids(t, n):
    from corollary.language.transformer import sinusoids

    return sinusoids(int(t.max()) + 1, n)[t.astype(int)].numpy()


def _positions_printed(t, n):
    angles = t[:, None] * _C ** (np.arange(n) / n)
    return np.where(np.arange(n) % 2 == 0, np.sin(angles), np.cos(angles))


def _positions_half_exponent(t, n):
    angles = t[:, None] * _C ** (-np.arange(n // 2) / n)
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(t), n)


@formula(
    "att-positional-encoding",
    latex=r"p_{t,2i} = \sin(t\omega_i),\quad p_{t,2i+1} = \cos(t\omega_i),"
    r"\quad \omega_i = C^{-2i/n},\ C = 10^4; \qquad p_{t+\Delta} = R_\Delta\,p_t",
    where="002, 003 Transformers",
    right=_sinusoids,
    wrong=_positions_half_exponent,
    errata=(
        Erratum(
            "E75",
            printed=r"$\omega_k = C^{k/n}$, another one for every coordinate",
            correction=r"$\omega_i = C^{-2i/n}$, shared by a sine and a cosine",
            form=_positions_printed,
            where="002, 003 Transformers",
            kind="formula",
        ),
    ),
    systems=("transformer",),
    functions=("corollary.language.transformer.sinusoids",),
)
def positional_encoding(rng, claim):
    """Positions are written in sines and cosines of falling frequency; a shift in time is a rotation."""
    n, shift = 8, int(rng.integers(1, 6))
    t = np.arange(60.0)
    encoded, later = claim(t, n), claim(t + shift, n)
    rotation, *_ = np.linalg.lstsq(encoded, later, rcond=None)
    phases = np.exp(1j * t[:, None] * np.geomspace(1, _C ** (-(n - 2) / n), n // 2))
    return all_of(
        equal(encoded @ rotation, later, tol=1e-10),
        equal(rotation @ rotation.T, np.eye(n), tol=1e-4),  # the slowest waves leave the fit ill-conditioned
        equal(encoded[:, 1::2] + 1j * encoded[:, ::2], phases, tol=1e-10),
    )


def _layer_norm(x, gamma, beta):
    return gamma * (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) + beta


def _attend(x, w):
    heads = [part.reshape(2, -1, x.shape[1]).transpose(0, 2, 1) for part in np.split(w["in_proj_weight"], 3)]
    biases = [part.reshape(2, 1, -1) for part in np.split(w["in_proj_bias"], 3)]
    Q, K, V = (x @ U + b for U, b in zip(heads, biases))
    joined = softmax(Q @ K.transpose(0, 2, 1) / np.sqrt(Q.shape[2]), axis=2) @ V
    return np.hstack(joined) @ w["out_proj.weight"].T + w["out_proj.bias"]


def _block(x, w, pre_norm=False):
    attention = {name.removeprefix("self_attn."): value for name, value in w.items()}

    def mlp(v):
        hidden = np.maximum(v @ w["linear1.weight"].T + w["linear1.bias"], 0)
        return hidden @ w["linear2.weight"].T + w["linear2.bias"]

    def norm(v, name):
        return _layer_norm(v, w[f"{name}.weight"], w[f"{name}.bias"])

    if pre_norm:
        x = x + _attend(norm(x, "norm1"), attention)
        return x + mlp(norm(x, "norm2"))
    x = norm(x + _attend(x, attention), "norm1")
    return norm(x + mlp(x), "norm2")


@formula(
    "att-transformer-block",
    latex=r"X' = \mathrm{LN}(X + \mathrm{MHSA}(X)), \qquad X'' = \mathrm{LN}(X' + \mathrm{MLP}(X'))",
    where="004 §5.1; 002 Transformers",
    right=_block,
    wrong=lambda x, w: _block(x, w, pre_norm=True),
    systems=("transformer", "bert", "bert-classifier", "bert-regressor", "bert-tagger", "bert-answerer"),
    functions=("corollary.language.encoder.Block",),
)
def transformer_block(rng, claim):
    """Self-attention and a small network, each with a shortcut and a layer norm; the shape is kept."""
    from corollary.language.encoder import Block

    x = rng.normal(size=(5, 6))
    layer = torch.nn.utils.skip_init(
        torch.nn.TransformerEncoderLayer, 6, 2, 8, dropout=0.0, batch_first=True, dtype=torch.float64
    )
    weights = {name: rng.normal(size=tuple(p.shape)) for name, p in layer.named_parameters()}
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(torch.tensor(weights[name]))
        reference = layer(torch.tensor(x[None]))[0]
    renamed = {
        "self_attn.in_proj_weight": "qkv.weight",
        "self_attn.in_proj_bias": "qkv.bias",
        "self_attn.out_proj.weight": "mix.weight",
        "self_attn.out_proj.bias": "mix.bias",
        **{
            f"linear{i}.{part}": f"{to}.{part}"
            for i, to in ((1, "expand"), (2, "contract"))
            for part in PARTS
        },
    }
    own = {renamed.get(name, name).replace(".", "__"): value for name, value in weights.items()}
    block = built(lambda: Block(6, 2, 8, 0.0, "relu", 1e-5), **own)  # a block of BERT
    return all_of(
        equal(claim(x, weights), reference, tol=1e-9),
        equal(claim(x, weights), block(tensor(x[None]), None)[0], tol=1e-9),
    )


def _recall(q, keys, contents, relations):
    found = contents[np.argmax(keys @ q)]
    return np.concatenate([found, q[-relations:]])


def _recall_content_only(q, keys, contents, relations):
    found = contents[np.argmax(keys @ q)]
    return np.concatenate([found, np.zeros(relations)])


@formula(
    "att-memory-recall",
    latex=r"i = \arg\max_j\langle q, k_j\rangle, \qquad q \leftarrow g(q, m_i)",
    where="002, 003 Memory networks",
    right=_recall,
    wrong=_recall_content_only,
    systems=("memory-network",),
)
def memory_recall(rng, claim):
    """A query finds the cell that matches best; what it holds, with the query, forms the next query."""
    entities, relations, hops = 6, 3, 3
    facts = rng.integers(0, entities, size=(entities, relations))
    facts[:, 1] = (facts[:, 0] + 1 + rng.integers(0, entities - 1, size=entities)) % entities
    pairs = [(e, r) for e in range(entities) for r in range(relations)]
    things, links = np.eye(entities), np.eye(relations)
    keys = np.array([np.concatenate([things[e], links[r]]) for e, r in pairs])
    contents = np.array([things[facts[e, r]] for e, r in pairs])
    answers, truth = [], []
    for e, r in pairs:  # follow one relation for three hops
        q, at = np.concatenate([things[e], links[r]]), e
        for _ in range(hops):
            q, at = claim(q, keys, contents, relations), facts[at, r]
        answers.append(q[:entities].argmax())
        truth.append(at)
    return equal(answers, truth, tol=0.1)


def _patches(image, V, p):
    H, W, q = image.shape
    cut = image.reshape(H // p, p, W // p, p, q).transpose(0, 2, 1, 3, 4).reshape(-1, p * p * q)
    return p * p * q, cut @ V.T


def _patches_printed(image, V, p):
    H, W, q = image.shape
    cut = image.reshape(H // p, p, W // p, p, q).transpose(0, 2, 1, 3, 4).reshape(-1, p * p * q)
    return p * q * q, cut[:, : p * q * q] @ V[:, : p * q * q].T


def _patches_rows_first(image, V, p):
    H, W, q = image.shape
    return p * p * q, image.reshape(-1, p * p * q)[: (H // p) * (W // p)] @ V.T


@formula(
    "vit-patch-embedding",
    latex=r"x^i = V\,\mathrm{vec}(p^i), \qquad p^i \in \mathbb R^{p \times p \times q},"
    r"\quad V \in \mathbb R^{n \times p^2 q}",
    where="001 §15.3; 003 Transformers",
    right=_patches,
    wrong=_patches_rows_first,
    errata=(
        Erratum(
            "E77",
            printed=r"$V \in \mathbb R^{n \times pq^2}$ for patches of $p \times p \times q$",
            correction=r"$V \in \mathbb R^{n \times p^2 q}$",
            form=_patches_printed,
            where="001 §15.3",
            kind="dimensions",
        ),
    ),
    systems=("vit",),
    functions=("corollary.vision.ViT",),
)
def patch_embedding(rng, claim):
    """Embedding the patches of an image linearly is a convolution whose stride equals its kernel."""
    from corollary.vision import ViT

    p, q, n = 4, 3, 5
    image, kernel = rng.normal(size=(8, 12, q)), rng.normal(size=(n, q, p, p))
    with seeded(0):
        net = ViT(
            channels=q, n_classes=0, size=(8, 12), patch_size=p, width=n, n_layers=1, n_heads=1
        ).double()
    layer = built(lambda: net.patches, weight=kernel, bias=np.zeros(n))
    reference = layer(tensor(image.transpose(2, 0, 1)[None]))
    columns, tokens = claim(image, kernel.transpose(0, 2, 3, 1).reshape(n, -1), p)
    return all_of(
        equal(columns, kernel[0].size, tol=0.1),
        equal(tokens, reference[0].reshape(n, -1).T, tol=1e-10),
    )


def _masks_only(tokens, mask, vocabulary, documents, rng):
    selected = rng.random(len(tokens)) < 0.15
    return (
        np.where(selected, mask, tokens),
        selected,
        *_pretraining_tasks(tokens, mask, vocabulary, documents, rng)[2:],
    )


def _pretraining_tasks(tokens, mask, vocabulary, documents, rng):
    from corollary.language.pretraining import mask_tokens, sentence_pairs

    codes = torch.tensor(tokens[None])
    with seeded(int(rng.integers(2**31))):
        hidden, chosen = mask_tokens(codes, torch.zeros_like(codes, dtype=torch.bool), mask, vocabulary)
    frame = SimpleNamespace(open=-1, part=-2)
    rows, _, follows = sentence_pairs([[[word] for word in words] for words in documents], frame, 5, rng)
    return hidden[0].numpy(), chosen[0].numpy(), np.array(rows)[:, [1, 3]], follows


@formula(
    "bert-masking",
    latex=r"\text{predict } 15\% \text{ of the tokens}: \quad "
    r"80\% \text{ of them [MASK]},\ 10\% \text{ random},\ 10\% \text{ unchanged}; \qquad "
    r"\text{and whether } B \text{ follows } A, \text{ in half of the pairs}",
    where="001 §15.2; 002, 003 Transformers",
    right=_pretraining_tasks,
    wrong=_masks_only,
    systems=("bert",),
    functions=("corollary.language.pretraining.mask_tokens", "corollary.language.pretraining.sentence_pairs"),
)
def bert_masking(rng, claim):
    """BERT predicts 15 % of the tokens, of which most are masked, some replaced and some left alone.

    Its second task is to tell whether a sentence follows another one, which half of the pairs do.
    """
    n, vocabulary, mask = 100_000, 8, 8
    tokens = rng.integers(0, vocabulary, size=n)
    documents = np.arange(2000).reshape(40, 50)  # sentences of one word, all different
    corrupted, selected, pairs, follows = claim(tokens, mask, vocabulary, documents, rng)
    replaced = (corrupted != tokens) & (corrupted != mask)
    same = 1 / vocabulary  # a random token may be the old one
    expected = np.array([0.15, 0.15 * 0.8, 0.15 * 0.1 * (1 - same), 0.15 * 0.1 * (1 + same)])
    unchanged = selected & (corrupted == tokens)
    counted = np.array([selected.mean(), (corrupted == mask).mean(), replaced.mean(), unchanged.mean()])
    errors = np.sqrt(expected * (1 - expected) / n)
    outside = (corrupted != tokens) & ~selected
    drawn = corrupted[replaced]  # a random token: any of the vocabulary is as likely
    centre = (drawn - (vocabulary - 1) / 2).sum() / np.sqrt((vocabulary**2 - 1) / 12 * max(1, len(drawn)))
    half = (follows.mean() - 0.5) / np.sqrt(0.25 / len(follows))
    next_one = (pairs[:, 1] == pairs[:, 0] + 1) & (pairs[:, 1] % 50 != 0)
    # five standard errors: one false alarm in half a million runs
    return all_of(
        at_most(np.abs(counted - expected) / errors, 0.0, tol=5.0),
        at_most(np.abs([centre, half]), 0.0, tol=5.0),
        at_most(outside.sum(), 0),
        equal(follows, next_one, tol=0),
        at_least(len(follows), 40 * 49),
    )


@formula(
    "elmo-mixture",
    latex=r"\mathrm{ELMo} = \gamma\sum_{j=0}^{2L} s_j h_j, \qquad s = \mathrm{softmax}(w)",
    where="001 §15.1; 002, 003 Transformers",
    right=lambda states, w, gamma: gamma * softmax(w) @ states,
    wrong=lambda states, w, gamma: gamma * np.exp(w) @ states,
    systems=("elmo",),
    functions=("corollary.language.elmo.LayerMix",),
)
def elmo_mixture(rng, claim):
    """A word embedding mixes the states of all layers by task weights that are positive and sum to one."""
    from corollary.language.elmo import LayerMix

    L, d = 2, 8
    states, w, gamma = rng.normal(size=(2 * L + 1, d)), rng.normal(size=2 * L + 1), rng.uniform(0.5, 2)
    mixed = claim(states, w, gamma) / gamma
    layer = built(lambda: LayerMix(2 * L + 1), w=w, gamma=gamma)
    weights = np.linalg.lstsq(states.T, mixed, rcond=None)[0]  # the layers are independent: weights come back
    return all_of(
        equal(states.T @ weights, mixed, tol=1e-10),
        equal(gamma * mixed, layer(tensor(states[:, None, None]))[0, 0], tol=1e-10),
        at_least(weights, 0.0),
        equal(weights.sum(), 1.0, tol=1e-10),
        equal(np.log(weights[1:] / weights[0]), w[1:] - w[0], tol=1e-8),
    )
