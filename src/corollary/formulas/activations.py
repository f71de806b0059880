"""Activations: the unit functions, their identities, slopes and Jacobians."""

import numpy as np
import torch
from scipy import special

from corollary.formulas._library_tools import tensor, unit
from corollary.formulas.record import Erratum, all_of, at_most, equal, formula
from corollary.formulas.tools import gradient, jacobian

UNITS = ("activations",)
CODE = ("corollary.nn.activation",)
NUMERIC = 1e-8  # central differences of step 1e-5


def _sigmoid(z):
    return 1 / (1 + np.exp(-z))


def _slope(f, z, step=1e-5):
    return (f(z + step) - f(z - step)) / (2 * step)


@formula(
    "act-sigmoid",
    latex=r"\sigma(z) = \frac{1}{1 + e^{-z}}, \qquad \sigma^{-1}(t) = \log\frac{t}{1 - t},"
    r" \qquad \sigma(-z) = 1 - \sigma(z)",
    where="001 §6; 002 Sigmoid; 003; 004 §4",
    right=lambda z, t: (_sigmoid(z), np.log(t / (1 - t)), 1 - _sigmoid(z)),
    wrong=lambda z, t: (_sigmoid(z), np.log((1 - t) / t), 1 - _sigmoid(z)),
    systems=UNITS,
    functions=CODE,
)
def sigmoid(rng, claim):
    """The logistic function, its inverse the log-odds, and its point symmetry."""
    z, t = rng.normal(size=50) * 3, rng.uniform(0.01, 0.99, size=50)
    value, odds, mirrored = claim(z, t)
    return all_of(
        equal(value, unit("sigmoid")(z), tol=1e-12),
        equal(special.expit(odds), t, tol=1e-10),
        equal(claim(z, value)[1], z, tol=1e-8),
        equal(mirrored, unit("sigmoid")(-z), tol=1e-12),
    )


@formula(
    "act-sigmoid-derivative",
    latex=r"\sigma' = \sigma(1 - \sigma) = \sigma(z)\,\sigma(-z)"
    r" = \tfrac14\big(1 - \tanh^2 \tfrac z2\big) \le \tfrac14",
    where="001 §6; 002; 003; 004",
    right=lambda s: s * (1 - s),
    wrong=lambda s: 1 - s**2,
    systems=UNITS,
    functions=CODE,
)
def sigmoid_derivative(rng, claim):
    """The slope of the logistic function in terms of its value; a quarter at most, at zero."""
    z = rng.normal(size=50) * 3
    slope = claim(special.expit(z))
    return all_of(
        equal(slope, _slope(unit("sigmoid"), z), tol=NUMERIC),
        equal(slope, (1 - np.tanh(z / 2) ** 2) / 4, tol=1e-12),
        at_most(slope, 0.25),
        equal(claim(special.expit(0.0)), 0.25, tol=1e-12),
        equal(np.diag(slope[:4]), jacobian(special.expit, z[:4]), tol=NUMERIC),
    )


@formula(
    "act-tanh",
    latex=r"\tanh z = \frac{e^z - e^{-z}}{e^z + e^{-z}} = 2\sigma(2z) - 1, \qquad \tanh' = 1 - \tanh^2",
    where="001 §6; 002; 003; 004",
    right=lambda z: (2 * _sigmoid(2 * z) - 1, 1 - np.tanh(z) ** 2),
    wrong=lambda z: (2 * _sigmoid(z) - 1, 1 - np.tanh(z) ** 2),
    systems=UNITS,
    functions=CODE,
)
def tanh(rng, claim):
    """The hyperbolic tangent is a stretched logistic function with slope one minus its square."""
    z = rng.normal(size=50) * 2
    value, slope = claim(z)
    return all_of(
        equal(value, unit("tanh")(z), tol=1e-12),
        equal(value, (np.exp(z) - np.exp(-z)) / (np.exp(z) + np.exp(-z)), tol=1e-12),
        equal(slope, _slope(unit("tanh"), z), tol=NUMERIC),
    )


def _is_subgradient(f, z, g):
    """Whether the line through (z, f(z)) of slope g stays below f."""
    y = np.linspace(-5, 5, 1001)
    return bool(np.all(f(y) >= f(z) + g * (y - z) - 1e-12))


