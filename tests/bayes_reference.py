"""Write ``bayes_reference.json``: posterior means by blackjax, with their Monte-Carlo errors.

Run in an environment of its own (``pip install jax==0.10.2 blackjax==1.7.1``): ``python tests/bayes_reference.py``. The data of
the logistic regression are made by ``regression_data``, which the tests import too.
"""

import json
from pathlib import Path

import numpy as np

EFFECTS = [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]
ERRORS = [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]


def regression_data(n=200, d=5):
    """Return X (n, d) and labels 0 and 1."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(n, d)), rng.normal(size=d)
    return X, (rng.random(n) < 1 / (1 + np.exp(-X @ w))).astype(float)


def means(log_density, d, report, seed, n_chains=4, warmup=1000, draws=5000):
    """Return means and their errors of what is reported of each draw, by NUTS with Stan's window adaptation."""
    import blackjax
    import jax
    import jax.numpy as jnp

    def chain(key):
        warm, key = jax.random.split(key)
        adaptation = blackjax.window_adaptation(blackjax.nuts, log_density, target_acceptance_rate=0.9)
        (state, parameters), _ = adaptation.run(warm, jnp.zeros(d), num_steps=warmup)
        kernel = blackjax.nuts(log_density, **parameters)

        def step(state, key):
            state, _ = kernel.step(key, state)
            return state, report(state.position)

        return jax.lax.scan(step, state, jax.random.split(key, draws))[1]

    found = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(seed), n_chains))
    size = blackjax.diagnostics.effective_sample_size(found)
    return {
        "mean": np.asarray(found.mean((0, 1))).tolist(),
        "mcse": np.asarray(found.std((0, 1)) / jnp.sqrt(size)).tolist(),
    }


def main():
    """Compute and write both references."""
    import blackjax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    y, sigma = jnp.array(EFFECTS), jnp.array(ERRORS)
    X, labels = map(jnp.asarray, regression_data())

    def schools(t):  # mu ~ N(0, 5), tau ~ half-Cauchy(5), theta = mu + tau z: what the test writes with torch
        mu, log_tau, z = t[0], t[1], t[2:]
        prior = -0.5 * (mu / 5) ** 2 - jnp.log1p((jnp.exp(log_tau) / 5) ** 2) + log_tau - 0.5 * jnp.sum(z**2)
        return prior - 0.5 * jnp.sum(((y - mu - jnp.exp(log_tau) * z) / sigma) ** 2)

    def logistic(w):
        z = X @ w
        return jnp.sum(labels * z - jnp.logaddexp(0.0, z)) - 0.5 * jnp.sum(w**2)

    def effects(t):
        return jnp.concatenate([t[:2], t[0] + jnp.exp(t[1]) * t[2:]])

    out = {
        "versions": {"blackjax": blackjax.__version__, "jax": jax.__version__},
        "schools": means(schools, 10, effects, 0),
        "logistic": means(logistic, X.shape[1], lambda w: w, 1),
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
