"""The optimisation methods of the formulary as plain loops, and the test problems they run on."""

from __future__ import annotations

import numpy as np
import torch


def library_path(name, gradient, x0, steps, **options):
    """Return the iterates of the library's optimiser of this name, the start left out."""
    from corollary.optim import create

    x = torch.tensor(x0)
    optimiser = create(name, [x], **options)
    path = []
    for _ in range(steps):
        x.grad = torch.tensor(gradient(x.numpy()))
        optimiser.step()
        path.append(x.numpy().copy())
    return np.array(path)


def descend(gradient, x, eta, steps):
    """Return the iterates of gradient descent, the start included."""
    path = [x]
    for _ in range(steps):
        path.append(path[-1] - eta * gradient(path[-1]))
    return np.array(path)


def nesterov(gradient, x, eta, beta, steps):
    """Return Nesterov's iterates: gradient and step both at the extrapolated point.

    ``beta`` is a number, or a function of the step for the convex case.
    """
    path = [x, x]
    for k in range(steps):
        momentum = beta(k) if callable(beta) else beta
        y = path[-1] + momentum * (path[-1] - path[-2])
        path.append(y - eta * gradient(y))
    return np.array(path[1:])


def convex_momentum(k):
    """Return Nesterov's momentum (t_k - 1) / t_(k+1) for convex functions, 0 at first."""
    t = 1.0
    for _ in range(k - 1):
        t = (1 + np.sqrt(1 + 4 * t**2)) / 2
    return (t - 1) / ((1 + np.sqrt(1 + 4 * t**2)) / 2)


def nesterov_ahead(gradient, x, eta, beta, steps):
    """Take the gradient at the next extrapolated point instead (implicit, solved by iteration)."""
    path = [x, x]
    for _ in range(steps):
        y = path[-1] + beta * (path[-1] - path[-2])
        new = y
        for _ in range(60):
            new = y - eta * gradient(new + beta * (new - path[-1]))
        path.append(new)
    return np.array(path[1:])


def adagrad(gradient, x, x_star, eta, delta, steps):
    """Return AdaGrad's iterates."""
    total, path = 0.0, []
    for _ in range(steps):
        g = gradient(x)
        total = total + g**2
        x = x - eta * g / (np.sqrt(total) + delta)
        path.append(x)
    return np.array(path)


def adagrad_without_root(gradient, x, x_star, eta, delta, steps):
    """Divide by the summed squares themselves."""
    total, path = 0.0, []
    for _ in range(steps):
        g = gradient(x)
        total = total + g**2
        x = x - eta * g / (total + delta)
        path.append(x)
    return np.array(path)


def rmsprop(gradient, x, alpha, beta, epsilon, steps):
    """Return RMSprop's iterates."""
    v, path = 0.0, []
    for _ in range(steps):
        g = gradient(x)
        v = beta * v + (1 - beta) * g**2
        x = x - alpha * g / (np.sqrt(v) + epsilon)
        path.append(x)
    return np.array(path)


def adam(gradient, x, alpha, betas, epsilon, steps, corrected=True, largest=False):
    """Return Adam's iterates; AMSGrad's with ``largest``."""
    m = v = peak = 0.0
    path = []
    for t in range(1, steps + 1):
        g = gradient(x)
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        peak = np.maximum(peak, v)
        first, second = (1 - betas[0] ** t, 1 - betas[1] ** t) if corrected else (1.0, 1.0)
        x = x - alpha * (m / first) / (np.sqrt((peak if largest else v) / second) + epsilon)
        path.append(x)
    return np.array(path)


def adam_printed(gradient, x, alpha, betas, epsilon, steps):
    """Add the step, without the root and with corrections that do not depend on the time."""
    m = v = 0.0
    path = []
    for _ in range(steps):
        g = gradient(x)
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        x = x + alpha * (m / (1 - betas[0])) / (np.sqrt(v) / (1 - betas[1]) + epsilon)
        path.append(x)
    return np.array(path)


def huber(x, L, delta):
    """Value and gradient of L x^2 / 2, continued linearly beyond ``delta``."""
    inside = abs(x) <= delta
    value = L * x**2 / 2 if inside else L * delta * (abs(x) - delta / 2)
    return value, (L * x if inside else L * delta * np.sign(x))


def hard_quadratic(n, L):
    """Nesterov's worst quadratic: Hessian, linear term and minimiser of x'Ax/2 - b'x."""
    A = L / 4 * (2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1))
    b = np.zeros(n)
    b[0] = L / 4
    return A, b, 1 - np.arange(1, n + 1) / (n + 1)


def cosine_landscape(rng, d, waves=4):
    """A random non-convex function sum a cos(w x + b) + |x|^2 / 2: value, gradient, L and a lower bound."""
    a, W, b = rng.uniform(0.5, 1, size=waves), rng.normal(size=(waves, d)), rng.uniform(0, 6, size=waves)

    def value(x):
        return a @ np.cos(W @ x + b) + x @ x / 2

    def gradient(x):
        return -W.T @ (a * np.sin(W @ x + b)) + x

    return value, gradient, 1 + a @ (W**2).sum(1), -a.sum()


def averaged_sgd(gradient, noise, power, checkpoints, clip=np.inf):
    """Return averaged SGD from 0 with steps t^-power, at the checkpoints, for every column of noise."""
    x = np.zeros(noise.shape[1])
    mean, kept = np.zeros_like(x), []
    for t in range(1, max(checkpoints) + 1):
        x = np.clip(x - t**-power * (gradient(x) + noise[t - 1]), -clip, clip)
        mean += (x - mean) / t
        if t in checkpoints:
            kept.append(mean.copy())
    return np.array(kept)
