"""The formulary: every formula of the notes as a check that can fail.

One module per topic, one function per formula; :mod:`corollary.formulas.record` says what
a formula is. ``all_formulas()`` loads every topic.
"""

from __future__ import annotations

from importlib import import_module

from corollary.formulas.record import REGISTRY, Erratum, Formula, Outcome

__all__ = ["TOPICS", "Erratum", "Formula", "Outcome", "all_formulas", "find"]

# Topic module -> its heading, in the order of the inventory; the last four are of a second reading.
TOPICS = {
    "probability": "Probability",
    "distributions": "Distributions and inequalities",
    "analysis": "Analysis and convexity",
    "smoothness": "Smoothness and curvature",
    "linear_algebra": "Linear algebra",
    "matrix_calculus": "Matrix calculus",
    "information": "Information theory",
    "activations": "Activations",
    "connectionism": "Threshold units and perceptrons",
    "memories": "Associative memories",
    "linear_networks": "Linear units and regression",
    "deep_linear": "Deep linear networks",
    "pca": "PCA, projections and autoencoders",
    "completion": "Matrix completion by factors",
    "nuclear_norm": "Completion by singular values",
    "mixtures": "Mixtures, topic models and NMF",
    "embeddings": "Embeddings",
    "approximation": "Approximation theory",
    "piecewise_linear": "Rectified units and counting",
    "backpropagation": "Backpropagation and automatic differentiation",
    "convolution": "Convolution arithmetic",
    "convolutional_layers": "Convolutional layers",
    "optimisation": "Gradient methods and convergence",
    "stochastic": "Stochastic and adaptive optimisation",
    "regularisation": "Regularisation",
    "normalisation": "Normalisation and residual connections",
    "recurrence": "Recurrent networks",
    "sequences": "Gates and sequence models",
    "attention": "Attention and transformers",
    "symmetry": "Symmetry and sets",
    "graph_spectra": "Graphs: matrices and spectra",
    "graphs": "Geometric deep learning and graphs",
    "learning_theory": "Statistical learning theory",
    "kernels": "NTK, Gaussian processes and Bayesian networks",
    "robustness": "Adversarial robustness",
    "vae": "Factor analysis and VAE",
    "flows": "Normalizing flows",
    "gan": "GAN and WGAN",
    "autoregressive": "Autoregressive and generative basics",
    "diffusion": "Diffusion models",
    "scores": "Score models and Langevin sampling",
    "evaluation": "Evaluation metrics",
    "nonparametric": "Boltzmann machines and nonparametric priors",
    "practice": "Training in practice",
    "architectures": "Facts about architectures",
    "limits": "Limits and guarantees",
}


def all_formulas() -> list[Formula]:
    """Return every formula, by topic in the order of the inventory."""
    for topic in TOPICS:
        import_module(f"corollary.formulas.{topic}")
    order = list(TOPICS)
    return sorted(REGISTRY.values(), key=lambda f: order.index(f.topic) if f.topic in TOPICS else len(order))


def find(*names: str) -> list[Formula]:
    """Return the formulas with these ids or of these topics; all of them if none is named."""
    formulas = all_formulas()
    if not names:
        return formulas
    found = [f for name in names for f in formulas if name in (f.id, f.topic)]
    return list(dict.fromkeys(found))
