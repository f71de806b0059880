"""scikit-learn's tests of NMF, on ours."""

from borrowed import borrow

from corollary.completion.nmf import NMF

EXCUSED = {"test_nmf_n_components_auto[NMF]": "reads a private attribute; n_components_ says the same"}

globals().update(borrow("sklearn.decomposition.tests.test_nmf", EXCUSED, NMF=NMF))
