"""Wide networks as kernels and Gaussian processes, and the samplers of Bayesian networks."""

from __future__ import annotations

import numpy as np
import torch
from scipy.linalg import expm, solve_continuous_lyapunov, solve_discrete_lyapunov
from scipy.stats import kurtosis, multivariate_normal

from corollary.formulas._library_tools import tensor
from corollary.formulas.record import Erratum, all_of, at_least, equal, exponent, formula
from corollary.formulas.tools import gauss_hermite, gradient, quadrature, spd
from corollary.theory.infinite import dual, infinite_kernels


def small_network(rng, width=5):
    """A random tanh network R^3 -> R as a function of one parameter vector, and such a vector."""
    sizes = [3 * width, width, width, 1]

    def f(theta, X):
        W, b, a, c = torch.split(theta, sizes)
        return torch.tanh(X @ W.reshape(width, 3).T + b) @ a + c

    return f, torch.tensor(rng.normal(size=sum(sizes)))


def parameter_jacobian(f, theta, X):
    """The gradients of the outputs, one row per input."""
    return torch.autograd.functional.jacobian(lambda t: f(t, X), theta)


@formula(
    "ntk-kernel",
    latex=r"K_\theta(x, x') = \langle \nabla_\theta f_\theta(x), \nabla_\theta f_\theta(x') \rangle",
    where="001 §17.1; 003 Neural tangent kernel",
    right=lambda J: J @ J.T,
    wrong=lambda J: J @ J.T / J.shape[1],
    systems=("ntk",),
)
def ntk_kernel(rng, claim):
    """The tangent kernel compares inputs by the inner product of their parameter gradients.

    For one hidden layer it is a sum over units that can be written down; the Gram matrix is semidefinite.
    """
    m = 5
    f, theta = small_network(rng, m)
    X = rng.normal(size=(6, 3))
    J = parameter_jacobian(f, theta, torch.tensor(X)).numpy()
    W, b, a = theta.numpy()[: 3 * m].reshape(m, 3), theta.numpy()[3 * m : 4 * m], theta.numpy()[4 * m : 5 * m]
    H = np.tanh(X @ W.T + b)
    slopes = (1 - H**2) * a
    by_hand = 1 + H @ H.T + (slopes @ slopes.T) * (1 + X @ X.T)
    lowest = np.linalg.eigvalsh(claim(J))[0]
    return all_of(equal(claim(J), by_hand, tol=1e-10), at_least(lowest, 0.0, tol=1e-10))


@formula(
    "ntk-gradient-flow",
    latex=r"\dot\theta = \sum_i (y_i - f(x_i)) \nabla f(x_i) \;\Rightarrow\; "
    r"\dot{\mathbf f} = K(\theta)(\mathbf y - \mathbf f)",
    where="001 §17.1; 003 Neural tangent kernel",
    right=lambda K, y, f: K @ (y - f),
    wrong=lambda K, y, f: K @ (y - f) / len(y),
    systems=("ntk",),
)
def ntk_gradient_flow(rng, claim):
    """Under gradient flow on half the summed squares, predictions move by the kernel times the residual."""
    f, theta = small_network(rng)
    X, y = torch.tensor(rng.normal(size=(6, 3))), torch.tensor(rng.normal(size=6))
    theta.requires_grad_(True)
    loss = 0.5 * (f(theta, X) - y).square().sum()
    (slope,) = torch.autograd.grad(loss, theta)
    theta = theta.detach()
    h = 1e-5
    velocity = (f(theta - h * slope, X) - f(theta + h * slope, X)) / (2 * h)
    J = parameter_jacobian(f, theta, X)
    return equal(claim(J @ J.T, y, f(theta, X)), velocity, tol=1e-5, relative=True)


