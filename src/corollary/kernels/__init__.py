"""Networks of infinite width as kernel machines."""

from corollary.kernels.wide import NNGP, NNGPClassifier, NTKClassifier, NTKRegressor

__all__ = ["NNGP", "NNGPClassifier", "NTKClassifier", "NTKRegressor"]
