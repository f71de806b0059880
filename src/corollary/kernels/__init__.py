"""Networks of infinite width as kernel machines."""

from corollary.kernels.classification import NNGPClassifier, NTKClassifier
from corollary.kernels.regression import NNGP, NTKRegressor

__all__ = ["NNGP", "NNGPClassifier", "NTKClassifier", "NTKRegressor"]
