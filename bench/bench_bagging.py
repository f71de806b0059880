"""Bagging against scikit-learn's, of the same members on the same bags."""

from typing import Any

import numpy as np

from bench.harness import Draw, Pair, claim


def work(draw: Draw) -> tuple[np.ndarray, np.ndarray, int]:
    """Return a classification problem and a number of members."""
    rng, n, d = draw.rng, draw.size("rows", 500, 8000), draw.size("columns", 4, 40)
    X = draw.array(rng.standard_normal((n, d)))
    y = (X @ rng.standard_normal((d, 4)) + rng.standard_normal((n, 4))).argmax(1)
    return X, y, draw.size("members", 5, 30)


def equal_accuracy(X: np.ndarray, y: np.ndarray, within: float) -> Any:
    """Return the check that both get as many right."""

    def quality(a: Any, b: Any) -> dict[str, float]:
        scores = [float(model.score(X, y)) for model in (a, b)]
        if abs(scores[0] - scores[1]) > within:
            raise RuntimeError(f"accuracies differ: ours {scores[0]}, peer {scores[1]}")
        return {"accuracy": scores[0], "peer accuracy": scores[1]}

    return quality


@claim("bagging-trees", peer="scikit-learn", aim=0.91)
def trees(draw: Draw) -> Pair:
    """Bagging of decision trees

    The members are scikit-learn's trees on both sides, on the same bags; ours adds the loop that can be stopped and resumed.
    """
    from sklearn.ensemble import BaggingClassifier
    from sklearn.tree import DecisionTreeClassifier

    import corollary

    X, y, members = work(draw)
    tree = DecisionTreeClassifier(max_depth=8)
    return Pair(
        lambda: corollary.BaggingClassifier(tree, members, oob_score=False, random_state=0).fit(X, y),
        lambda: BaggingClassifier(tree, members, random_state=0).fit(X, y),
        equal_accuracy(X, y, 0.01),
    )


@claim("bagging-nets", peer="scikit-learn", aim=0.91)
def nets(draw: Draw) -> Pair:
    """Bagging of our multi-layer perceptrons"""
    from sklearn.ensemble import BaggingClassifier

    import corollary

    X, y, members = work(draw)
    net = corollary.MLPClassifier((32,), training=corollary.Training(epochs=10))
    members = max(3, members // 5)
    return Pair(
        lambda: corollary.BaggingClassifier(net, members, oob_score=False, random_state=0).fit(X, y),
        lambda: BaggingClassifier(net, members, random_state=0).fit(X, y),
        equal_accuracy(X, y, 0.05),
    )
