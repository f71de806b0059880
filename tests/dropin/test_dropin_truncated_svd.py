"""scikit-learn's tests of TruncatedSVD, on ours."""

from borrowed import borrow

from corollary.completion.truncated_svd import TruncatedSVD

globals().update(borrow("sklearn.decomposition.tests.test_truncated_svd", TruncatedSVD=TruncatedSVD))
