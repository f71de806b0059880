"""scikit-learn's tests of Perceptron, on ours."""

from borrowed import borrow

from corollary.connectionism.perceptron import Perceptron

globals().update(borrow("sklearn.linear_model.tests.test_perceptron", Perceptron=Perceptron))
