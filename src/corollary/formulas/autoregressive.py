"""Autoregressive models and the basics of generative modelling."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from scipy.special import rel_entr
from scipy.stats import entropy, norm

from corollary.formulas._library_tools import seeded, tensor
from corollary.formulas.record import Erratum, all_of, equal, formula
from corollary.formulas.tools import quadrature, simplex


@formula(
    "ar-chain-rule",
    latex=r"p(x) = \prod_{t=1}^{m} p(x_t \mid x_{1:t-1})",
    where="001 §13, §19.6; 003 Autoregressive models; 004 §5.1",
    right=lambda conditionals: np.prod(conditionals, axis=-1),
    errata=(
        Erratum(
            "E98",
            r"$p(x) = \sum_t p(x_t \mid x_{<t})$",
            r"$\prod_t p(x_t \mid x_{<t})$",
            lambda conditionals: np.sum(conditionals, axis=-1),
            where="004 §5.1",
            kind="formula",
        ),
    ),
    systems=("gpt", "pixelcnn", "wavenet"),
    functions=("corollary.language.decoder.Decoder", "corollary.sequences.wavenet.WaveNetwork"),
)
def chain_rule(rng, claim):
    """A joint law is the product of each part's law given the parts before it, and sums to one."""
    from corollary.language.decoder import Decoder
    from corollary.sequences.wavenet import WaveNetwork

    joint = simplex(rng, 27).reshape(3, 3, 3)
    conditionals = []
    for a, b, c in product(range(3), repeat=3):
        first = joint[a].sum() / joint.sum()
        second = joint[a, b].sum() / joint[a].sum()
        third = joint[a, b, c] / joint[a, b].sum()
        conditionals.append([first, second, third])
    masses = claim(np.array(conditionals))
    # Networks whose outputs see nothing but the past: the products over all sequences sum to one too.
    codes = torch.tensor(list(product(range(3), repeat=3)))
    with seeded(int(rng.integers(2**31))), torch.no_grad():
        begun = torch.cat([torch.full((27, 1), 3), codes[:, :-1]], 1)  # number 3 begins a wave or a text
        wave = WaveNetwork(3, width=4, skip_width=4, n_layers=2).double()(begun)
        text = Decoder(4, 3, 4, 1, 2).double()(begun)[:, :, :3]
    sums = [
        claim(logits.softmax(-1).gather(2, codes[:, :, None])[:, :, 0].numpy()).sum()
        for logits in (wave, text)
    ]
    return all_of(
        equal(masses, joint.ravel(), tol=1e-12),
        equal(masses.sum(), 1.0, tol=1e-12),
        equal(sums, 1.0, tol=1e-12),
    )


@formula(
    "ar-softmax-head",
    latex=r"p(x \mid x_{1:t-1}) = \frac{e^{\langle z, w_x\rangle}}{\sum_{x'} e^{\langle z, w_{x'}\rangle}}",
    where="004 §5.1",
    right=lambda Z, W: np.exp(Z @ W.T) / np.exp(Z @ W.T).sum(1, keepdims=True),
    wrong=lambda Z, W: np.exp(Z @ W.T) / np.exp(Z @ W.T).sum(0, keepdims=True),
    systems=("gpt", "rnn"),
    functions=("corollary.language.decoder.Decoder",),
)
def softmax_head(rng, claim):
    """The next symbol's law is a softmax of its embedding's agreement with that of the history.

    It sums to one over symbols, and its log is the loss that torch computes.
    """
    from corollary.language.decoder import Decoder

    Z, W = rng.normal(size=(5, 3)), rng.normal(size=(7, 3))
    targets = rng.integers(7, size=5)
    loss = torch.nn.functional.cross_entropy(torch.tensor(Z @ W.T), torch.tensor(targets), reduction="none")
    p = claim(Z, W)
    with seeded(int(rng.integers(2**31))), torch.no_grad():  # GPT's head is its embedding
        net, h = Decoder(7, 5, 4, 1, 1).double(), tensor(rng.normal(size=(5, 4)))
        theirs = net.logits(h).softmax(1)
        own = claim(net.norm(h).numpy(), net.tokens.weight.numpy())
    return all_of(
        equal(p.sum(1), 1.0, tol=1e-12),
        equal(-np.log(p[np.arange(5), targets]), loss, tol=1e-12),
        equal(own, theirs, tol=1e-12),
    )


