"""Models that make new data."""

from corollary.generative.flow import Flow
from corollary.generative.vae import VAE

__all__ = ["VAE", "Flow"]
