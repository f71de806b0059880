"""Limits and guarantees: what cannot be had, what is sufficient and not necessary, and where a method is blind."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import erfc, erfinv, rel_entr, xlogy

from corollary.formulas._completion_tools import singular_values, truncate
from corollary.formulas._library_tools import fitted
from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import gauss_hermite, gaussian_kl, quadrature, simplex, spd


def _information(joint):
    return rel_entr(joint, np.outer(joint.sum(1), joint.sum(0))).sum()


def _lost(joint, channel):
    """I(X; Y | Z) for Z made from Y by a channel: rows Y, columns Z."""
    table = joint[:, :, None] * channel  # X, Y, Z
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum((0, 1), keepdims=True)
    return rel_entr(table, expected).sum()


@formula(
    "it-data-processing",
    latex=r"X - Y - Z: \qquad I(X; Z) = I(X; Y) - I(X; Y \mid Z) \le I(X; Y)",
    where="004 §4",
    right=_lost,
    wrong=lambda joint, channel: _information(joint.sum(0)[:, None] * channel),
    systems=("autoencoder", "linear-autoencoder"),
)
def data_processing(rng, claim):
    """Lost information cannot be recovered: no processing of Y, random or not, says more of X than Y did.

    The claim is what is lost, which is never negative, and zero for a relabelling.
    """
    joint, channel = simplex(rng, 12).reshape(3, 4), simplex(rng, 4, 3)
    relabelled = np.eye(4)[rng.permutation(4)]
    outcomes = []
    for law in (channel, relabelled):
        kept = _information(joint @ law)
        outcomes.append(equal(claim(joint, law), _information(joint) - kept, tol=1e-12))
    return all_of(
        *outcomes, at_least(claim(joint, channel), 0.0), equal(claim(joint, relabelled), 0.0, tol=1e-12)
    )


def _parts(X, k):
    from corollary.completion import NMF

    model = NMF(k, init="nndsvda", max_iter=300, random_state=0)
    return fitted(model, X).components_


@formula(
    "nmf-parts",
    latex=r"X \approx WH, \ W, H \ge 0: \quad \text{rows of } H \text{ are parts, as nothing can be subtracted}",
    where="004 §3.2",
    right=_parts,
    wrong=lambda X, k: np.linalg.svd(X - X.mean(0))[2][:k],
    systems=("nmf",),
    functions=("corollary.completion.NMF",),
)
def nmf_parts(rng, claim):
    """Non-negative factors find the parts that data are added up from; principal components mix them with both signs."""
    parts = np.kron(np.eye(3), np.ones(4)) * rng.uniform(0.5, 1.5, size=12)
    X = (rng.exponential(size=(60, 3)) * (rng.random((60, 3)) < 0.6)) @ parts
    found = claim(X, 3)
    unit = lambda M: M / np.linalg.norm(M, axis=1, keepdims=True)
    return all_of(
        at_least((unit(parts) @ unit(found).T).max(axis=1), 0.99),  # every part is found
        at_least(found, 0.0, tol=1e-9),
        equal(len(found), 3, tol=0),
    )


@formula(
    "slt-flat-minima",
    latex=r"Q = \mathcal N(\theta, \sigma^2 I): \qquad \mathbb E_Q[\ell] - \ell(\theta) \approx "
    r"\tfrac{\sigma^2}{2}\mathrm{Tr}\,H, \qquad KL(Q \Vert \mathcal N(0, \tau^2 I)) = "
    r"\tfrac d2\Bigl(\tfrac{\sigma^2}{\tau^2} - 1 - \ln\tfrac{\sigma^2}{\tau^2}\Bigr) + \tfrac{\lVert\theta\rVert^2}{2\tau^2}",
    where="001 §17.4",
    right=lambda H, theta, s2, t2: (
        s2 / 2 * np.trace(H),
        len(H) / 2 * (s2 / t2 - 1 - np.log(s2 / t2)) + theta @ theta / (2 * t2),
    ),
    wrong=lambda H, theta, s2, t2: (
        s2 / 2 * np.linalg.eigvalsh(H).max(),
        len(H) / 2 * (s2 / t2 - 1 - np.log(s2 / t2)) + theta @ theta / (2 * t2),
    ),
    systems=("generalisation",),
)
def flat_minima(rng, claim):
    """Flat minima generalise by PAC-Bayes: they bear a wide posterior, which is nearer to the prior.

    The claim is what noise in the weights costs in loss, and in divergence. A minimum four times as flat bears
    four times the variance at the same loss and a smaller divergence.
    """
    H, theta = spd(rng, 3, 0.5, 3.0), 0.5 * rng.normal(size=3)
    s2, t2 = rng.uniform(0.05, 0.1), rng.uniform(1.5, 2.5)
    points, weights = gauss_hermite(np.zeros(3), s2 * np.eye(3), 4)
    rise = weights @ (np.einsum("ni,ij,nj->n", points, H, points) / 2)
    cost, divergence = claim(H, theta, s2, t2)
    flat = claim(H / 4, theta, 4 * s2, t2)
    return all_of(
        equal(cost, rise, tol=1e-10),
        equal(divergence, gaussian_kl(theta, s2 * np.eye(3), np.zeros(3), t2 * np.eye(3)), tol=1e-10),
        equal(flat[0], cost, tol=1e-10),
        at_most(flat[1], divergence - 0.5),
    )


@formula(
    "slt-random-labels",
    latex=r"\exists\, \beta: \ \beta^\top \sigma(W x_i) = y_i \ \forall i \le n, \text{ for every } y, "
    r"\quad \text{iff } m \ge n \ \text{(almost surely)}",
    where="003 Statistical learning theory",
    right=lambda n, m: m >= n,
    wrong=lambda n, m: m >= n / 2,
    systems=("generalisation", "mlp"),
)
def random_labels(rng, claim):
    """Networks with as many hidden units as samples fit any labels, random ones too, and then predict nothing.

    So what they can represent does not explain why they generalise.
    """
    n, verdicts, said = 16, [], []
    X, labels = rng.normal(size=(n, 6)), rng.choice([-1.0, 1.0], size=n)
    fresh = rng.choice([-1.0, 1.0], size=(400, n))
    for m in (8, 12, n - 1, n, 2 * n):
        features = np.tanh(X @ rng.normal(size=(6, m)) + rng.normal(size=m))
        beta = np.linalg.lstsq(features, labels, rcond=1e-13)[0]
        verdicts.append(np.abs(features @ beta - labels).max() < 1e-6)
        said.append(claim(n, m))
    agreement = (np.sign(features @ beta) == fresh).mean()  # with new random labels: 6400 fair coins
    return all_of(equal(said, verdicts, tol=0.1), equal(agreement, 0.5, tol=0.04))


@formula(
    "slt-vc-necessary",
    latex=r"\text{any labelling possible on } N \text{ points}: \qquad "
    r"\mathbb E\,e = \tfrac12\Bigl(1 - \tfrac1N\Bigr)^s \ge \tfrac14 \ \text{ for } N = 2s",
    where="003 Statistical learning theory",
    right=lambda s, N: 0.5 * (1 - 1 / N) ** s,
    wrong=lambda s, N: np.sqrt(np.log(N) / s),
    systems=("generalisation",),
)
def vc_necessary(rng, claim):
    """A finite VC dimension is necessary: where all labellings are possible, what was not seen stays a coin flip.

    Expected error of a rule that makes no mistake on s samples, uniform over N points with random labels. The law of the
    number of distinct points is counted.
    """
    outcomes = []
    for s, N in ((3, 6), (5, 10), (5, 4), (8, 16)):
        chance = np.zeros(N + 1)
        chance[0] = 1.0
        for _ in range(s):  # each draw is new or not
            seen = np.arange(N + 1)
            chance = chance * seen / N + np.append(0, (chance * (N - seen) / N)[:-1])
        outcomes.append(equal(claim(s, N), chance @ (N - np.arange(N + 1)) / (2 * N), tol=1e-12))
        if N == 2 * s:
            outcomes.append(at_least(claim(s, N), 0.25))
    return all_of(*outcomes)


@formula(
    "score-low-density",
    latex=r"p = w\,p_1 + (1-w)\,p_2,\ q = v\,p_1 + (1-v)\,p_2 \text{ far apart}: \quad "
    r"\mathbb E_p\lVert\nabla\log p - \nabla\log q\rVert^2 \to 0, "
    r"\quad KL(p \Vert q) \to w\ln\tfrac wv + (1-w)\ln\tfrac{1-w}{1-v}",
    where="003 Score matching",
    right=lambda w, v: (0.0, xlogy(w, w / v) + xlogy(1 - w, (1 - w) / (1 - v))),
    wrong=lambda w, v: (2 * (w - v) ** 2, xlogy(w, w / v) + xlogy(1 - w, (1 - w) / (1 - v))),
    systems=("score", "langevin"),
)
def score_low_density(rng, claim):
    """Score matching does not see where there are no data: between far modes the score may be anything.

    So the shares of the modes are not learned: two mixtures with different shares have nearly the same scores wherever
    their mass is. The claim is what the Fisher and the Kullback-Leibler divergence tend to.
    """
    w, v = rng.uniform([0.3, 0.7], [0.4, 0.8])

    def log_density(x, share):
        return (
            np.logaddexp(np.log(share) - (x - 7) ** 2 / 2, np.log(1 - share) - (x + 7) ** 2 / 2)
            - np.log(2 * np.pi) / 2
        )

    def score(x, share):
        first = 1 / (1 + np.exp(np.log((1 - share) / share) - 14 * x))
        return 7 * (2 * first - 1) - x

    def expectation(f):
        return quadrature(lambda x: np.exp(log_density(x, w)) * f(x), -16, 16, n=800)

    fisher, divergence = claim(w, v)
    between = np.abs(score(0.0, w) - score(0.0, v))
    return all_of(
        equal(expectation(lambda x: (score(x, w) - score(x, v)) ** 2), fisher, tol=1e-6),
        equal(expectation(lambda x: log_density(x, w) - log_density(x, v)), divergence, tol=1e-6),
        at_least(between, 1.0),  # and between the modes they differ a lot
    )


@formula(
    "adv-deepfool-detectable",
    latex=r"f(x + (1 + \eta) r^*) = -\eta f(x), \qquad \text{so } \lvert f\rvert \text{ tells attacked from clean inputs}",
    where="003 Adversarial robustness",
    right=lambda f, eta: -eta * f,
    wrong=lambda f, eta: -(1 + eta) * f,
    systems=("deepfool",),
)
def deepfool_detectable(rng, claim):
    """DeepFool's examples can be detected: they lie just beyond the decision boundary, where few clean inputs are.

    The claim is the score after the smallest step to the boundary, overshot by a share eta.
    """
    w, b, eta = rng.normal(size=5), rng.normal(), rng.uniform(0.02, 0.1)
    X = 3 * rng.normal(size=(400, 5))
    before = X @ w + b
    moved = X - (1 + eta) * (before / (w @ w))[:, None] * w
    after = claim(before, eta)
    threshold = np.quantile(np.abs(after), 0.95)
    return all_of(
        equal(after, moved @ w + b, tol=1e-9),
        at_most((np.abs(before) < threshold).mean(), 0.25),  # false alarms when 95 % of the attacks are found
    )


@formula(
    "convex-strong-strict",
    latex=r"\lvert x\rvert^p \text{ on } [-1, 1]: \quad \text{strictly convex iff } p > 1, "
    r"\ \text{strongly convex iff } 1 < p \le 2",
    where="000 §13.3",
    right=lambda p: (p > 1, 1 < p <= 2),
    wrong=lambda p: (p > 1, p > 1),
)
def strong_strict(rng, claim):
    """Strong convexity implies strict convexity, and not conversely: the fourth power is flat at its minimum.

    Strict: the middle of every chord lies above the function. Strong: by at least a fixed multiple of its squared length.
    """
    said, truth = [], []
    ends = np.linspace(-1, 1, 41)
    x, y = (part.ravel() for part in np.meshgrid(ends, ends))
    apart = x != y
    for p in (1.0, 1.5, 2.0, 2.5, 4.0):
        f = lambda t, p=p: np.abs(t) ** p
        gaps = ((f(x) + f(y)) / 2 - f((x + y) / 2))[apart]
        short = f(1e-4) / 1e-8  # the chord of length 2e-4 across the minimum
        said.append(claim(p))
        truth.append((gaps.min() > 1e-12, gaps.min() > 1e-12 and short > 0.5))
    return equal(said, truth, tol=0.1)


@formula(
    "mcpl-recovery-sufficient",
    latex=r"\arg\min_x \Bigl\lVert\begin{pmatrix} a & b \\ c & x \end{pmatrix}\Bigr\rVert_* = \min\Bigl\{a, \frac{bc}{a}\Bigr\}"
    r" \quad (a, b, c > 0), \qquad \text{rank } 1 \text{ only for } x = \frac{bc}{a}",
    where="004 §2",
    right=lambda a, b, c: min(a, b * c / a),
    errata=(
        Erratum(
            "E107",
            printed=r"if a matrix can be recovered at all, then by minimising the nuclear norm",
            correction=r"the theorem gives a condition that is sufficient, not necessary",
            form=lambda a, b, c: b * c / a,
            where="004 §2",
            kind="claim",
            counterexample=r"$\begin{pmatrix} 1 & 2 \\ 2 & \cdot \end{pmatrix}$ has one completion of rank 1, with 4; "
            r"the nuclear norm is least at 1",
        ),
    ),
    systems=("exact-recovery",),
)
def recovery_sufficient(rng, claim):
    """A matrix may be determined by its rank and still not be the one of least nuclear norm.

    With one missing entry of two by two the completion of rank one is unique; a line search finds the least norm.
    """
    outcomes = []
    for a, b, c in (rng.uniform([0.5, 1, 1], [0.8, 2, 2]), rng.uniform([2.5, 1, 1], [3, 2, 2])):
        norm = lambda x, a=a, b=b, c=c: singular_values(np.array([[a, b], [c, x]])).sum()
        best = minimize_scalar(norm, bounds=(-20, 20), method="bounded", options={"xatol": 1e-10})
        ranks = [
            np.linalg.matrix_rank(np.array([[a, b], [c, x]]), tol=1e-9) for x in (b * c / a, best.x + 0.1)
        ]
        outcomes += [equal(claim(a, b, c), best.x, tol=1e-5), equal(ranks, [1, 2], tol=0)]
    return all_of(*outcomes)


@formula(
    "mcpl-svp-nonconvex",
    latex=r"B \leftarrow [B + \eta(A - B)]_1 \text{ from } \sigma_i u_i v_i^\top: \quad "
    r"\text{stays there if } \eta\,\sigma_1 < \sigma_i, \text{ else tends to } \sigma_1 u_1 v_1^\top",
    where="004 §2.2",
    right=lambda values, i, eta: i if eta * max(values) < values[i] else int(np.argmax(values)),
    errata=(
        Erratum(
            "E111",
            printed=r"singular value projection converges to the optimum as projected gradient descent does in general",
            correction=r"matrices of rank $k$ are not a convex set: it needs restricted isometry, and may stop elsewhere",
            form=lambda values, i, eta: int(np.argmax(values)),
            where="004 §2.2",
            kind="claim",
            counterexample=r"$A = \mathrm{diag}(3, 2)$, $\eta = \frac12$, from $\mathrm{diag}(0, 2)$: no step leaves it",
        ),
    ),
    systems=("svp",),
)
def svp_nonconvex(rng, claim):
    """Projected descent onto a set that is not convex, such as low rank, can stop far from the best point."""
    values = np.array([3.0, 2.0, 1.5]) * rng.uniform(0.9, 1.1)
    ends, said = [], []
    for i in range(3):
        for eta in (0.2, 0.45, 0.6, 0.9):
            B = np.diag(values * (np.arange(3) == i))
            for _ in range(60):
                B = truncate(B + eta * (np.diag(values) - B), 1)
            ends.append(np.diag(B).argmax())
            said.append(claim(values, i, eta))
    return equal(said, ends, tol=0)


@formula(
    "flow-triangular-cost",
    latex=r"Lx = b,\ L \text{ triangular}: \ \tfrac{n(n+1)}{2} \text{ multiplications}; \qquad A^{-1}: \ n^3",
    where="002 Flows",
    right=lambda n: (n * (n + 1) // 2, n**3),
    errata=(
        Erratum(
            "E108",
            printed=r"inverting a triangular Jacobian is expensive",
            correction=r"a triangular solve takes $O(n^2)$ steps; it is the general inverse that takes $O(n^3)$",
            form=lambda n: (n**3, n**3),
            where="002 Flows",
            kind="claim",
            counterexample=r"$n = 100$: 5050 multiplications, against $10^6$ for a general inverse",
        ),
    ),
    systems=("flows",),
)
def triangular_cost(rng, claim):
    """A triangular system is solved row by row with n(n+1)/2 multiplications, one for each entry.

    Multiplications and divisions are counted while the systems are solved.
    """
    outcomes = []
    for n in (3, 6, 9):
        L, A, b = np.tril(rng.uniform(1, 2, size=(n, n))), spd(rng, n), rng.normal(size=n)
        x, count = np.zeros(n), 0
        for i in range(n):
            x[i] = (b[i] - L[i, :i] @ x[:i]) / L[i, i]
            count += i + 1
        full, inverse = 0, A.copy()
        for k in range(n):  # Gauss and Jordan, in place
            pivot = inverse[k, k]
            inverse[k, k] = 1.0
            inverse[k] /= pivot
            full += n
            for i in set(range(n)) - {k}:
                factor, inverse[i, k] = inverse[i, k], 0.0
                inverse[i] -= factor * inverse[k]
                full += n
        outcomes += [
            equal(claim(n), [count, full], tol=0),
            equal(L @ x, b, tol=1e-9),
            equal(inverse @ A, np.eye(n), tol=1e-9),
        ]
    return all_of(*outcomes)


@formula(
    "mcmc-hmc-modes",
    latex=r"P(\text{a trajectory from the bottom of one well crosses a barrier of height } h) = "
    r"P\bigl(\tfrac{y^2}{2} > h\bigr) = \mathrm{erfc}(\sqrt h)",
    where="003 Bayesian DNNs",
    right=lambda barrier: erfc(np.sqrt(barrier)),
    errata=(
        Erratum(
            "E113",
            printed=r"Hamiltonian Monte Carlo visits all modes",
            correction=r"only in the limit: a trajectory crosses a barrier just if its momentum carries it over",
            form=lambda barrier: np.ones_like(barrier),
            where="003 Bayesian",
            kind="claim",
            counterexample=r"a barrier of 20 is crossed by one trajectory in $4 \cdot 10^9$",
        ),
    ),
    systems=("hmc",),
)
def hmc_modes(rng, claim):
    """Energy is kept along a trajectory, so a barrier is crossed only with enough momentum: far modes are not found.

    Trajectories in a double well h (x^2 - 1)^2 from x = -1, for momenta at many quantiles.
    """
    barriers = np.array([0.5, 1.0, 2.0]) * rng.uniform(0.9, 1.1)
    momentum = np.sqrt(2) * np.abs(_normal_quantiles(2000))
    crossed = []
    for h in barriers:
        theta, y, over = -np.ones(2000), momentum.copy(), np.zeros(2000, dtype=bool)
        slope = lambda t, h=h: 4 * h * t * (t**2 - 1)
        for _ in range(3000):
            y -= 0.005 * slope(theta) / 2
            theta += 0.005 * y
            y -= 0.005 * slope(theta) / 2
            over |= theta > 0.5
        crossed.append(over.mean())
    return equal(claim(barriers), crossed, tol=5e-3)  # trajectories just above the barrier take long


def _normal_quantiles(n):
    """The quantiles of a normal law with variance 1/2 at the middles of n equal shares."""
    return erfinv(2 * (np.arange(n) + 0.5) / n - 1)
