"""A whole deep-learning course as one library."""

__version__ = "0.1.0"
