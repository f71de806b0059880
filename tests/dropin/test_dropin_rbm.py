"""scikit-learn's tests of BernoulliRBM, on ours."""

from borrowed import borrow

from corollary.connectionism.rbm import BernoulliRBM

EXCUSED = {
    "test_sparse_and_verbose": "asks for printed lines; here verbose shows a bar on stderr, and history_ keeps the numbers"
}

globals().update(borrow("sklearn.neural_network.tests.test_rbm", EXCUSED, BernoulliRBM=BernoulliRBM))
