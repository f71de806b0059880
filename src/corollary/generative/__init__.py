"""Models that make new data."""

from corollary.generative.vae import VAE

__all__ = ["VAE"]
