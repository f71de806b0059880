"""The multi-layer perceptron against scikit-learn's and skorch's."""

import numpy as np
import torch
from torch import nn

from bench.harness import Pair, claim

N, D, H, C, BATCH, EPOCHS = 20_000, 64, 128, 10, 128, 5


def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)).astype(np.float32)
    hidden = np.tanh(X @ rng.standard_normal((D, 40)) / 4)
    return X, (hidden @ rng.standard_normal((40, C)) + 0.5 * rng.standard_normal((N, C))).argmax(1)


def ours(X, y):
    from corollary import MLPClassifier, Training

    plan = Training(epochs=EPOCHS, batch_size=BATCH, learning_rate=1e-3)
    return MLPClassifier((H, H), training=plan, random_state=0).fit(X, y)


def equal_loss(X, y):
    """Both must describe the training data equally well: the same updates from another seed."""

    def quality(a, b):
        losses = [float(-np.log(m.predict_proba(X)[np.arange(N), y]).mean()) for m in (a, b)]
        if losses[0] > losses[1] * 1.03:
            raise RuntimeError(f"losses differ: ours {losses[0]}, peer {losses[1]}")
        return {"loss": losses[0], "peer loss": losses[1]}

    return quality


@claim("mlp-scikit-learn", peer="scikit-learn", floor=1.5)
def against_scikit_learn():
    """MLP fit, 20000×64, two layers of 128, batches of 128, 5 epochs."""
    from sklearn.neural_network import MLPClassifier

    X, y = data()

    def peer():
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return MLPClassifier((H, H), batch_size=BATCH, max_iter=EPOCHS, random_state=0, tol=0).fit(X, y)

    return Pair(lambda: ours(X, y), peer, equal_loss(X, y))


@claim("mlp-skorch", peer="skorch", floor=3.0)
def against_skorch():
    """MLP fit, the same network and updates."""
    from skorch import NeuralNetClassifier

    X, y = data()

    def peer():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(D, H), nn.ReLU(), nn.Linear(H, H), nn.ReLU(), nn.Linear(H, C))
        options = {"max_epochs": EPOCHS, "lr": 1e-3, "batch_size": BATCH, "train_split": None, "verbose": 0}
        model = NeuralNetClassifier(
            net,
            criterion=nn.CrossEntropyLoss,
            optimizer=torch.optim.Adam,
            iterator_train__shuffle=True,
            **options,
        )
        model.fit(X, y.astype(np.int64))
        model.predict_proba = lambda X: net(torch.from_numpy(X)).softmax(1).detach().numpy()
        return model

    return Pair(lambda: ours(X, y), peer, equal_loss(X, y))
