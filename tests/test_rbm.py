import itertools

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.neural_network import BernoulliRBM as Reference

import corollary
from corollary.connectionism.rbm import BernoulliRBM, free_energy


def digits(n=300):
    return (load_digits().data[:n] > 8).astype(float)


@pytest.mark.parametrize("made", [lambda X: X, sparse.csr_matrix])
def test_the_updates_are_those_of_scikit_learn(made):
    X = made(digits())
    ours = BernoulliRBM(8, n_iter=3, random_state=0).fit(X)
    theirs = Reference(8, n_iter=3, random_state=0).fit(X)
    # the same draws and updates; sums of products in another order
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-10)
    np.testing.assert_allclose(ours.intercept_visible_, theirs.intercept_visible_, atol=1e-10)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=1e-10)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), atol=1e-8)


def test_free_energy_sums_out_the_hidden_units():
    rng = np.random.default_rng(0)
    W, b, c = rng.standard_normal((3, 4)), rng.standard_normal(4), rng.standard_normal(3)
    v = rng.integers(0, 2, (5, 4)).astype(float)
    hidden = np.array(list(itertools.product((0, 1), repeat=3)))
    energies = -(v @ b)[:, None] - hidden @ c - v @ W.T @ hidden.T
    np.testing.assert_allclose(free_energy(v, W, b, c), -np.log(np.exp(-energies).sum(1)))


def test_samples_follow_the_model():
    rng = np.random.default_rng(0)
    model = BernoulliRBM(2, n_iter=1, random_state=0).fit(rng.integers(0, 2, (20, 3)))
    model.components_ = np.array([[2.0, -1.0, 1.0], [-1.5, 1.0, 0.5]])
    model.intercept_visible_, model.intercept_hidden_ = np.array([0.2, -0.3, 0.1]), np.array([-0.2, 0.4])
    states = np.array(list(itertools.product((0.0, 1.0), repeat=3)))
    p = np.exp(-free_energy(states, model.components_, model.intercept_visible_, model.intercept_hidden_))
    drawn = model.sample(4000) @ [4, 2, 1]
    share = np.bincount(drawn.astype(int), minlength=8) / 4000
    np.testing.assert_allclose(share, p / p.sum(), atol=0.03)  # four standard errors of a share of 4000


def test_training_raises_the_pseudo_likelihood_and_resumes_exactly(tmp_path):
    X = digits()
    whole = BernoulliRBM(16, n_iter=8, random_state=0).fit(X)
    history = [row["pseudo_likelihood"] for row in whole.history_]
    assert history[-1] > history[0]
    part = BernoulliRBM(16, n_iter=3, random_state=0)
    with corollary.Run(tmp_path):
        part.fit(X)
    with corollary.Run(tmp_path, resume=True):
        part.set_params(n_iter=8).fit(X)
    np.testing.assert_array_equal(part.components_, whole.components_)
    again = corollary.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.sample(3), whole.sample(3))


def test_a_state_of_the_wrong_width_is_named():
    model = BernoulliRBM(2, n_iter=1, random_state=0).fit(np.eye(3))
    with pytest.raises(
        ValueError, match=r"v must have one column per visible unit \(3\); got shape \(1, 2\)"
    ):
        model.gibbs([[0, 1]])