def _relu(z):
    return np.maximum(0, z)


@formula(
    "act-relu",
    latex=r"(z)_+ = \max(0, z), \qquad \partial (z)_+ = \{1\}\ (z > 0),\ [0, 1]\ (z = 0),\ \{0\}\ (z < 0)",
    where="001 §6; 002 Rectified; 004",
    right=lambda z, g: g == (z > 0) if z else 0 <= g <= 1,
    wrong=lambda z, g: g == (z > 0) if z else -1 <= g <= 1,
    errata=(
        Erratum(
            "E21",
            r"the slope is $0$ for $x \le 0$ and $1$ for $x \ge 0$",
            r"at $0$ there is no slope but the subdifferential $[0, 1]$",
            lambda z, g: (z <= 0 and g == 0) or (z >= 0 and g == 1),
            where="001 §6",
            kind="claim",
            counterexample=r"both cases hold at $0$ and give the slopes $0$ and $1$",
        ),
    ),
    systems=UNITS,
    functions=CODE,
)
def relu(rng, claim):
    """The rectifier has slope 0 on the left, 1 on the right, and any in between as subgradient at 0."""
    points = (-rng.uniform(0.5, 2), 0.0, rng.uniform(0.5, 2))
    slopes = (-0.5, 0, 1, 0.5, 1.5, *rng.uniform(-1, 2, size=10))
    pairs = [(z, g) for z in points for g in slopes]
    truth = [_is_subgradient(unit("relu"), *pair) for pair in pairs]
    return equal([claim(*pair) for pair in pairs], truth, tol=0.1)


def _abs_identities(z, half=0.5):
    return half * (z + np.abs(z)), 2 * _relu(z) - z, _relu(z) + _relu(-z), (-1, 1)


@formula(
    "act-abs-unit",
    latex=r"(z)_+ = \frac{z + |z|}{2}, \qquad |z| = 2(z)_+ - z = (z)_+ + (-z)_+,"
    r" \qquad \partial|z|\big|_{z=0} = [-1, 1]",
    where="002 Rectified; 003 Nonlinear",
    right=_abs_identities,
    wrong=lambda z: _abs_identities(z, half=1),
    systems=UNITS,
    functions=CODE,
)
def abs_unit(rng, claim):
    """Rectifier and absolute value are made of each other by adding a linear part."""
    z = rng.normal(size=50)
    rectified, first, second, (low, high) = claim(z)
    slopes = np.linspace(-1.5, 1.5, 13)
    allowed = [_is_subgradient(unit("absu"), 0.0, g) for g in slopes]
    return all_of(
        equal(rectified, unit("relu")(z), tol=1e-15),
        equal([first, second], [unit("absu")(z)] * 2, tol=1e-15),
        equal((low <= slopes) & (slopes <= high), allowed, tol=0.1),
    )


def _rectifiers(z, eps, floor=1.0):
    elu = np.where(z > 0, z, np.exp(z) - floor)
    return np.log(1 + np.exp(z)), elu, np.where(z > 0, z, eps * z)


@formula(
    "act-softplus-elu-leaky",
    latex=r"\mathrm{softplus}(z) = \log(1 + e^z), \qquad \mathrm{ELU}(z) = z \text{ or } e^z - 1,"
    r" \qquad \mathrm{leaky}(z) = z \text{ or } \epsilon z",
    where="002 Rectified",
    right=_rectifiers,
    wrong=lambda z, eps: _rectifiers(z, eps, floor=0.0),
    systems=UNITS,
    functions=CODE,
)
def softplus_elu_leaky(rng, claim):
    """Three soft relatives of the rectifier; the slope of the first is the logistic function."""
    z, eps = rng.normal(size=50) * 2, rng.uniform(0.01, 0.3)
    softplus, elu, leaky = claim(z, eps)
    return all_of(
        equal(softplus, unit("softplus")(z), tol=1e-7),  # torch is linear above its threshold
        equal(elu, unit("elu")(z), tol=1e-12),
        equal(leaky, torch.nn.functional.leaky_relu(tensor(z), eps), tol=1e-12),
        equal(claim(z, 0.01)[2], unit("leaky")(z), tol=1e-12),
        equal(_slope(lambda z: claim(z, eps)[0], z), special.expit(z), tol=NUMERIC),
    )


