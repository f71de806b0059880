"""Hamiltonian Monte Carlo against blackjax, per effective draw.

blackjax brings jax, which no environment of the library holds; where both are installed, ``python -m bench hmc-logistic``
measures.
"""

from __future__ import annotations

import numpy as np

from bench.harness import Draw, Pair, claim


@claim("hmc-logistic", peer="blackjax", aim=2)
def logistic(draw: Draw) -> Pair:
    """HMC on the posterior of a logistic regression, the same steps on both sides"""
    import torch

    from corollary.bayes import HMC, summary

    rng, n, d = draw.rng, draw.size("rows", 300, 3000), draw.size("weights", 5, 50)
    chains, n_draws = draw.size("chains", 4, 16), draw.size("draws", 200, 1000)
    X = rng.standard_normal((n, d)).astype(np.float32)
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ rng.normal(size=d) * 0.5))).astype(np.float32)
    step, n_steps = 0.5 * float(np.sqrt(4 / n)), 10
    A, b = torch.as_tensor(X), torch.as_tensor(y)

    def log_density(w: torch.Tensor) -> torch.Tensor:
        z = w @ A.T
        return (z * b - torch.nn.functional.softplus(z)).sum(1) - 0.5 * w.square().sum(1)

    def ours() -> np.ndarray:
        sampler = HMC(
            chains,
            n_draws,
            0,
            step_size=step,
            path_length=n_steps * step,
            covariance="identity",
            random_state=0,
        )
        return np.asarray(sampler.fit(log_density, np.zeros(d, np.float32)).draws_)

    compiled: list[object] = []

    def peer() -> np.ndarray:
        import blackjax
        import jax
        import jax.numpy as jnp

        if not compiled:  # the first call warms up
            Xj, yj = jnp.asarray(X), jnp.asarray(y)

            def target(w: object) -> object:
                z = Xj @ w
                return jnp.sum(yj * z - jnp.logaddexp(0.0, z)) - 0.5 * jnp.sum(w * w)

            kernel = blackjax.hmc(target, step, jnp.ones(d), n_steps)

            def chain(key: object) -> object:
                def one(state: object, key: object) -> tuple[object, object]:
                    state, _ = kernel.step(key, state)
                    return state, state.position  # type: ignore[attr-defined]

                keys = jax.random.split(key, n_draws)
                return jax.lax.scan(one, kernel.init(jnp.zeros(d)), keys)[1]

            compiled.append(jax.jit(jax.vmap(chain)))
        keys = jax.random.split(jax.random.key(0), chains)
        return np.asarray(compiled[0](keys))  # type: ignore[operator]

    def quality(mine: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
        kept = n_draws // 4
        a, b = summary(mine[:, kept:]), summary(theirs[:, kept:])
        error = np.hypot(a["mcse_mean"], b["mcse_mean"])
        if (np.abs(a["mean"] - b["mean"]) > 6 * error).any():
            raise AssertionError("the means differ")
        share = float(a["ess_bulk"].median() / b["ess_bulk"].median())
        if share < 0.7:
            raise AssertionError(f"our draws are worth {share:.2f} of theirs")
        return {"effective draws over theirs": round(share, 2)}

    return Pair(ours, peer, quality)
