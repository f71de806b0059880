"""What is measured on held-out data: for each task a function ``(model, held) -> {metric: number}``.

A board lists all of them; which one ranks is decided by :mod:`corollary.comparison.tasks`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corollary import errors
from corollary.data.dataset import Dataset
from corollary.data.kinds import check_images
from corollary.metrics.calibration import calibration_error

__all__ = [
    "answers",
    "classes",
    "codes",
    "draws",
    "groups",
    "label_sets",
    "labelled",
    "likelihood",
    "numbers",
    "parts",
    "pixels",
    "separation",
    "several",
    "texts",
]


# --- classes ---------------------------------------------------------------------------------------------


def labelled(model: Any, held: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return true and predicted classes, the probabilities (n, n_classes) and the classes of their columns.

    Of a graph the nodes of ``test_mask`` count. A model without probabilities gives its decision to the class it
    predicts.
    """
    truth, predicted = held.y, np.asarray(model.predict(held.X))
    mask: Any = slice(None)
    if held.kind == "graph":
        truth = held.X.y
        if getattr(held.X, "test_mask", None) is not None:
            mask = np.asarray(held.X.test_mask, dtype=bool)
    truth, predicted = np.asarray(truth)[mask], predicted[mask]
    known = np.unique(np.concatenate([np.asarray(model.classes_, dtype=truth.dtype), truth]))
    chances = np.zeros((len(truth), len(known)))
    if hasattr(model, "predict_proba"):
        given = np.asarray(model.predict_proba(held.X), dtype=np.float64)[mask]
        chances[:, np.searchsorted(known, np.asarray(model.classes_, dtype=truth.dtype))] = given
    else:
        chances[np.arange(len(truth)), np.searchsorted(known, predicted.astype(truth.dtype))] = 1.0
    return truth, predicted.astype(truth.dtype), chances, known


def classes(model: Any, held: Dataset) -> dict[str, float]:
    """Return accuracy, balanced accuracy, macro F1, ROC AUC, log-loss and calibration error."""
    from sklearn import metrics

    truth, predicted, chances, known = labelled(model, held)
    code = np.searchsorted(known, truth)
    found = {
        "accuracy": float(np.mean(truth == predicted)),
        "balanced accuracy": float(np.mean([np.mean(predicted[truth == c] == c) for c in np.unique(truth)])),
        "F1": float(metrics.f1_score(truth, predicted, average="macro", zero_division=0.0)),
        "ROC AUC": _auc(code, _ranking(model, held, chances)),
    }
    if hasattr(model, "predict_proba"):
        right = chances[np.arange(len(code)), code]
        found["log-loss"] = float(np.log(1 / np.clip(right, 1e-15, 1)).mean())
        found["calibration error"] = calibration_error(chances, code)
    return found


def label_sets(model: Any, held: Dataset) -> dict[str, float]:
    """Return F1 over all labels of all samples, its mean over the labels, and the shares of samples and labels that are right."""
    from sklearn.metrics import f1_score

    truth, found = several(model, held)
    return {
        "F1": float(f1_score(truth, found, average="micro", zero_division=0.0)),
        "macro F1": float(f1_score(truth, found, average="macro", zero_division=0.0)),
        "exact": float(np.mean((truth == found).all(1))),
        "labels right": float(np.mean(truth == found)),
    }