@formula(
    "act-gelu",
    latex=r"\phi(z) = z\, P(Z \le z), \qquad Z \sim \mathcal{N}(0, 1)",
    where="003 Background",
    right=lambda z: z * (1 + special.erf(z / np.sqrt(2))) / 2,
    wrong=lambda z: z * special.expit(z),
    systems=UNITS,
    functions=CODE,
)
def gelu(rng, claim):
    """The Gaussian error unit weighs its input by the chance of a smaller standard normal."""
    z = np.append(rng.normal(size=50) * 2, 2.0)
    return equal(claim(z), unit("gelu")(z), tol=1e-10)


def _softmax(x, axis=-1):
    e = np.exp(x)
    return e / e.sum(axis, keepdims=True)


@formula(
    "act-softmax",
    latex=r"\sigma_i(x) = \frac{e^{x_i}}{\sum_j e^{x_j}}, \qquad \sigma(x + c\mathbf{1}) = \sigma(x),"
    r" \qquad k = 2:\ \sigma_1 = \sigma(x_1 - x_2)",
    where="002; 003",
    right=_softmax,
    wrong=lambda x: _softmax(x, axis=0),
    systems=UNITS,
    functions=CODE,
)
def softmax(rng, claim):
    """Softmax turns scores into chances, ignores a common shift, and is logistic for two classes."""
    x, pair, c = rng.normal(size=(6, 4)), rng.normal(size=(6, 2)), rng.normal(size=(6, 1))
    return all_of(
        equal(claim(x), unit("softmax")(x), tol=1e-12),
        equal(claim(x + c), unit("softmax")(x), tol=1e-12),
        equal(claim(pair)[:, 0], special.expit(pair[:, 0] - pair[:, 1]), tol=1e-12),
    )


def _off_diagonal_squared(s):
    J = np.tile(-(s**2)[:, None], len(s))
    np.fill_diagonal(J, s * (1 - s))
    return J


@formula(
    "act-softmax-jacobian",
    latex=r"\frac{\partial \sigma_i}{\partial x_j} = \sigma_i (\delta_{ij} - \sigma_j)",
    where="002; 003",
    right=lambda s: np.diag(s) - np.outer(s, s),
    wrong=lambda s: np.diag(s * (1 - s)),
    errata=(
        Erratum(
            "T16",
            r"$-\sigma_i \sigma_i$ off the diagonal",
            r"$-\sigma_i \sigma_j$",
            _off_diagonal_squared,
            where="003 Softmax",
            kind="typing",
        ),
    ),
    systems=UNITS,
    functions=CODE,
)
def softmax_jacobian(rng, claim):
    """The softmax Jacobian is the covariance of a one-hot draw, so its rows sum to zero."""
    x = rng.normal(size=4)
    s = special.softmax(x)
    return all_of(
        equal(claim(s), jacobian(unit("softmax"), x), tol=NUMERIC),
        equal(claim(s).sum(axis=1), 0, tol=1e-12),
        equal(claim(s), np.cov(np.eye(4), aweights=s, ddof=0), tol=1e-12),
    )


def _fold(values, factor=0.5):
    """Maximum over the first axis, pair by pair through the absolute value."""
    best = values[0]
    for other in values[1:]:
        best = factor * (best + other + np.abs(best - other))
    return best


@formula(
    "act-maxout",
    latex=r"g(x) = \max_{j \le k} \{\theta_j \cdot x + b_j\}, \qquad 2\max\{f, g\} = f + g + |f - g|",
    where="002 Minimal non-linearity; 003",
    right=_fold,
    wrong=lambda values: _fold(values, factor=1),
    systems=UNITS,
    functions=("corollary.nn.Maxout",),
)
def maxout(rng, claim):
    """A k-hinge is the largest of k affine functions, and absolute values alone can build it."""
    from corollary.nn import Maxout

    theta, b, x = rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=(40, 3))
    pieces = theta @ x.T + b[:, None]
    middle = claim(theta @ ((x[:20] + x[20:]) / 2).T + b[:, None])
    return all_of(
        equal(claim(pieces), Maxout(5)(tensor(pieces.T))[:, 0], tol=1e-12),
        at_most(middle, (claim(pieces[:, :20]) + claim(pieces[:, 20:])) / 2),  # it is convex
    )


