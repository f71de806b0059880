"""scikit-learn's tests of LatentDirichletAllocation, on ours."""

from borrowed import borrow

from corollary.mixtures import LatentDirichletAllocation

PRINTS = "verbose=True prints lines there; here it shows a bar on stderr"
EXCUSED = {
    f"test_verbosity[{kind}-True-{rest}]": PRINTS
    for kind in ("csr_matrix", "csr_array")
    for rest in ("0-3-0", "1-3-3", "2-3-1")
}

globals().update(
    borrow(
        "sklearn.decomposition.tests.test_online_lda",
        EXCUSED,
        LatentDirichletAllocation=LatentDirichletAllocation,
    )
)