def several(model: Any, held: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return which labels each sample has, and which are found (n, n_labels)."""
    from corollary.data.multilabel import indicators

    found = np.asarray(model.predict(held.X)).astype(np.int64)
    return indicators(held.y, np.asarray(model.classes_)).astype(np.int64), found


def _ranking(model: Any, held: Dataset, chances: np.ndarray) -> np.ndarray:
    """Return what orders the samples for the ROC: probabilities, or else the decision function of two classes."""
    if hasattr(model, "predict_proba") or not hasattr(model, "decision_function") or chances.shape[1] != 2:
        return chances
    score = np.asarray(model.decision_function(held.X))
    return np.column_stack([-score, score]) if score.ndim == 1 else chances


def _auc(code: np.ndarray, chances: np.ndarray) -> float:
    """Return the area under the ROC of two classes, or the mean of each class against the rest."""
    from sklearn.metrics import roc_auc_score

    present = np.unique(code)
    if len(present) < 2:
        return float("nan")
    chosen = present[-1:] if chances.shape[1] == 2 else present
    return float(np.mean([roc_auc_score(code == c, chances[:, c]) for c in chosen]))


# --- numbers ---------------------------------------------------------------------------------------------


def numbers(model: Any, held: Dataset) -> dict[str, float]:
    """Return R², and root-mean-square and mean absolute error in the units of the target."""
    from sklearn.metrics import r2_score

    truth = np.asarray(held.y, dtype=np.float64)
    error = truth - np.asarray(model.predict(held.X), dtype=np.float64).reshape(truth.shape)
    return {
        "R²": float(r2_score(truth, truth - error)) if len(truth) > 1 else float("nan"),
        "RMSE": float(np.sqrt(np.mean(error**2))),
        "mean absolute error": float(np.mean(np.abs(error))),
    }


# --- groups, codes, draws --------------------------------------------------------------------------------


def groups(model: Any, held: Dataset) -> dict[str, float]:
    """Return how far groups agree with known classes."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    found = np.asarray(model.predict(held.X))
    return {
        "adjusted Rand index": float(adjusted_rand_score(held.y, found)),
        "mutual information": float(normalized_mutual_info_score(held.y, found)),
    }


def separation(model: Any, held: Dataset) -> dict[str, float]:
    """Return how far groups lie apart."""
    from sklearn.metrics import silhouette_score

    labels = np.asarray(model.predict(held.X))
    several = 1 < len(np.unique(labels)) < len(labels)
    return {"silhouette": float(silhouette_score(held.X, labels)) if several else 0.0}


def codes(model: Any, held: Dataset) -> dict[str, float]:
    """Return the share of variance that codes keep, mean over the columns."""
    from sklearn.metrics import r2_score

    X = _dense(held.X)
    again = np.asarray(model.inverse_transform(model.transform(held.X)), dtype=np.float64)
    varies = X.std(0) > 0
    return {"variance kept": float(r2_score(X[:, varies], again[:, varies]))}


def draws(model: Any, held: Dataset) -> dict[str, float]:
    """Return the Fréchet distance, precision and recall of drawn against held-out samples, and how well they are told apart.

    Rows are compared as they are, in units of their deviations, images by random convolutional features. The last is the
    share of samples whose nearest neighbour is of the same origin, as a distance from 1/2: 0 if draws cannot be told from
    data, 1/2 if they can always be, or if they are copies.
    """
    from sklearn.neighbors import NearestNeighbors

    from corollary.metrics import frechet_distance, precision_recall

    real, drawn = _compared(model, held)
    both = np.concatenate([real, drawn])
    nearest = NearestNeighbors(n_neighbors=2).fit(both).kneighbors(return_distance=False, n_neighbors=1)[:, 0]
    origin = np.arange(len(both)) < len(real)
    told = float(np.mean(origin == origin[nearest]))
    found = {"Fréchet distance": frechet_distance(real, drawn), "told from data": abs(told - 0.5)}
    if len(real) > 3:
        found["precision"], found["recall"] = precision_recall(real, drawn, 3)
    return found


def _compared(model: Any, held: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return what samples are compared by: columns in units of their deviations, or features of images."""
    from corollary.metrics import RandomFeatures, features_of

    if not image_shape(held):
        real, drawn = _dense(held.X), np.asarray(model.sample(len(held.X)), dtype=np.float64)
        scale = real.std(0) + 1e-12
        return real / scale, drawn.reshape(real.shape) / scale
    real, drawn = in_unit(held), drawn_images(model, held, len(held.X))
    features = RandomFeatures(real.shape[1])
    real, drawn = (features_of(part.astype(np.float32), features) for part in (real, drawn))
    return real, drawn


def image_shape(held: Dataset) -> tuple[int, ...]:
    """Return the shape of one image, of data that are images or rows of such; otherwise nothing."""
    return tuple(held.extra.get("image_shape") or (held.X.shape[1:] if held.kind == "image" else ()))


def in_unit(held: Dataset) -> np.ndarray:
    """Return images (n, channels, h, w) between 0 and 1: pictures by their type, rows by their largest number if above 1."""
    if held.kind == "image":
        return check_images(held.X, "compare").astype(np.float64)
    shape, X = image_shape(held), _dense(held.X)
    return (X / max(float(X.max()), 1.0)).reshape(len(X), -1, *shape[-2:])


def drawn_images(model: Any, held: Dataset, n: int) -> np.ndarray:
    """Return n draws like :func:`in_unit` of the data: what sees pictures draws them so, others in the units of what they saw."""
    real, drawn = in_unit(held), np.asarray(model.sample(n), dtype=np.float64)
    if len(getattr(model, "sample_shape_", ())) != 3:
        drawn = drawn * (real.max() / max(float(np.max(held.X)), 1e-12))
    return np.clip(drawn, 0, 1).reshape(n, *real.shape[1:])  # as a picture shows them


def _dense(X: Any) -> np.ndarray:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


# --- densities -------------------------------------------------------------------------------------------


def likelihood(model: Any, held: Dataset) -> dict[str, float]:
    """Return the mean log-likelihood of a sample in nats; of tables also in bits per dimension.

    Rows of a table are measured by :class:`~corollary.comparison.densities.DensityOfData`: with the noise of rounding
    and in the units of the data. A model that sees images as images knows their levels itself.
    """
    from corollary.comparison.densities import DensityOfData, bits_of_plain

    labels = labels_for(model, held)
    if held.kind not in ("table", "image"):
        return {"log-likelihood": float(model.score(held.X))}
    if isinstance(model, DensityOfData):
        nats = model.score(held.X)
        return {"bits per dimension": model.bits(nats), "log-likelihood": nats}
    if held.kind == "image" and hasattr(model, "bits_per_dimension"):
        bits = float(np.mean(model.bits_per_dimension(held.X, *labels)))
        return {"bits per dimension": bits, "log-likelihood": -bits * np.log(2) * np.asarray(held.X[0]).size}
    X = _dense(held.X)
    if getattr(model, "likelihood_", "") == "bernoulli" and not np.isin(X, (0, 1)).all():
        must = "a Bernoulli likelihood is a probability of zeros and ones"
        do = "`corollary compare --task density` measures it as a density."
        raise errors.value(type(model).__name__, must, "values between them", do)
    bits, nats = bits_of_plain(model, X, *labels, pixels="image_shape" in held.extra)
    return {"bits per dimension": bits, "log-likelihood": nats}


def labels_for(model: Any, held: Dataset) -> tuple[Any, ...]:
    """Return the labels of the data, for a model that is conditional on labels; nothing for any other."""
    return (held.y,) if getattr(model, "conditional", False) and held.y is not None else ()


# --- parts and texts -------------------------------------------------------------------------------------


def pixels(model: Any, held: Dataset) -> dict[str, float]:
    """Return the mean intersection over union of the classes of pixels."""
    return {"intersection over union": float(model.score(held.X, held.y))}


def parts(model: Any, held: Dataset) -> dict[str, float]:
    """Return the share of parts that are labelled rightly, and the macro F1 of their labels."""
    from sklearn.metrics import f1_score

    truth = np.concatenate([np.asarray(part.split() if isinstance(part, str) else part) for part in held.y])
    found = np.concatenate([np.asarray(part) for part in model.predict(held.X)]).astype(truth.dtype)
    return {
        "F1": float(f1_score(truth, found, average="macro", zero_division=0.0)),
        "accuracy": float(np.mean(truth == found)),
    }


def texts(model: Any, held: Dataset) -> dict[str, float]:
    """Return the share of texts that are exactly right, and of character trigrams that are (F1)."""
    said, wanted = list(model.predict(held.X)), list(held.y)
    return {
        "exact": float(np.mean([a == b for a, b in zip(said, wanted)])),
        "trigram F1": float(np.mean([_overlap(a, b) for a, b in zip(said, wanted)])),
    }


def answers(model: Any, held: Dataset) -> dict[str, float]:
    """Return the share of exact answers, and the mean overlap of their words (F1)."""
    said, wanted = list(model.predict(held.X)), list(held.y)
    return {
        "exact": float(model.score(held.X, held.y)),
        "word F1": float(
            np.mean([_overlap(str(a).split(), str(b).split(), 1) for a, b in zip(said, wanted)])
        ),
    }


def _overlap(a: Any, b: Any, n: int = 3) -> float:
    from collections import Counter

    one, two = (Counter(tuple(x[i : i + n]) for i in range(max(1, len(x) - n + 1))) for x in (a, b))
    shared = sum((one & two).values())
    return 2 * shared / (sum(one.values()) + sum(two.values()))