@formula(
    "act-elementwise-jacobian",
    latex=r"\partial \phi(x) = \mathrm{diag}(\phi'(x)), \qquad \text{ReLU: } \mathrm{diag}(H(x))",
    where="002 Derivatives",
    right=np.diag,
    wrong=lambda slopes: np.tile(slopes, (len(slopes), 1)),
    systems=UNITS,
    functions=CODE,
)
def elementwise_jacobian(rng, claim):
    """A function applied to each coordinate alone has a diagonal Jacobian."""
    x = rng.choice([-1, 1], size=5) * rng.uniform(0.1, 2, size=5)  # away from the kink
    slopes = {
        "tanh": 1 / np.cosh(x) ** 2,
        "relu": np.heaviside(x, 0.5),
        "absu": np.sign(x),
        "softplus": special.expit(x),
    }
    return all_of(*(equal(claim(s), jacobian(unit(name), x), tol=NUMERIC) for name, s in slopes.items()))


@formula(
    "act-ridge-function",
    latex=r"f(x) = \phi(x \cdot \theta): \quad f(x + v) = f(x)\ \forall v \perp \theta, \qquad"
    r" \|\nabla_x f\| = |\phi'(x \cdot \theta)|\, \|\theta\|",
    where="002 Sigmoid; 003 level sets",
    right=lambda slope, theta: np.abs(slope) * np.linalg.norm(theta),
    wrong=lambda slope, theta: np.abs(slope) * theta @ theta,
    systems=("threshold-unit", "perceptron"),
)
def ridge_function(rng, claim):
    """A unit is constant on hyperplanes, and its gradient is as long as slope times weight."""
    theta = rng.normal(size=4)
    theta *= rng.uniform(1.5, 3) / np.linalg.norm(theta)
    x, v = rng.normal(size=4) / 3, rng.normal(size=4)
    v -= theta * (v @ theta) / (theta @ theta)
    outcomes = []
    for phi, slope in ((np.tanh, lambda a: 1 / np.cosh(a) ** 2), (np.cos, lambda a: -np.sin(a))):
        for point in (x, -x):  # the slope of the second phi has both signs
            steepness = np.linalg.norm(gradient(lambda x, phi=phi: phi(x @ theta), point))
            outcomes += [
                equal(claim(slope(point @ theta), theta), steepness, tol=NUMERIC),
                equal(phi((point + v) @ theta), phi(point @ theta), tol=1e-12),
            ]
    return all_of(*outcomes)


@formula(
    "act-vanishing",
    latex=r"\sigma'(z) \sim e^{-|z|} \to 0 \ (z \to \pm\infty), \qquad (z)_+' = 1\ (z > 0),"
    r" \qquad \nabla = 0 \text{ for a unit inactive on every input}",
    where="002 Rectified",
    right=lambda z: (np.exp(-np.abs(z)), np.where(z > 0, 1.0, 0.0)),
    wrong=lambda z: (np.exp(-np.abs(z) / 2), np.where(z > 0, 1.0, 0.0)),
    systems=UNITS,
    functions=CODE,
)
def vanishing(rng, claim):
    """A saturated logistic unit passes exponentially little gradient, a rectifier all or nothing."""
    from corollary.nn import activation

    z = np.concatenate([np.linspace(-15, -10, 20), np.linspace(10, 15, 20)]) + rng.uniform(-1, 1)
    t = torch.tensor(z, requires_grad=True)
    slopes = [torch.autograd.grad(activation(name)(t).sum(), t)[0] for name in ("sigmoid", "relu")]
    logistic, rectified = claim(z)
    X = torch.from_numpy(rng.uniform(0, 1, size=(30, 3)))
    w = torch.tensor(-rng.uniform(0.5, 1, size=3), requires_grad=True)  # negative on every input
    dead = torch.autograd.grad((torch.relu(X @ w) - 1).square().sum(), w)[0]
    return all_of(
        equal(logistic / slopes[0].numpy(), 1, tol=1e-3),  # the next term is 2 exp(-|z|)
        equal(rectified, slopes[1], tol=1e-12),
        equal(claim((X @ w).detach().numpy())[1], 0, tol=1e-12),
        equal(dead, 0, tol=1e-300),
        at_most(claim(np.array([-30.0, 30.0]))[0], 1e-12),
    )
