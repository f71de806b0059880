"""Soft-impute against fancyimpute, at no worse error on the entries that were left out."""

from __future__ import annotations

import warnings

import numpy as np

from bench.harness import Draw, Pair, claim


@claim("soft-impute", peer="fancyimpute", aim=5)
def soft_impute(draw: Draw) -> Pair:
    """Soft-impute, rank at most 20"""
    import sklearn.utils.validation
    from fancyimpute import SoftImpute, soft_impute, solver

    from corollary.completion import SingularValueThresholding

    def check_array(X, *args, force_all_finite=True, **options):  # fancyimpute uses the keyword's old name
        return sklearn.utils.validation.check_array(X, *args, ensure_all_finite=force_all_finite, **options)

    soft_impute.check_array = solver.check_array = check_array
    rng, r = draw.rng, draw.size("rank", 3, 12)
    n, m = draw.size("rows", 300, 1500), draw.size("columns", 300, 1500)
    M = rng.standard_normal((n, r)) @ rng.standard_normal((r, m)) / np.sqrt(r)
    M += 0.05 * rng.standard_normal((n, m))
    known = rng.random((n, m)) < draw.real("known", 0.15, 0.5)
    X = np.where(known, M, np.nan)
    tau = float(np.linalg.svd(np.where(known, M, 0), compute_uv=False)[0]) / 50

    def ours() -> np.ndarray:
        model = SingularValueThresholding(tau, max_rank=20, tol=1e-4, max_iter=100, random_state=0)
        return model.fit(X.astype(np.float32)).complete(X)

    def peer() -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = SoftImpute(
                shrinkage_value=tau, max_rank=20, max_iters=100, convergence_threshold=1e-4, verbose=False,
                init_fill_method="zero",
            )  # fmt: skip
            return model.fit_transform(X)

    def quality(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
        mine, theirs = (float(np.sqrt(((Z - M)[~known] ** 2).mean())) for Z in (a, b))
        if mine > theirs * 1.001:
            raise AssertionError(f"our RMSE {mine:.5g} is above the peer's {theirs:.5g}")
        return {"RMSE": mine, "peer RMSE": theirs}

    return Pair(ours, peer, quality, repeats=3)