@formula(
    "ntk-linearisation",
    latex=r"h(\vartheta)(x) = f_{\theta_0}(x) + \vartheta^\top \nabla f_{\theta_0}(x)",
    where="001 §17.1; 003 Neural tangent kernel",
    right=lambda f0, J, step, theta0: f0 + J @ step,
    wrong=lambda f0, J, step, theta0: f0 + J @ (theta0 + step),
    systems=("ntk",),
)
def ntk_linearisation(rng, claim):
    """The linearised network is exact to second order in the displacement of the weights.

    Its gradient descent never leaves the span of the training gradients.
    """
    f, theta0 = small_network(rng)
    X, y = torch.tensor(rng.normal(size=(4, 3))), torch.tensor(rng.normal(size=4))
    J, f0 = parameter_jacobian(f, theta0, X), f(theta0, X)
    direction = torch.tensor(rng.normal(size=len(theta0)))
    sizes = [1e-3, 1e-4]
    errors = [
        torch.linalg.norm(f(theta0 + h * direction, X) - claim(f0, J, h * direction, theta0)) for h in sizes
    ]
    step = torch.zeros_like(theta0, requires_grad=True)
    for _ in range(20):
        (slope,) = torch.autograd.grad((claim(f0, J, step, theta0) - y).square().sum(), step)
        step = (step - 0.01 * slope).detach().requires_grad_(True)
    moved = step.detach()
    outside = moved - J.T @ torch.linalg.lstsq(J.T, moved[:, None]).solution[:, 0]
    return all_of(exponent(sizes, errors, 2.0, tol=0.1), equal(outside, 0.0, tol=1e-10))


@formula(
    "ntk-kernel-regression",
    latex=r"\alpha^* = K^\dagger(\mathbf y - \mathbf f_0), \qquad "
    r"f^*(x) = f_0(x) + K(x, X) K^\dagger (\mathbf y - \mathbf f_0)",
    where="001 §17.1; 003 Neural tangent kernel",
    right=lambda K, cross, residual: cross @ np.linalg.pinv(K) @ residual,
    errata=(
        Erratum(
            "E85",
            "identical to kernel ridge regression",
            r"ridgeless: $K^\dagger$, the limit of vanishing ridge",
            lambda K, cross, residual: cross @ np.linalg.solve(K + np.eye(len(K)), residual),
            where="001 §17.1",
            kind="claim",
            counterexample=r"the flow fits the training targets exactly, ridge regression does not",
        ),
    ),
    systems=("ntk",),
)
def ntk_kernel_regression(rng, claim):
    """Linearised gradient flow from zero ends at the kernel fit without ridge, which interpolates."""
    n, p = 5, 12
    J, Jx = rng.normal(size=(n, p)), rng.normal(size=(3, p))  # gradients at training and new inputs
    residual = rng.normal(size=n)
    # The flow step' = J^T (residual - J step), run to time 200 by one matrix exponential.
    generator = np.zeros((p + 1, p + 1))
    generator[:p, :p], generator[:p, p] = -J.T @ J, J.T @ residual
    step = expm(200.0 * generator)[:p, p]
    K = J @ J.T
    return all_of(
        equal(claim(K, Jx @ J.T, residual), Jx @ step, tol=1e-6),
        equal(claim(K, K, residual), residual, tol=1e-8),
    )


def relu_tangent_kernel(X):
    """Exact infinite-width tangent kernel of f = sum_j a_j relu(w_j x) / sqrt(m), standard normal weights."""
    return infinite_kernels(np.sqrt(X.shape[1]) * X, weight_std=1.0, bias_std=0.0).ntk.numpy()


def relu_kernel_at(W, a, X):
    """Tangent kernels (draws, n, n) of networks with weights W (draws, m, d) and a (draws, m)."""
    Z = W @ X.T
    H, S = np.maximum(Z, 0), (Z > 0) * a[..., None]
    m = W.shape[1]
    return (H.transpose(0, 2, 1) @ H + (S.transpose(0, 2, 1) @ S) * (X @ X.T)) / m


def trained_drift(rng, m, X, y, draws):
    """Mean change of the tangent kernel when tanh networks of width m are trained to fit."""
    W, a = rng.normal(size=(draws, m, X.shape[1])), rng.normal(size=(draws, m))

    def parts(W, a):
        H = np.tanh(W @ X.T)
        return H, (1 - H**2) * a[..., None]

    def kernel(W, a):
        H, S = parts(W, a)
        return (H.transpose(0, 2, 1) @ H + (S.transpose(0, 2, 1) @ S) * (X @ X.T)) / m

    before = kernel(W, a)
    for _ in range(60):
        H, S = parts(W, a)
        residual = (y - (a[:, None, :] @ H)[:, 0] / np.sqrt(m))[:, None, :]
        a = a + 0.3 * (H * residual).sum(2) / np.sqrt(m)
        W = W + 0.3 * (S * residual) @ X / np.sqrt(m)
    return np.linalg.norm(kernel(W, a) - before, axis=(1, 2)).mean()


