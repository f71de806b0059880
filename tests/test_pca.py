"""PCA against scikit-learn, closed forms and its own other solvers."""

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn import decomposition
from sklearn.datasets import load_digits, load_iris
from sklearn.utils.estimator_checks import parametrize_with_checks

import corollary
from corollary.linalg import Centred, gram, krylov_svd, largest_eigenpairs, orthonormal
from corollary.linear.latent import EM, Holes, Latent, posterior
from corollary.linear.pca import PCA

SOLVERS = ["full", "covariance_eigh", "arpack", "randomized", "krylov", "power", "gradient", "em"]


@pytest.fixture(scope="module")
def digits():
    return load_digits().data


def low_rank(n=200, d=30, seed=0, scale=0.05):
    rng = np.random.default_rng(seed)
    spread = np.array([5.0, 3.0, 2.0])
    return (
        (rng.standard_normal((n, 3)) * spread) @ rng.standard_normal((3, d))
        + scale * rng.standard_normal((n, d))
        + 4
    )


@parametrize_with_checks([PCA()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_agrees_with_scikit_learn(solver):
    # A gap of 40 between the third and fourth values: iterations to 1e-6 leave errors below 1e-4.
    X = low_rank()
    reference = decomposition.PCA(3, svd_solver="full").fit(X)
    ours = PCA(3, svd_solver=solver, random_state=0, tol=1e-9 if solver == "em" else 0.0).fit(X)
    tol = 1e-4 if solver == "em" else 1e-8
    np.testing.assert_allclose(np.abs(ours.components_ @ reference.components_.T), np.eye(3), atol=tol)
    # EM maximises the likelihood, whose covariance divides by n instead of n - 1.
    scale = 200 / 199 if solver == "em" else 1
    np.testing.assert_allclose(ours.explained_variance_ * scale, reference.explained_variance_, rtol=1e-6)
    np.testing.assert_allclose(ours.mean_, reference.mean_, rtol=1e-9)


@pytest.mark.parametrize("batch_size", [100, 333, None])
def test_incremental_agrees_with_scikit_learn(digits, batch_size):
    ours = PCA(8, svd_solver="incremental", batch_size=batch_size).fit(digits)
    theirs = decomposition.IncrementalPCA(8, batch_size=batch_size).fit(digits)
    np.testing.assert_allclose(ours.singular_values_, theirs.singular_values_, rtol=1e-9)
    np.testing.assert_allclose(np.abs(ours.components_), np.abs(theirs.components_), atol=1e-8)
    np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=1e-9)


def test_partial_fit_equals_incremental_fit(digits):
    whole = PCA(5, svd_solver="incremental", batch_size=600).fit(digits)
    parts = PCA(5)
    for begin in range(0, len(digits), 600):
        parts.partial_fit(digits[begin : begin + 600])
    np.testing.assert_array_equal(parts.components_, whole.components_)
    assert parts.n_samples_seen_ == len(digits)
    whole.partial_fit(digits[:100])  # a fit may be gone on with
    assert whole.n_samples_seen_ == len(digits) + 100


def test_incremental_with_all_components_is_exact(digits):
    exact = PCA(64, svd_solver="full").fit(digits)
    batched = PCA(64, svd_solver="incremental", batch_size=250).fit(digits)
    np.testing.assert_allclose(batched.explained_variance_, exact.explained_variance_, rtol=1e-8, atol=1e-10)
    assert batched.noise_variance_ == exact.noise_variance_ == 0


@pytest.mark.parametrize("solver", ["auto", "krylov", "power", "gradient", "covariance_eigh", "arpack"])
def test_sparse_equals_dense_without_densifying(solver, monkeypatch):
    X = sparse.random(400, 60, 0.1, format="csr", random_state=0)
    X.data *= np.exp(-np.arange(60) / 4)[X.indices]  # a falling spectrum, so that power iteration ends
    dense = PCA(3, svd_solver="full").fit(X.toarray())
    whole = X.shape

    def toarray(self, *args, **kwargs):
        assert self.shape != whole, "the data were made dense"
        return original(self, *args, **kwargs)

    original = sparse.csr_matrix.toarray
    monkeypatch.setattr(sparse.csr_matrix, "toarray", toarray)
    ours = PCA(3, svd_solver=solver, random_state=0, max_iter=5000).fit(X)
    np.testing.assert_allclose(ours.explained_variance_, dense.explained_variance_, rtol=1e-6)
    np.testing.assert_allclose(ours.transform(X[:5]), dense.transform(np.asarray(X[:5].todense())), atol=1e-5)
    np.testing.assert_allclose(
        ours.score_samples(X[:5]), dense.score_samples(np.asarray(X[:5].todense())), rtol=1e-5
    )


def test_density_equals_scikit_learn_and_torch(digits):
    X = digits + np.random.default_rng(0).normal(size=digits.shape)
    ours, theirs = PCA(10).fit(X), decomposition.PCA(10).fit(X)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-9)
    normal = torch.distributions.MultivariateNormal(
        torch.from_numpy(ours.mean_), torch.from_numpy(ours.get_covariance())
    )
    np.testing.assert_allclose(ours.score_samples(X), normal.log_prob(torch.from_numpy(X)), rtol=1e-9)
    np.testing.assert_allclose(ours.get_precision() @ ours.get_covariance(), np.eye(64), atol=1e-9)


