"""scikit-learn's tests of PCA, on ours."""

from borrowed import Sometimes, borrow

from corollary.linear.pca import PCA

WHITEN = Sometimes(
    "asks that whitening lowers the likelihood; the density of x does not depend on how features are scaled, so that "
    "the two are equal up to rounding, and rounding decides"
)
EXCUSED = {
    f"test_pca_score[{solver}]": WHITEN
    for solver in ("full", "covariance_eigh", "arpack", "randomized", "auto")
}

globals().update(borrow("sklearn.decomposition.tests.test_pca", EXCUSED, PCA=PCA))
