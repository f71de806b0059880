"""Models that make new data."""

from corollary.generative.ddpm import DDPM
from corollary.generative.flow import Flow
from corollary.generative.vae import VAE

__all__ = ["DDPM", "VAE", "Flow"]