def raster_mask(k, right_side=True):
    """Kernel mask: rows above kept, of the current row only one side, neither the pixel nor rows below."""
    mask = np.zeros((k, k))
    mask[: k // 2] = 1
    mask[k // 2, : k // 2] = right_side
    mask[k // 2, k // 2 + 1 :] = not right_side
    return mask


@formula(
    "ar-pixelcnn-mask",
    latex=r"M_{ij} = \mathbf{1}[\,i < c \text{ or } (i = c \text{ and } j < c)\,], "
    r"\qquad c = \lfloor k/2 \rfloor",
    where="004 §5.1",
    right=raster_mask,
    errata=(
        Erratum(
            "E99",
            "zero below and to the left",
            "zero below and to the right, and (first layer) at the pixel itself",
            lambda k: raster_mask(k, right_side=False),
            where="004 §5.1",
            kind="claim",
            counterexample=r"in raster order the pixel to the left comes before, the one to the right after",
        ),
    ),
    systems=("pixelcnn",),
)
def pixelcnn_mask(rng, claim):
    """A pixel may see the rows above and what stands left of it: nothing it is to predict, nothing after it.

    The gradient of every output pixel shows which inputs it depends on.
    """
    side, k = 7, int(rng.choice([5, 7]))
    kernel = torch.tensor(claim(k) * rng.uniform(0.5, 1.5, size=(k, k)))[None, None]
    image = torch.tensor(rng.normal(size=(1, 1, side, side)))
    convolve = lambda x: torch.nn.functional.conv2d(x, kernel, padding=k // 2)
    J = torch.autograd.functional.jacobian(convolve, image).reshape(side**2, side**2)
    order = np.arange(side**2)
    row, column = np.divmod(order, side)
    near = (np.abs(row[:, None] - row) <= k // 2) & (np.abs(column[:, None] - column) <= k // 2)
    allowed = near & (order[None, :] < order[:, None])
    return equal(J.numpy() != 0, allowed, tol=0.1)


@formula(
    "gen-mle-objective",
    latex=r"\mathbb{E}_{p}[\log p_\theta(x)] = -KL(p \Vert p_\theta) - H(p)",
    where="003 Generative models; 004 §5",
    right=lambda p, q: -rel_entr(p, q).sum(-1) - entropy(p, axis=-1),
    wrong=lambda p, q: -rel_entr(q, p).sum(-1) - entropy(p, axis=-1),
    systems=("vae", "flows"),
)
def mle_objective(rng, claim):
    """Maximum likelihood minimises the divergence of the model from the data, in that order.

    A missed mode costs without limit, a false one costs little.
    """
    p, q = simplex(rng, 2, 30, 5)
    missed, false = np.array([0.5, 0.5]), np.array([1.0 - 1e-9, 1e-9])
    lost_mode = claim(missed, false)  # half the data where the model has almost nothing
    return all_of(
        equal(claim(p, q), np.einsum("ij,ij->i", p, np.log(q)), tol=1e-10),
        equal(lost_mode, 0.5 * np.log1p(-1e-9) + 0.5 * np.log(1e-9), tol=1e-9),
    )


@formula(
    "gen-implicit-model",
    latex=r"z \sim \pi, \; x = F_\theta(z); \qquad p(x) = \pi(F^{-1}(x))\,|(F^{-1})'(x)| "
    r"\text{ only if } F \text{ is invertible}",
    where="000 §16.3.4; 002, 003 Generative models",
    right=lambda density, slope: density / np.abs(slope),
    wrong=lambda density, slope: density,
    systems=("gan", "flows"),
)
def implicit_model(rng, claim):
    """A generator is sampled by one forward pass; its density follows from the inverse, if there is one.

    For a map that folds, the same formula on one branch finds half of the mass.
    """
    samples = np.sinh(rng.normal(size=100_000))
    edges = np.linspace(-3, 3, 13)
    shares = np.histogram(samples, edges)[0] / len(samples)
    density = lambda x: claim(norm.pdf(np.arcsinh(x)), np.sqrt(1 + x**2))
    masses = [quadrature(density, low, high) for low, high in zip(edges[:-1], edges[1:])]
    falling = lambda x: claim(norm.pdf(np.arcsinh(-x)), -np.sqrt(1 + x**2))  # x = -sinh(z)
    mirrored = [quadrature(falling, -high, -low) for low, high in zip(edges[:-1], edges[1:])]
    fold = quadrature(lambda z: claim(norm.pdf(z), 2 * z) * 2 * z, 0, 12)  # x = z^2, in the variable z
    # Shares of at most 0.2 among 1e5 samples are known to 0.0013; five such errors are allowed.
    return all_of(
        equal(masses, shares, tol=0.0065), equal(mirrored, masses, tol=1e-10), equal(fold, 0.5, tol=1e-8)
    )


@formula(
    "llm-noisy-channel",
    latex=r"P(\text{target} \mid \text{source}) \propto "
    r"P(\text{source} \mid \text{target})\,P(\text{target})",
    where="001 §15.2; 003 NLP",
    right=lambda channel, language: channel * language / np.sum(channel * language),
    wrong=lambda channel, language: channel / np.sum(channel),
    systems=("gpt", "seq2seq"),
)
def noisy_channel(rng, claim):
    """To decode, weigh how well each target explains the source by how likely the target is at all."""
    joint = simplex(rng, 30).reshape(6, 5)  # targets by sources
    language = joint.sum(1)
    posteriors = [claim(joint[:, s] / language, language) for s in range(5)]
    return equal(posteriors, (joint / joint.sum(0)).T, tol=1e-12)
