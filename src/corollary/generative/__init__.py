"""Generative models: VAE, normalising flow, GAN, score model, PixelCNN, diffusion."""

from corollary.generative.ddpm import DDPM
from corollary.generative.flow import Flow
from corollary.generative.gan import GAN
from corollary.generative.pixelcnn import PixelCNN
from corollary.generative.score import ScoreModel
from corollary.generative.vae import VAE

__all__ = ["DDPM", "GAN", "VAE", "Flow", "PixelCNN", "ScoreModel"]
