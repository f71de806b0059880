"""scikit-learn's tests of NMF, on ours."""

from borrowed import Sometimes, borrow

from corollary.completion.nmf import NMF

EXCUSED = {
    "test_nmf_n_components_auto[NMF]": "reads a private attribute; n_components_ says the same",
    "test_non_negative_factorization_consistency[0.0-1.0-cd-random]": Sometimes(
        "compares after 500 sweeps, of which one decides by rounding whether a weight is zero: a change of X by one part"
        " in 10**15 moves scikit-learn's own result by two thirds"
    ),
}

globals().update(borrow("sklearn.decomposition.tests.test_nmf", EXCUSED, NMF=NMF))