def test_whitening_does_not_change_the_density():
    X = load_iris().data
    assert PCA(2, whiten=True).fit(X).score(X) == pytest.approx(PCA(2).fit(X).score(X), rel=1e-12)


def test_float32_with_a_large_mean_keeps_its_digits():
    X = (low_rank(5000, 20) + 3000).astype(np.float32)
    exact = PCA(3, svd_solver="full").fit(X.astype(np.float64))
    for solver in ("covariance_eigh", "randomized"):
        ours = PCA(3, svd_solver=solver, random_state=0).fit(X)
        assert ours.components_.dtype == np.float32
        # Entries near 3000 carry rounding of 1e-4, against a spread of 10.
        np.testing.assert_allclose(ours.explained_variance_, exact.explained_variance_, rtol=1e-3)


# --- missing values --------------------------------------------------------------------------------------


def holed(X, share=0.15, seed=1):
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return X


def test_missing_values_are_found_again():
    X = low_rank()
    model = PCA(3, random_state=0).fit(holed(X))
    truth = PCA(3).fit(X)
    # Noise of 0.05 against a spread of 20: the axes are known to about 0.05 / sqrt(200) / 2.
    np.testing.assert_allclose(np.abs(model.components_ @ truth.components_.T), np.eye(3), atol=5e-3)
    rebuilt = model.inverse_transform(model.transform(holed(X)))
    assert np.sqrt(np.mean((rebuilt - X) ** 2)) < 0.08


def test_em_never_lowers_the_likelihood_and_matches_a_dense_gaussian():
    X = holed(load_iris().data)
    model = PCA(2, svd_solver="em", random_state=0, tol=1e-10).fit(X)
    rises = np.diff([row["log_likelihood"] for row in model.history_])
    assert (rises > -1e-9).all()
    seen = ~np.isnan(X[7])
    C = model.get_covariance()[np.ix_(seen, seen)]
    normal = torch.distributions.MultivariateNormal(torch.from_numpy(model.mean_[seen]), torch.from_numpy(C))
    assert model.score_samples(X)[7] == pytest.approx(
        float(normal.log_prob(torch.from_numpy(X[7, seen]))), rel=1e-8
    )
    assert model.score(X) == pytest.approx(model.history_[-1]["log_likelihood"], abs=1e-8)


def test_the_em_step_is_stationary_at_the_closed_form():
    X = load_iris().data
    e, V = np.linalg.eigh(np.cov(X.T, bias=True))
    sigma2 = e[:2].mean()
    W = V[:, 2:] * np.sqrt(e[2:] - sigma2)
    start = Latent(*map(torch.from_numpy, (W, X.mean(0))), torch.tensor(sigma2))
    em = EM(X, start, max_iter=1, tol=0.0)
    em.step()
    torch.testing.assert_close(em.model.W, start.W, atol=1e-10, rtol=0)
    torch.testing.assert_close(em.model.sigma2, start.sigma2, atol=1e-12, rtol=1e-12)


def test_posterior_of_an_empty_row_is_the_prior():
    model = Latent(torch.randn(4, 2).double(), torch.zeros(4).double(), torch.tensor(0.5).double())
    E = posterior(Holes.of(np.full((1, 4), np.nan)), model)
    torch.testing.assert_close(E.mean, torch.zeros(1, 2).double())
    torch.testing.assert_close(E.covariance[0], torch.eye(2).double())
    torch.testing.assert_close(E.log_prob, torch.zeros(1).double())


