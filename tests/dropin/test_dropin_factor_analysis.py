"""scikit-learn's tests of FactorAnalysis, on ours."""

from borrowed import borrow

from corollary.linear.factor_analysis import FactorAnalysis

globals().update(borrow("sklearn.decomposition.tests.test_factor_analysis", FactorAnalysis=FactorAnalysis))
