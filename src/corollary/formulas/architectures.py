"""Facts about architectures that the notes give in words: what they count, concatenate, align and lose."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import torch

from corollary.formulas._graph_tools import propagation
from corollary.formulas.record import all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import orthogonal, simplex


@formula(
    "cnn-lenet-count",
    latex=r"\sum_{j}\bigl(k^2 \lvert \mathcal I_j\rvert + 1\bigr): \qquad "
    r"156 + 12 + 1516 + 32 + 48120 + 10164 = 60000",
    where="001 §12.10.1",
    right=lambda kernel, inputs: sum(kernel**2 * seen + 1 for seen in inputs),
    wrong=lambda kernel, inputs: len(inputs) * (kernel**2 * max(inputs) + 1),
    systems=("lenet",),
    functions=("corollary.vision.lenet.LeNet5",),
)
def lenet_count(rng, claim):
    """LeNet-5 has 60000 weights, as its second convolution connects each map with some of the maps before only.

    A map that sees j maps through k x k kernels has k^2 j weights and a bias.
    """
    from corollary.vision.lenet import LeNet5

    layers = [sum(p.numel() for p in layer.parameters()) for layer in LeNet5().features]
    connected = [
        claim(5, [1] * 6),
        claim(5, [3] * 6 + [4] * 9 + [6]),
        claim(5, [16] * 120),
        claim(1, [120] * 84),
    ]
    return all_of(
        equal(connected, [layers[i] for i in (0, 2, 4, 5)], tol=0),
        equal(sum(connected) + 2 * 6 + 2 * 16, 60000, tol=0),  # subsampling: a factor and a bias a map
    )


@formula(
    "cnn-alexnet-count",
    latex=r"n_{out}\Bigl(\frac{k^2 n_{in}}{g} + 1\Bigr) \text{ for } g \text{ groups}: "
    r"\quad 5 \text{ convolutions, the first } 11 \times 11, \ 3 \text{ full layers}, \ 6.1 \cdot 10^7 \text{ weights}",
    where="001 §12.10.1",
    right=lambda kernel, n_in, n_out, groups: n_out * (kernel**2 * n_in // groups + 1),
    wrong=lambda kernel, n_in, n_out, groups: n_out * (kernel**2 * n_in + 1),
    systems=("alexnet",),
    functions=("corollary.vision.alexnet.AlexNet",),
)
def alexnet_count(rng, claim):
    """AlexNet has five convolutions, three of them in two groups, and three full layers with most of its weights."""
    from corollary.vision.alexnet import AlexNet

    with torch.device("meta"):
        net = AlexNet()
    layers = [m for m in net.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
    counts = [sum(p.numel() for p in layer.parameters()) for layer in layers]
    shapes = [(11, 3, 96, 1), (5, 96, 256, 2), (3, 256, 384, 1), (3, 384, 384, 2), (3, 384, 256, 2)]
    full = [(1, 256 * 6 * 6, 4096, 1), (1, 4096, 4096, 1), (1, 4096, 1000, 1)]
    claimed = [claim(*shape) for shape in shapes + full]
    return all_of(
        equal(claimed, counts, tol=0),
        equal(layers[0].kernel_size, (11, 11), tol=0),
        at_least(sum(claimed[5:]) / sum(claimed), 0.9),
        equal(sum(claimed) / 1e7, 6.1, tol=0.05),
    )


@formula(
    "cnn-unet-concatenates",
    latex=r"x \leftarrow [\mathrm{skip}, \mathrm{up}(x)] \in \mathbb R^{(c_{skip} + c_{up}) \times h \times w}, "
    r"\quad \text{not } \mathrm{skip} + \mathrm{up}(x)",
    where="001 §12.10.1",
    right=lambda skip, up: np.concatenate([skip, up]),
    wrong=lambda skip, up: np.tile(skip + up, (2, 1, 1)),
    systems=("unet",),
    functions=("corollary.vision.unet.UNet",),
)
def unet_concatenates(rng, claim):
    """On its way up a U-Net puts the maps of the way down beside its own; it does not add them as a ResNet does."""
    from corollary.vision.unet import UNet

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(int(rng.integers(2**31)))
        net = UNet(size=16, width=4, depth=2, norm=False).double().eval()
        seen = {}
        for name, module in (("skip", net.down[1]), ("up", net.up[0])):
            module.register_forward_hook(lambda _, __, out, name=name: seen.update({name: out[0].numpy()}))
        net.join[0].register_forward_pre_hook(lambda _, given: seen.update(joined=given[0][0].numpy()))
        net(torch.tensor(rng.normal(size=(1, 1, 16, 16))))
    return equal(claim(seen["skip"], seen["up"]), seen["joined"], tol=1e-12)


def _aligned(X):
    """Points in a frame of their own: the axes of their spread, each turned to the heavier side."""
    values, axes = np.linalg.eigh(X.T @ X)
    return X @ (axes * np.sign(((X @ axes) ** 3).sum(0)))


@formula(
    "pointnet-tnet",
    latex=r"A(XR) = R^\top A(X)\ \forall R \in O(d) \;\Longrightarrow\; f(X A(X)) = f(XR\,A(XR)); \qquad "
    r"\lVert I - AA^\top\rVert_F^2 = 0 \iff A \in O(d)",
    where="001 §16.1",
    right=_aligned,
    wrong=lambda X: X,
    systems=("pointnet", "equivariance"),
)
def tnet(rng, claim):
    """A T-Net predicts the frame of a cloud of points; read in that frame, the cloud looks the same however it was turned.

    The claim is the aligned cloud. Here the frame is that of the principal axes, which turns with the cloud;
    a learned one is kept near the rotations by a penalty.
    """
    X = rng.exponential(size=(30, 3)) * [1.0, 2.0, 4.0]
    X = X - X.mean(0)
    R = orthogonal(rng, 3)
    lengths = np.linalg.norm(X, axis=1)
    return all_of(
        equal(claim(X @ R), claim(X), tol=1e-9),
        equal(np.linalg.norm(claim(X), axis=1), lengths, tol=1e-9),
        equal(claim(X).T @ claim(X), np.diag(np.linalg.eigvalsh(X.T @ X)), tol=1e-8),
    )


def _binary_tree(depth):
    """The adjacency matrix of a full binary tree, the root first."""
    n = 2 ** (depth + 1) - 1
    A = np.zeros((n, n))
    child = np.arange(1, n)
    A[(child - 1) // 2, child] = A[child, (child - 1) // 2] = 1.0
    return A


def _influence(P, layers, target, source):
    return np.linalg.matrix_power(P, layers)[target, source]


@formula(
    "graph-oversquashing",
    latex=r"\Bigl\lvert\frac{\partial h_i^{(r)}}{\partial x_j}\Bigr\rvert \le (\hat A^r)_{ij}, \quad "
    r"\hat A = \tilde D^{-1/2}(A + I)\tilde D^{-1/2}: \quad \text{leaf to root of a binary tree: } \propto 4^{-r}",
    where="001 §16.2",
    right=_influence,
    wrong=lambda P, layers, target, source: P[target, source] ** layers + P.max(),
    systems=("gcn", "gradient-flow"),
)
def oversquashing(rng, claim):
    """Oversquashing: what r layers carry from a node r steps away falls exponentially, while the senders multiply.

    The claim bounds the sensitivity of a node's features; a linear network attains it. From leaf to root of a binary
    tree the message passes inner nodes of degree three, so each step divides it by about four.
    """
    outcomes, signals = [], []
    for depth in (2, 4, 6):
        P = propagation(_binary_tree(depth))
        leaf = len(P) - 1
        x = torch.tensor(rng.normal(size=len(P)), requires_grad=True)
        linear, bent = x, x
        for _ in range(depth):
            linear, bent = torch.tensor(P) @ linear, torch.tanh(torch.tensor(P) @ bent)
        slopes = [torch.autograd.grad(h[0], x, retain_graph=True)[0][leaf] for h in (linear, bent)]
        bound = claim(P, depth, 0, leaf)
        signals.append(bound)
        (back,) = torch.autograd.grad(linear[leaf], x)
        outcomes += [
            equal(slopes[0], bound, tol=1e-12),
            equal(back[0], claim(P, depth, leaf, 0), tol=1e-12),
            at_most(slopes[1].abs(), bound),
        ]
    shrink = np.array(signals[1:]) / signals[:-1]  # two steps further
    return all_of(*outcomes, equal(shrink, 1 / 16, tol=1e-9), at_most(signals[-1] * 2**6, 0.2))


def _product_of_conditionals(joint, order):
    """The chain rule in this order of the variables, as a table like the joint one."""
    total = np.ones_like(joint)
    for k in range(len(order)):
        after = tuple(a for a in order if a not in order[: k + 1])
        seen = joint.sum(axis=after, keepdims=True) if after else joint
        total = total * seen / seen.sum(axis=order[k], keepdims=True)
    return total


@formula(
    "ar-any-order",
    latex=r"p(x) = \prod_t p(x_{\pi(t)} \mid x_{\pi(1)}, \dots, x_{\pi(t-1)}) \quad \text{for every order } \pi",
    where="004 §5.1",
    right=_product_of_conditionals,
    wrong=lambda joint, order: _product_of_conditionals(joint, order[:-1]) / joint.shape[order[-1]],
    systems=("pixelcnn",),
)
def any_order(rng, claim):
    """Any order of the pixels gives a valid autoregressive model; orders differ only in how well they can be learned."""
    joint = simplex(rng, 24).reshape(2, 3, 4)
    tables = [claim(joint, order) for order in permutations(range(3))]
    return equal(tables, np.tile(joint, (6, 1, 1, 1)), tol=1e-12)