@formula(
    "ntk-infinite-width",
    latex=r"\lVert K_{\theta_0} - K_\infty \rVert_F = O(m^{-1/2}), \quad "
    r"\lVert K_{\theta_0} - K_{\theta_t} \rVert_F = O(m^{-1/2}), \quad "
    r"\frac{\lVert\nabla^2 f\rVert_2}{\lVert\nabla f\rVert_2^2} = O(m^{-1/2})",
    where="001 §17.1; 003 Neural tangent kernel",
    right=lambda m: m**-0.5,
    wrong=lambda m: m**-1.0,
    systems=("ntk",),
    functions=("corollary.theory.infinite.infinite_kernels",),
)
def ntk_infinite_width(rng, claim):
    """At large width the tangent kernel becomes deterministic and stays put during training.

    Fluctuation and curvature fall as the inverse root of the width; the drift falls at least as fast.
    """
    widths = np.array([64, 256, 1024])
    X = rng.normal(size=(4, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = rng.normal(size=4)
    fluctuation, curvature, drift = [], [], []
    for m in widths:
        W, a = rng.normal(size=(60, m, 3)), rng.normal(size=(60, m))
        gaps = np.linalg.norm(relu_kernel_at(W, a, X) - relu_tangent_kernel(X), axis=(1, 2))
        fluctuation.append(np.sqrt(np.mean(gaps**2)))
        # The Hessian of a tanh network splits into one block per unit, here along (a_j, w_j direction x).
        t = np.tanh(W[:8] @ X[0])
        signs = np.sign(a[:8])
        slope, bend = 1 - t**2, signs * -2 * t * (1 - t**2)
        blocks = (np.abs(bend) / 2 + np.sqrt(bend**2 / 4 + slope**2)) / np.sqrt(m)
        curvature.append(np.mean(blocks.max(1) / np.mean(t**2 + slope**2, axis=1)))
        drift.append(trained_drift(rng, m, X, y, 4))
    scale = claim(widths.astype(float))
    drift_rate = np.polyfit(np.log(widths), np.log(drift / scale), 1)[0]
    # 60 draws: each root mean square is known to some 8%, the slope over a factor 16 to about 0.04.
    return all_of(
        exponent(widths, np.array(fluctuation) / scale, 0.0, tol=0.15),
        exponent(widths, np.array(curvature) / scale, 0.0, tol=0.1),
        at_least(0.0, drift_rate, tol=0.1),
    )


@formula(
    "gp-definition",
    latex=r"F \sim GP \iff \sum_i \alpha_i F(x_i) \text{ is Gaussian for all } \alpha, x_1, \dots, x_n",
    where="003 Background",
    right=lambda rng, n: rng.normal(size=(24, n)),
    wrong=lambda rng, n: np.eye(n),
    systems=("nngp",),
)
def gp_definition(rng, claim):
    """A process is Gaussian if every linear combination of its values is, not just every single value."""
    draws, n = 6000, 3
    process = rng.normal(size=(draws, 6)) @ rng.normal(size=(6, n))
    impostor = np.abs(rng.normal(size=(draws, 1))) * rng.choice([-1.0, 1.0], size=(draws, n))
    verdicts = []
    for F in (process, impostor):
        alphas = claim(rng, n)
        verdicts.append(np.abs(kurtosis(F @ alphas.T, axis=0)).max() < 0.4)  # sampling error 0.06
    return equal(verdicts, [True, False], tol=0.1)


@formula(
    "nngp-linear-layer",
    latex=r"w_{ij} \sim \mathcal N(0, \gamma^2/n): \quad \mathrm{Cov}\big((Wx_\mu)_i, (Wx_\nu)_j\big) = "
    r"\delta_{ij}\,\frac{\gamma^2}{n}\langle x_\mu, x_\nu\rangle",
    where="003 Gaussian processes",
    right=lambda gamma, x, z, n: gamma**2 * (x @ z) / n * np.eye(2),
    wrong=lambda gamma, x, z, n: gamma**2 * (x @ z) / n * np.ones((2, 2)),
    systems=("nngp",),
)
def nngp_linear_layer(rng, claim):
    """A random linear layer turns inner products of inputs into covariances; its units are uncorrelated."""
    n, gamma = 3, float(rng.uniform(0.5, 2.0))
    x, z = rng.normal(size=(2, n))
    z = z + 2 * x  # keeps the inner product away from zero
    W, weights = gauss_hermite(np.zeros(2 * n), np.eye(2 * n) * gamma**2 / n, 3)  # exact to degree five
    W = W.reshape(-1, 2, n)
    covariance = np.einsum("k,ki,kj->ij", weights, W @ x, W @ z)
    return equal(claim(gamma, x, z, n), covariance, tol=1e-10)


def arc_cosine_step(K, weight, bias, factor=1.0):
    """One layer of the ReLU recursion for a 2 x 2 kernel matrix."""
    scale = np.sqrt(np.outer(np.diag(K), np.diag(K)))
    angle = np.arccos(np.clip(K / scale, -1, 1))
    mean = scale * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)
    return weight * factor * mean + bias


@formula(
    "nngp-recursion",
    latex=r"K^l(x, x') = \sigma_w^2\,\mathbb{E}[\phi(f^{l-1}(x))\phi(f^{l-1}(x'))] + \sigma_b^2, \qquad "
    r"\mathbb{E}[\mathrm{relu}\,\mathrm{relu}'] = "
    r"\frac{\sqrt{K_{xx}K_{x'x'}}}{2\pi}\big(\sin\vartheta + (\pi - \vartheta)\cos\vartheta\big)",
    where="001 §17.3; 003 Gaussian processes",
    right=arc_cosine_step,
    wrong=lambda K, weight, bias: arc_cosine_step(K, weight, bias, factor=2.0),
    systems=("nngp",),
    functions=("corollary.theory.infinite.dual",),
)
def nngp_recursion(rng, claim):
    """The covariance of a wide network passes from layer to layer; for ReLU in closed form by the angle."""
    K = spd(rng, 2)
    weight, bias = rng.uniform(0.5, 2.0, size=2)
    # ReLU is homogeneous: the radius of a Gaussian pair has mean square 2, the angle is uniform.
    around = np.linspace(0, 2 * np.pi, 4000, endpoint=False)
    F = np.maximum(np.linalg.cholesky(K) @ [np.cos(around), np.sin(around)], 0)
    by_angle = weight * 2 * (F @ F.T) / len(around) + bias
    q = torch.from_numpy(np.diag(K).copy())
    library = dual("relu", torch.from_numpy(K), q[:, None], q)[0].numpy()
    # Finite networks with two hidden layers: 25 of width 256 give the covariance to a few percent.
    X = np.linalg.cholesky(K).T  # columns with inner products K
    draws, m = 25, 256
    hidden = np.maximum(rng.normal(size=(draws, m, 2)) @ X, 0)
    shifts = np.sqrt(bias) * rng.normal(size=(draws, m, 1))
    second = np.maximum(np.sqrt(weight / m) * rng.normal(size=(draws, m, m)) @ hidden + shifts, 0)
    measured = weight * np.mean(second.transpose(0, 2, 1) @ second, axis=0) / m + bias
    return all_of(
        equal(claim(K, weight, bias), by_angle, tol=1e-5),
        equal(claim(K, weight, bias), weight * library + bias, tol=1e-9),
        equal(claim(claim(K, weight, bias), weight, bias), measured, tol=0.12, relative=True),
    )


def gp_posterior_right(K, cross, prior, y):
    """Mean and covariance at new points given noise-free values."""
    weights = cross @ np.linalg.pinv(K)
    return weights @ y, prior - weights @ cross.T


@formula(
    "gp-posterior",
    latex=r"\mathbb{E}[f(x)] = k(x, X) K^\dagger y, \qquad "
    r"\mathrm{Var}[f(x)] = k(x, x) - k(x, X) K^\dagger k(X, x)",
    where="003 Gaussian processes",
    right=gp_posterior_right,
    wrong=lambda K, cross, prior, y: (cross @ np.linalg.pinv(K) @ y, prior - cross @ cross.T),
    systems=("nngp",),
)
def gp_posterior(rng, claim):
    """Conditioning a Gaussian process on exact values interpolates them, with no variance left there."""
    joint = spd(rng, 7)
    K, cross, prior = joint[:4, :4], joint[4:, :4], joint[4:, 4:]
    y = rng.normal(size=4)
    precision = np.linalg.inv(joint)  # conditional moments, read off the joint precision instead
    covariance = np.linalg.inv(precision[4:, 4:])
    mean, variance = claim(K, cross, prior, y)
    at_data, left_over = claim(K, K, K, y)
    return all_of(
        equal(mean, -covariance @ precision[4:, :4] @ y, tol=1e-8),
        equal(variance, covariance, tol=1e-8),
        equal(at_data, y, tol=1e-8),
        equal(left_over, 0.0, tol=1e-8),
    )


@formula(
    "bayes-predictive",
    latex=r"p(\theta \mid S) \propto p(S \mid \theta)\,p(\theta), \qquad "
    r"p(y \mid x) = \int p(y \mid x, \theta)\,p(\theta \mid S)\,d\theta",
    where="001 §17.2",
    right=lambda fit, prior, new, cell: np.sum(new * fit * prior * cell) / np.sum(fit * prior * cell),
    wrong=lambda fit, prior, new, cell: np.sum(new * fit * cell) / np.sum(fit * cell),
    systems=("hmc", "langevin"),
)
def bayes_predictive(rng, claim):
    """Predictions average over the posterior, which is the prior reweighted by the likelihood."""
    x, noise = rng.uniform(0.5, 1.5, size=4), 0.7
    y = 1.5 * x + noise * rng.normal(size=4)
    new_x, new_y = 1.2, 1.0
    u = np.linspace(-4, 4, 2001)
    theta, cell = np.sinh(u) / 3, np.cosh(u) / 3 * (u[1] - u[0])  # a grid that is finer in the middle

    def density(value, mean, scale):
        return np.exp(-0.5 * ((value - mean) / scale) ** 2) / (scale * np.sqrt(2 * np.pi))

    fit = np.prod(density(y[:, None], x[:, None] * theta, noise), axis=0)
    predictive = claim(fit, density(theta, 0.0, 1.0), density(new_y, new_x * theta, noise), cell)
    # With theta ~ N(0, 1) all observations are jointly Gaussian, so the answer is a ratio of densities.
    together = np.append(x, new_x)
    covariance = np.outer(together, together) + noise**2 * np.eye(5)
    log_ratio = multivariate_normal.logpdf(np.append(y, new_y), cov=covariance)
    log_ratio -= multivariate_normal.logpdf(y, cov=covariance[:4, :4])
    return equal(np.log(predictive), log_ratio, tol=1e-6)


def acceptance(f, f_new, forth, back):
    """The library's probability of accepting a move, from energies and the chances of the move and its reverse."""
    from corollary.bayes.metropolis import log_acceptance

    return log_acceptance(tensor(-f), tensor(-f_new), tensor(np.log(back / forth))).exp().numpy()


@formula(
    "mcmc-metropolis-hastings",
    latex=r"p = \tfrac1Z e^{-f}: \quad a(\theta \to \theta') = "
    r"\min\Big\{1, \frac{r(\theta \mid \theta')}{r(\theta' \mid \theta)}\,e^{f(\theta) - f(\theta')}\Big\}",
    where="003 Bayesian DNNs",
    right=acceptance,
    wrong=lambda f, f_new, forth, back: np.minimum(1, forth / back * np.exp(f - f_new)),
    systems=("metropolis",),
    functions=("corollary.bayes.metropolis.log_acceptance",),
)
def metropolis_hastings(rng, claim):
    """Accepting proposals with this probability makes the target stationary, for any proposal law.

    Checked by the left eigenvector of the whole transition matrix on a finite space.
    """
    n = 6
    energy, proposal = rng.normal(size=n), rng.dirichlet(np.ones(n), size=n)
    accept = claim(energy[:, None], energy, proposal, proposal.T)
    transition = proposal * accept
    transition += np.diag(1 - transition.sum(1))
    values, vectors = np.linalg.eig(transition.T)
    stationary = np.real(vectors[:, np.argmax(values.real)])
    target = np.exp(-energy)
    return equal(stationary / stationary.sum(), target / target.sum(), tol=1e-9)


def hamiltonian_path(theta, y, mass, step, n):
    """Position, momentum and energy after n steps of the library's leapfrog with t^4 / 4 - sin t as potential."""
    from corollary.bayes.adaptation import Spread
    from corollary.bayes.density import Target
    from corollary.bayes.hmc import energy, leapfrog

    target = Target(lambda t: (torch.sin(t) - t**4 / 4).sum(1), "HMC")
    spread, start = Spread("diagonal", tensor([[theta]])), tensor([[theta]])
    spread.matrix = tensor([1 / mass])
    theta, log_p, y, _ = leapfrog(target, start, tensor([[y]]), target.gradient(start)[1], step, n, spread)
    return theta.item(), y.item(), energy(log_p, y, spread).item()


def hamiltonian_right(theta, y, mass, potential, slope):
    """Energy, velocity and force."""
    return y**2 / (2 * mass) + potential(theta), y / mass, -slope(theta)


@formula(
    "mcmc-hamiltonian",
    latex=r"H = \frac{\lVert y\rVert^2}{2m} + f(\theta), \quad \dot\theta = \nabla_y H = \frac ym, \quad "
    r"\dot y = -\nabla_\theta H, \quad a = \min(1, e^{H - H'})",
    where="003 Bayesian DNNs",
    right=hamiltonian_right,
    wrong=lambda theta, y, mass, potential, slope: (
        y**2 / (2 * mass) + potential(theta),
        y,
        -slope(theta),
    ),
    systems=("hmc",),
    functions=("corollary.bayes.hmc.energy", "corollary.bayes.hmc.leapfrog"),
)
def hamiltonian(rng, claim):
    """Hamiltonian moves keep the energy but for the step error, which the acceptance corrects exactly.

    The velocity is momentum over mass; leapfrog errs by the square of its step and runs backwards.
    """
    mass = float(rng.uniform(2.0, 4.0))

    potential, slope = (lambda t: t**4 / 4 - np.sin(t)), (lambda t: t**3 - np.cos(t))

    def energy_field(theta, y):
        return claim(theta, y, mass, potential, slope)

    def leapfrog(theta, y, step, n):
        for _ in range(n):
            y = y + step / 2 * energy_field(theta, y)[2]
            theta = theta + step * energy_field(theta, y)[1]
            y = y + step / 2 * energy_field(theta, y)[2]
        return theta, y

    theta0, y0 = rng.normal(size=2)
    steps = np.array([0.08, 0.04, 0.02])
    drift = []
    for step in steps:
        path = [(theta0, y0)]
        for _ in range(round(2 / step)):
            path.append(leapfrog(*path[-1], step, 1))
        drift.append(np.ptp([energy_field(*point)[0] for point in path]))
    back = leapfrog(path[-1][0], -path[-1][1], step, len(path) - 1)
    # One accepted or rejected move keeps the mean of any g: an integral over the phase plane.
    t, p = np.meshgrid(np.linspace(-4.5, 4.5, 161), np.sqrt(mass) * np.linspace(-6.5, 6.5, 161))
    H = energy_field(t, p)[0]
    t_new, p_new = leapfrog(t, p, 0.3, 3)
    accept = np.exp(np.minimum(0, H - energy_field(t_new, p_new)[0]))
    weight = np.exp(-H) / np.exp(-H).sum()
    change = [np.sum(weight * accept * (g(t_new) - g(t))) for g in (np.sin, np.square, np.tanh)]
    energy, velocity, force = energy_field(theta0, y0)
    moved = leapfrog(theta0, y0, 0.3, 3)
    return all_of(
        equal([*moved, energy_field(*moved)[0]], hamiltonian_path(theta0, y0, mass, 0.3, 3), tol=1e-10),
        equal(mass * velocity, y0, tol=1e-12),
        equal(energy - mass * velocity**2 / 2, potential(theta0), tol=1e-12),
        equal(force, -gradient(potential, theta0), tol=1e-8),
        exponent(steps, drift, 2.0, tol=0.15),
        equal([back[0], -back[1]], [theta0, y0], tol=1e-9),
        equal(change, 0.0, tol=5e-4),  # the kink of min(1, .) on a grid
    )


def library_kinetic_step(theta, v, slope, eta, gamma, eps):
    """One step of the library's kinetic Langevin sampler."""
    from corollary.bayes.langevin import kinetic_step

    return kinetic_step(tensor(theta), tensor(v), tensor(-slope(theta)), eta, gamma, tensor(eps))


def kinetic_step(noise):
    """One discrete kinetic Langevin step with this noise factor."""

    def step(theta, v, slope, eta, gamma, eps):
        v = (1 - eta * gamma) * v - eta * slope(theta) + noise(gamma * eta) * eps
        return theta + eta * v, v

    return step


@formula(
    "langevin-kinetic-discrete",
    latex=r"v \leftarrow (1 - \eta\gamma)v - \eta\nabla\tilde E(\theta) + \sqrt{2\gamma\eta}\,\epsilon, "
    r"\quad \theta \leftarrow \theta + \eta v",
    where="001 §17.2",
    right=library_kinetic_step,
    wrong=kinetic_step(lambda rate: np.sqrt(rate)),
    errata=(
        Erratum(
            "E86",
            r"noise $2\gamma\eta\,\epsilon$",
            r"$\sqrt{2\gamma\eta}\,\epsilon$",
            kinetic_step(lambda rate: 2 * rate),
            where="001 §17.2",
            kind="formula",
        ),
    ),
    systems=("langevin",),
    functions=("corollary.bayes.langevin.kinetic_step",),
)
def kinetic_discrete(rng, claim):
    """Momentum with friction, gradient and noise of variance twice friction times step samples the posterior.

    On a quadratic energy the stationary covariance solves a Lyapunov equation and tends to one.
    """
    gamma = float(rng.uniform(0.5, 2.0))

    def stationary(eta):
        step = lambda theta, v, eps: np.array(claim(theta, v, lambda t: t, eta, gamma, eps))
        drift = np.column_stack([step(1.0, 0.0, 0.0), step(0.0, 1.0, 0.0)])
        kick = step(0.0, 0.0, 1.0)
        return np.diag(solve_discrete_lyapunov(drift, np.outer(kick, kick)))

    # A short step is the stochastic differential equation dv = -(gamma v + theta) dt + sqrt(2 gamma) dW.
    theta, v, eta = *rng.normal(size=2), 1e-4
    moved = np.array(claim(theta, v, lambda t: t, eta, gamma, 0.0)) - [theta, v]
    kick = claim(theta, v, lambda t: t, eta, gamma, 1.0)[1] - claim(theta, v, lambda t: t, eta, gamma, 0.0)[1]
    # The step error is of first order: about 1% at eta = 0.01, and it vanishes by extrapolation.
    return all_of(
        equal(moved / eta, [v, -gamma * v - theta], tol=1e-2),
        equal(kick**2 / eta, 2 * gamma, tol=1e-8),
        equal(stationary(0.01), 1.0, tol=0.03),
        equal(2 * stationary(0.005) - stationary(0.01), 1.0, tol=1e-3),
    )


@formula(
    "langevin-sghmc",
    latex=r"d\theta = \frac ym\,dt, \qquad "
    r"dy = -\nabla_\theta H\,dt - B\frac ym\,dt + \mathcal N(0, 2B\,dt)",
    where="003 Bayesian DNNs",
    right=lambda B, mass: B / mass,
    errata=(
        Erratum(
            "E87",
            r"friction $-By\,dt$ for any mass",
            r"$-B\frac ym\,dt$",
            lambda B, mass: B,
            where="003 Bayesian",
            kind="formula",
        ),
    ),
    systems=("langevin",),
)
def sghmc(rng, claim):
    """Friction per velocity B and noise 2B together leave the canonical law unchanged, for any mass."""
    mass, B = float(rng.uniform(2.0, 5.0)), float(rng.uniform(0.5, 2.0))
    drift = np.array([[0.0, 1 / mass], [-1.0, -claim(B, mass)]])
    covariance = solve_continuous_lyapunov(drift, -np.diag([0.0, 2 * B]))
    # The law exp(-theta^2 / 2 - y^2 / 2m) by quadrature.
    second = lambda m: (
        quadrature(lambda y: y**2 * np.exp(-(y**2) / (2 * m)), -40, 40)
        / quadrature(lambda y: np.exp(-(y**2) / (2 * m)), -40, 40)
    )
    return equal(covariance, np.diag([second(1.0), second(mass)]), tol=1e-8)
