"""Hamiltonian Monte Carlo against blackjax and numpyro: the same target, steps and chains, so that a draw is worth the same.

Both compile with jax (``pip install jax==0.10.2 blackjax==1.7.1 numpyro==0.22.0``); the call that warms up compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bench.harness import Draw, Pair, claim

N_STEPS = 10  # of the leapfrog, on average


class Work(NamedTuple):
    """One posterior, and how it is drawn from."""

    X: np.ndarray
    y: np.ndarray
    chains: int
    draws: int
    step: float


def _work(draw: Draw) -> Work:
    rng, n, d = draw.rng, draw.size("rows", 300, 3000), draw.size("weights", 5, 50)
    chains, draws = draw.size("chains", 4, 16), draw.size("draws", 200, 1000)
    X = rng.standard_normal((n, d)).astype(np.float32)
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ rng.normal(size=d) * 0.5))).astype(np.float32)
    return Work(
        X, y, chains, draws, 0.35 / float(np.sqrt(n))
    )  # a path is a quarter of a turn, pi / 2 deviations


def _ours(work: Work, log_density: Any) -> Callable[[], np.ndarray]:
    from corollary.bayes import HMC

    def call() -> np.ndarray:
        sampler = HMC(
            work.chains,
            work.draws,
            0,
            step_size=work.step,
            path_length=N_STEPS * work.step,
            covariance="identity",
            random_state=0,
        )
        return np.asarray(sampler.fit(log_density, np.zeros(work.X.shape[1], np.float32)).draws_)

    return call


def _in_jax(work: Work) -> Callable[[Any], Any]:
    import jax.numpy as jnp

    X, y = jnp.asarray(work.X), jnp.asarray(work.y)

    def target(w: Any) -> Any:
        z = X @ w
        return jnp.sum(y * z - jnp.logaddexp(0.0, z)) - 0.5 * jnp.sum(w * w)

    return target


def _blackjax(work: Work) -> Callable[[], np.ndarray]:
    compiled: list[Any] = []

    def compile_() -> Any:
        import blackjax
        import jax
        import jax.numpy as jnp

        d = work.X.shape[1]
        kernel = blackjax.hmc(_in_jax(work), work.step, jnp.ones(d), N_STEPS)

        def chain(key: Any) -> Any:
            def one(state: Any, key: Any) -> tuple[Any, Any]:
                state, _ = kernel.step(key, state)
                return state, state.position

            return jax.lax.scan(one, kernel.init(jnp.zeros(d)), jax.random.split(key, work.draws))[1]

        return jax.jit(jax.vmap(chain))

    def call() -> np.ndarray:
        import jax

        if not compiled:
            compiled.append(compile_())
        return np.asarray(compiled[0](jax.random.split(jax.random.key(0), work.chains)))

    return call


def _numpyro(work: Work) -> Callable[[], np.ndarray]:
    made: list[Any] = []

    def make() -> Any:
        from numpyro.infer import HMC, MCMC

        target = _in_jax(work)
        kernel = HMC(
            potential_fn=lambda w: -target(w),
            step_size=work.step,
            trajectory_length=(N_STEPS + 0.01) * work.step,  # it rounds down
            adapt_step_size=False,
            adapt_mass_matrix=False,
        )
        options = {"num_chains": work.chains, "chain_method": "vectorized", "progress_bar": False}
        return MCMC(kernel, num_warmup=0, num_samples=work.draws, **options)

    def call() -> np.ndarray:
        import jax
        import jax.numpy as jnp

        if not made:
            made.append(make())
        made[0].run(jax.random.key(0), init_params=jnp.zeros((work.chains, work.X.shape[1])))
        return np.asarray(made[0].get_samples(group_by_chain=True))

    return call


def _worth(work: Work) -> Callable[[np.ndarray, np.ndarray], dict[str, float]]:
    """Return a check that the means agree and that our draws are worth theirs."""
    from corollary.bayes import summary

    def quality(mine: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
        kept = work.draws // 4
        a, b = summary(mine[:, kept:]), summary(theirs[:, kept:])
        error = np.hypot(a["mcse_mean"], b["mcse_mean"])
        if (np.abs(a["mean"] - b["mean"]) > 6 * error).any():
            raise AssertionError("the means differ")
        share = float(a["ess_bulk"].median() / b["ess_bulk"].median())
        if share < 0.9:
            raise AssertionError(f"our draws are worth {share:.2f} of theirs")
        return {"effective draws over theirs": round(share, 2)}

    return quality


def _closed(work: Work) -> Any:
    from corollary.bayes import LogisticPosterior

    return LogisticPosterior(work.X, work.y)


@claim("hmc-logistic", peer="blackjax", aim=2)
def logistic(draw: Draw) -> Pair:
    """HMC on the posterior of a logistic regression (`LogisticPosterior`)

    A path of a chain is one compiled loop; between two paths stand some twenty calls of torch (momenta, energies, what is kept),
    which on a few hundred rows take longer than the path. jax compiles chains whole.
    """
    work = _work(draw)
    return Pair(_ours(work, _closed(work)), _blackjax(work), _worth(work))


@claim("hmc-logistic-numpyro", peer="numpyro", aim=10)
def logistic_numpyro(draw: Draw) -> Pair:
    """HMC on the posterior of a logistic regression (`LogisticPosterior`), chains vectorised on both sides

    A path of a chain is one compiled loop; between two paths stand some twenty calls of torch (momenta, energies, what is kept),
    which on a few hundred rows take longer than the path. jax compiles chains whole.
    """
    work = _work(draw)
    return Pair(_ours(work, _closed(work)), _numpyro(work), _worth(work))


@claim("hmc-written", peer="blackjax", aim=1)
def written(draw: Draw) -> Pair:
    """HMC on a log-density written with torch

    Every gradient of all chains records a graph and goes back through it, which takes .2 to .9 milliseconds, three to eight
    times the function itself; jax compiles whole chains into one program. A trace of the gradient that is replayed
    (`make_fx`, then `torch.jit.trace`) takes a third to a half of that, and would freeze what the function decides in
    Python, so it is not made. `torch.compile` gains nothing. Posteriors of the library (`LogisticPosterior`) are compiled.
    """
    import torch

    work = _work(draw)
    A, b = torch.as_tensor(work.X), torch.as_tensor(work.y)

    def log_density(w: torch.Tensor) -> torch.Tensor:
        z = w @ A.T
        return (z * b - torch.nn.functional.softplus(z)).sum(1) - 0.5 * w.square().sum(1)

    return Pair(_ours(work, log_density), _blackjax(work), _worth(work))
