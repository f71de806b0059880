"""Measures of generative models: distances between samples, distributions and their features."""

from corollary.metrics.calibration import calibration_error
from corollary.metrics.divergences import inception_score, jensen_shannon, mmd, perplexity, wasserstein
from corollary.metrics.features import RandomFeatures, features_of
from corollary.metrics.frechet import Moments, fid, frechet_distance, gaussian_distance
from corollary.metrics.neighbours import density_coverage, precision_recall

__all__ = [
    "Moments",
    "RandomFeatures",
    "calibration_error",
    "density_coverage",
    "features_of",
    "fid",
    "frechet_distance",
    "gaussian_distance",
    "inception_score",
    "jensen_shannon",
    "mmd",
    "perplexity",
    "precision_recall",
    "wasserstein",
]
