"""The multi-layer perceptron against scikit-learn's and skorch's: the same network and updates."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from bench.harness import THREADS, Draw, Pair, claim


class Work(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    widths: tuple[int, ...]
    batch: int
    epochs: int


def work(draw: Draw) -> Work:
    """Return a classification problem and the settings that both sides use."""
    torch.set_num_threads(THREADS)
    rng, n, d = draw.rng, draw.size("rows", 2000, 30000), draw.size("columns", 8, 128)
    X = draw.array(rng.standard_normal((n, d)))
    hidden = np.tanh(X @ rng.standard_normal((d, 40)) / np.sqrt(d) * 2)
    y = (hidden @ rng.standard_normal((40, 10)) + 0.5 * rng.standard_normal((n, 10))).argmax(1)
    widths = (draw.size("width", 32, 256),) * draw.choice("layers", (1, 2, 3))
    return Work(X, y, widths, draw.choice("batch", (32, 128, 200)), max(2, 60_000 // n))


def ours(w: Work) -> Any:
    from corollary import MLPClassifier, Training

    plan = Training(epochs=w.epochs, batch_size=w.batch, learning_rate=1e-3)
    return MLPClassifier(w.widths, training=plan, random_state=0).fit(w.X, w.y)


def equal_loss(w: Work) -> Any:
    """Both must describe the training data equally well: the same updates from another seed."""

    def quality(a: Any, b: Any) -> dict[str, float]:
        rows = np.arange(len(w.y))
        losses = [float(-np.log(m.predict_proba(w.X)[rows, w.y] + 1e-30).mean()) for m in (a, b)]
        if losses[0] > losses[1] * 1.05 + 0.005:
            raise RuntimeError(f"losses differ: ours {losses[0]}, peer {losses[1]}")
        return {"loss": losses[0], "peer loss": losses[1]}

    return quality


@claim("mlp-scikit-learn", peer="scikit-learn", aim=1.2)
def against_scikit_learn(draw):
    """MLP classifier fit

    Both sides make the same small products, one batch after another; only the bookkeeping around them differs.
    """
    from sklearn.neural_network import MLPClassifier

    w = work(draw)

    def peer():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = {"batch_size": w.batch, "max_iter": w.epochs, "random_state": 0, "tol": 0}
            return MLPClassifier(w.widths, **options, n_iter_no_change=w.epochs + 1).fit(w.X, w.y)

    return Pair(lambda: ours(w), peer, equal_loss(w))


@claim("mlp-skorch", peer="skorch", aim=2.5)
def against_skorch(draw):
    """MLP classifier fit"""
    from skorch import NeuralNetClassifier

    w = work(draw)
    X = w.X.astype(np.float32)

    def net():
        torch.manual_seed(0)
        sizes = (X.shape[1], *w.widths)
        hidden = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(sizes[-1], 10))

    def peer():
        options = {
            "max_epochs": w.epochs,
            "lr": 1e-3,
            "batch_size": w.batch,
            "train_split": None,
            "verbose": 0,
        }
        model = NeuralNetClassifier(
            net(),
            criterion=nn.CrossEntropyLoss,
            optimizer=torch.optim.Adam,
            iterator_train__shuffle=True,
            **options,
        )
        model.fit(X, w.y.astype(np.int64))
        model.predict_proba = lambda X: (
            model.module_(torch.from_numpy(X.astype(np.float32))).softmax(1).detach().numpy()
        )
        return model

    w = w._replace(X=X)
    return Pair(lambda: ours(w), peer, equal_loss(w))