# --- the engine ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["em", "power", "gradient", "incremental"])
def test_a_resumed_fit_equals_an_uninterrupted_one(solver, tmp_path):
    X = low_rank(300, 12, scale=1.0)
    X = holed(X) if solver == "em" else X
    make = lambda: PCA(3, svd_solver=solver, random_state=0, batch_size=50, max_iter=40)
    whole = make().fit(X)
    stop = lambda event: event.step == 2
    with corollary.Run(tmp_path, callbacks=[stop], checkpoint_every=0, progress=False):
        make().fit(X)
    assert whole.n_iter_ > 2
    for file in tmp_path.glob("checkpoints/*/checkpoint.safetensors"):
        state = corollary.io.read(file, "checkpoint")
        state["journal"]["stopped"] = ""
        corollary.io.write(file, state, "checkpoint")
    with corollary.Run(tmp_path, resume=True, progress=False):
        resumed = make().fit(X)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    np.testing.assert_array_equal(resumed.explained_variance_, whole.explained_variance_)


@pytest.mark.parametrize("solver", ["krylov", "em"])
def test_two_processes_give_the_model_of_one(solver):
    X = low_rank(101, 12)
    one = PCA(3, svd_solver=solver, random_state=0).fit(X)
    with corollary.Run(processes=2, progress=False):
        two = PCA(3, svd_solver=solver, random_state=0).fit(X)
    np.testing.assert_allclose(two.explained_variance_, one.explained_variance_, rtol=1e-7)
    np.testing.assert_allclose(two.components_, one.components_, atol=1e-6)


def test_save_and_load(tmp_path):
    X = load_iris().data
    model = PCA(2).fit(X)
    again = corollary.load(model.save(tmp_path / "pca.safetensors"))
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    assert again.get_feature_names_out().tolist() == ["pca0", "pca1"]


def test_torch_in_torch_out():
    X = torch.from_numpy(load_iris().data).float()
    Z = PCA(2).fit(X).transform(X)
    assert isinstance(Z, torch.Tensor) and Z.dtype == torch.float32


# --- errors ----------------------------------------------------------------------------------------------


def test_errors():
    X = load_iris().data
    with pytest.raises(ValueError, match="every column must have at least one value"):
        PCA(2).fit(np.column_stack([X, np.full(150, np.nan)]))
    with pytest.raises(ValueError, match='needs data without NaN; got NaN in X. Use svd_solver="em"'):
        PCA(2, svd_solver="full").fit(holed(X))
    with pytest.raises(TypeError, match="only support sparse inputs"):
        PCA(2, svd_solver="incremental").fit(sparse.csr_matrix(X))
    with pytest.raises(ValueError, match="sparse data must be finite"):
        PCA(2).fit(sparse.csr_matrix(holed(X)))
    with pytest.raises(ValueError, match="between 1 and min"):
        PCA(7, svd_solver="power").fit(X)
    with pytest.raises(ValueError, match="must have n_components_=2 columns; got 3"):
        PCA(2).fit(X).inverse_transform(X[:, :3])
    with pytest.raises(ValueError, match="partial_fit takes dense rows without NaN"):
        PCA(2).partial_fit(holed(X))
    with pytest.raises(ValueError, match="at most the first batch's rows and features"):
        PCA(4).partial_fit(X[:3])
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        PCA(1).fit(X[:1])


# --- the shared linear algebra ---------------------------------------------------------------------------


def test_gram_equals_the_product():
    X = torch.randn(50, 300, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(gram(X), X.T @ X)


def test_orthonormal_survives_dependent_columns():
    Y = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for block in (Y, torch.cat([Y, Y[:, :1]], 1), torch.zeros(40, 2).double()):
        Q = orthonormal(block)
        torch.testing.assert_close(Q.T @ Q, torch.eye(block.shape[1]).double())


def test_krylov_is_exact_where_the_space_is_exhausted():
    A = torch.randn(30, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    A = A @ torch.randn(15, 100, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = krylov_svd(Centred(A, None, 30), 10, blocks=40)
    s, Vt = torch.linalg.svd(A, full_matrices=False)[1:]
    torch.testing.assert_close(found.values, s[:10], rtol=1e-12, atol=0)
    torch.testing.assert_close((found.rows @ Vt[:10].T).abs(), torch.eye(10).double(), atol=1e-10, rtol=0)


def test_a_flat_spectrum_falls_back_to_lapack():
    X = np.random.default_rng(0).standard_normal((2000, 300), np.float32)
    e, V = largest_eigenpairs(X.T @ X, 5)
    np.testing.assert_allclose(e, np.linalg.eigvalsh((X.T @ X).astype(float))[::-1][:5], rtol=1e-5)
    np.testing.assert_allclose(V @ V.T, np.eye(5), atol=1e-5)  # float32
