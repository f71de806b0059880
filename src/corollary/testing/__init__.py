"""Checks that every estimator must pass; public, for third parties too."""

from corollary.testing.checks import (
    CHECKS,
    CheckFailed,
    cases,
    check_estimator,
    outputs,
    overfitted,
    require,
    same,
    sample_data,
)

__all__ = [
    "CHECKS",
    "CheckFailed",
    "cases",
    "check_estimator",
    "outputs",
    "overfitted",
    "require",
    "same",
    "sample_data",
]
