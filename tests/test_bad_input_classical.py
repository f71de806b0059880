"""What every classical system makes of input that is hardly usable: a clear error, or the behaviour it documents."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from corollary import catalog
from corollary.errors import CorollaryWarning

CHAPTERS = ("connectionism", "linear", "completion", "mixtures", "embeddings")
ENTRIES = {e.name: e for chapter in CHAPTERS for e in catalog.entries(kind="estimator", chapter=chapter)}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def named(*inputs, role=None):
    """Return the names of the systems that take such input, and play this role if one is given."""
    return [n for n, e in ENTRIES.items() if e.input in inputs and (role is None or role in e.roles)]


def make(name, **params):
    cls = ENTRIES[name].load()
    small = {**(cls._test_params() if hasattr(cls, "_test_params") else {}), **params}
    if "random_state" in cls().get_params():
        small.setdefault("random_state", 0)
    return cls(**small)


def table(n=12, d=4, seed=0):
    """Return rows of numbers above zero, which every system takes, and labels."""
    return np.abs(np.random.default_rng(seed).normal(size=(n, d))), np.arange(n) % 2


def answers(model, X):
    """Return everything a table model says about rows."""
    names = ("predict", "predict_proba", "transform", "score_samples", "recall")
    return [np.asarray(getattr(model, name)(X)) for name in names if hasattr(model, name)]


def assert_finite(model, X):
    found = answers(model, X)
    assert found
    assert all(np.isfinite(part).all() for part in found)


# --- tables ----------------------------------------------------------------------------------------------

NEED_TWO_CLASSES = named("table", role="classifier")
NEED_TWO_ROWS = [
    "PCA", "ProbabilisticPCA", "LinearAutoencoder", "Autoencoder", "DeepLinearNetwork", "GaussianMixture",
    "DirichletProcessMixture", "IndianBuffetProcess",
]  # fmt: skip


@pytest.mark.parametrize("name", named("table"))
def test_a_single_sample(name):
    X, y = table(1)
    if name in NEED_TWO_CLASSES:
        with pytest.raises(
            ValueError, match=f"{name}: y must have at least two classes; got the one class 0"
        ):
            make(name).fit(X, y)
    elif name in NEED_TWO_ROWS:
        with pytest.raises(ValueError, match=rf"1 sample\(s\) .* while a minimum of 2 is required by {name}"):
            make(name).fit(X, y)
    elif name == "TruncatedSVD":
        with pytest.raises(ValueError, match=r"at most min\(n_samples, n_features\)=1; got 2"):
            make(name).fit(X)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CorollaryWarning)  # a pattern without a bit below the threshold
            assert_finite(make(name).fit(X, y), X)


@pytest.mark.parametrize("name", named("table"))
def test_a_constant_feature(name):
    X, y = table()
    X[:, 1] = 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CorollaryWarning)
        assert_finite(make(name).fit(X, y), X)


@pytest.mark.parametrize("name", sorted({*named("table")} - {"PCA"}))
def test_constant_features_alone(name):
    X, y = np.ones((12, 4)), np.arange(12) % 2
    if name == "DeepLinearNetwork":
        with pytest.raises(ValueError, match="some feature must vary; got constant features alone"):
            make(name).fit(X, y)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CorollaryWarning)
        assert_finite(make(name).fit(X, y), X)


def test_the_shares_of_no_variance_are_zero():
    model = make("PCA").fit(np.ones((12, 4)))
    assert (model.explained_variance_ratio_ == 0).all()
    assert np.isfinite(model.transform(np.ones((3, 4)))).all()


@pytest.mark.parametrize("name", named("table"))
def test_a_column_that_is_all_missing(name):
    X, y = table()
    X[:, 1] = np.nan
    message = {
        "NMF": "NMF: every column must have a known entry; got only NaN in column 1. Leave it out",
        "PCA": "PCA: every column must have at least one value that is not NaN; got none in column 1",
        "ProbabilisticPCA": "every column must have at least one value that is not NaN; got none in column 1",
    }.get(name, f"(?s)Input X contains NaN.*{name} does not accept missing values")
    with pytest.raises(ValueError, match=message):
        make(name).fit(X, y)


@pytest.mark.parametrize("name", named("table"))
def test_an_empty_row(name):
    X, y = table()
    X[3] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CorollaryWarning)
        assert_finite(make(name).fit(X, y), X)


RANKS = {
    "PCA": r"n_components=5 must be between 0 and min\(n_samples, n_features\)=4",
    "ProbabilisticPCA": r"n_components must be at most min\(n_samples, n_features\)=4; got 5",
    "FactorAnalysis": "n_components must be at most n_features=4; got 5",
    "LinearAutoencoder": "latent must be at most n_features = 4; got 5",
    "Autoencoder": "latent must be at most n_features = 4; got 5",
    "TruncatedSVD": r"n_components\(5\) must be <= n_features\(4\)",
}
MANY = {"Mixture": "at least n_components=13", "GaussianMixture": "n_components = 13, n_samples = 12"}


def rank_name(name):
    return next((p for p in ("n_components", "latent") if p in ENTRIES[name].load()().get_params()), None)


@pytest.mark.parametrize("name", [n for n in named("table") if rank_name(n)])
def test_a_rank_above_the_matrix(name):
    X, y = table()
    rank = rank_name(name)
    if name in RANKS:
        with pytest.raises(ValueError, match=RANKS[name]):
            make(name, **{rank: 5}).fit(X, y)
    elif name in MANY:
        with pytest.raises(ValueError, match=MANY[name]):
            make(name, **{rank: 13}).fit(X, y)
    else:  # hidden units, topics and parts may be more than the features
        assert_finite(make(name, **{rank: 5}).fit(X, y), X)


# --- counts ----------------------------------------------------------------------------------------------

COUNTS = ["LatentDirichletAllocation", "NMF", "PLSA"]


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_negative_counts_are_refused(name, form):
    X, _ = table()
    X[2, 3] = -1
    with pytest.raises(ValueError, match=f"Negative values in data passed to {name}"):
        make(name).fit(form(X))
    model = make(name).fit(form(np.abs(X)))
    with pytest.raises(ValueError, match=f"Negative values in data passed to {name}"):
        model.transform(form(X))


@pytest.mark.parametrize("name", ["Mixture", "DirichletProcessMixture"])
@pytest.mark.parametrize(
    ("component", "message"),
    [
        ("poisson", "poisson data must be counts; got -1"),
        ("exponential", "exponential data must not be negative; got minimum -1"),
        ("categorical", "categorical data must be whole numbers from 0; got -1"),
        ("bernoulli", "bernoulli data must be 0 or 1; got -1"),
    ],
)
def test_negative_counts_are_refused_by_mixtures(name, component, message):
    X = np.ones((6, 2))
    model = make(name, component=component).fit(X)
    X[2, 1] = -1
    with pytest.raises(ValueError, match=f"{name}: {message}"):
        make(name, component=component).fit(X)
    with pytest.raises(ValueError, match=f"{name}: {message}"):
        model.score_samples(X)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_empty_documents_and_unseen_words(name, form):
    X = np.random.default_rng(0).poisson(1.0, (20, 6)).astype(float)
    X[4] = 0
    X[:, 5] = 0  # a word of the vocabulary that no document has
    model = make(name).fit(form(X))
    assert np.isfinite(model.components_).all()
    codes = model.transform(form(X))
    assert np.isfinite(codes).all()
    if name == "NMF":
        assert (codes[4] == 0).all()
    else:  # shares of topics: without words, those that the prior has
        np.testing.assert_allclose(codes.sum(axis=1), 1, rtol=1e-6)


def test_counts_that_are_all_zero():
    with pytest.raises(ValueError, match="PLSA: some document must have words; got counts that are all zero"):
        make("PLSA").fit(np.zeros((5, 3)))
    for name in ("LatentDirichletAllocation", "NMF"):  # as scikit-learn's: topics of the prior, parts of zero
        assert np.isfinite(make(name).fit(np.zeros((5, 3))).components_).all()


# --- ratings ---------------------------------------------------------------------------------------------


def ratings():
    """Return ratings in which user 3 has rated nothing and nobody has rated item 2."""
    dense = np.random.default_rng(0).uniform(1, 5, (12, 8)) * (np.random.default_rng(1).random((12, 8)) < 0.7)
    dense[3] = dense[:, 2] = 0
    return sparse.csr_matrix(dense)


@pytest.mark.parametrize("name", named("ratings"))
def test_users_and_items_without_ratings(name):
    R = ratings()
    model = make(name).fit(R)
    found = model.predict([[3, 0], [0, 2], [3, 2]])
    assert np.isfinite(found).all()
    assert np.isfinite(model.score(R))
    if name in ("ALS", "BiasBaseline"):
        assert found[2] == pytest.approx(R.data.mean())  # nothing but the mean is known
    else:
        np.testing.assert_allclose(found, 0, atol=1e-9)  # no singular vector reaches them


@pytest.mark.parametrize("name", named("ratings"))
def test_duplicate_ratings(name):
    pairs = ([0, 0, 1, 2, 2, 1], [0, 0, 1, 2, 0, 2])
    twice = sparse.coo_matrix(([1.0, 2.0, 5.0, 4.0, 3.0, 2.0], pairs), shape=(3, 3))
    once = sparse.coo_matrix(([2.0, 5.0, 4.0, 3.0, 2.0], ([0, 1, 2, 2, 1], [0, 1, 2, 0, 2])), shape=(3, 3))
    with pytest.warns(CorollaryWarning, match=rf"{name}: 1 ratings repeat a \(user, item\) pair; the last"):
        model = make(name).fit(twice)
    every = [[i, j] for i in range(3) for j in range(3)]
    np.testing.assert_array_equal(model.predict(every), make(name).fit(once).predict(every))


@pytest.mark.parametrize("name", named("ratings"))
def test_no_ratings_and_one(name):
    with pytest.raises(
        ValueError, match=rf"{name}: there must be at least one rating; got none in shape \(5, 4\)"
    ):
        make(name).fit(sparse.csr_matrix((5, 4)))
    smallest = {"ALS": {"n_components": 1}, "SingularValueProjection": {"rank": 1}}.get(name, {})
    model = make(name, **smallest).fit(np.array([[3.0]]))
    assert np.isfinite(model.predict([[0, 0]])).all()


@pytest.mark.parametrize("name", named("ratings"))
def test_constant_ratings(name):
    model = make(name).fit(np.full((6, 5), 3.0))
    assert np.isfinite(model.predict([[0, 0], [5, 4]])).all()
    assert model.score(np.full((6, 5), 3.0)) <= 0


@pytest.mark.parametrize(
    ("name", "parameter"),
    [("SingularValueProjection", "rank"), ("SingularValueThresholding", "max_rank")],
)
def test_a_rank_above_the_ratings(name, parameter):
    message = rf"{name}: {parameter} must be at most the smaller side of the \w+ \(8\); got 9"
    with pytest.raises(ValueError, match=message):
        make(name, **{parameter: 9}).fit(ratings())


def test_negative_counts_of_implicit_feedback():
    with pytest.raises(ValueError, match="ALS: implicit feedback must be non-negative; got minimum -"):
        make("ALS", feedback="implicit").fit(-ratings())
    model = make("ALS", feedback="implicit").fit(ratings())
    with pytest.raises(ValueError, match="ALS: implicit feedback must be non-negative; got minimum -"):
        model.score(-ratings())


# --- words -----------------------------------------------------------------------------------------------

TEXTS = ["a b c a b", "", "b c a", "   "] * 5


@pytest.mark.parametrize("name", named("text"))
def test_empty_texts_say_nothing(name):
    model, full = make(name).fit(TEXTS), make(name).fit([text for text in TEXTS if text.strip()])
    assert set(model.words_) == {"a", "b", "c"}
    assert model.vectors_.shape == full.vectors_.shape
    assert np.isfinite(model.vectors_).all()
    with pytest.raises(ValueError, match=f"{name}: some document must have words; got 2 empty ones"):
        make(name).fit(["", ""])


@pytest.mark.parametrize("name", named("text"))
def test_unknown_words(name):
    model = make(name).fit(TEXTS)
    with pytest.raises(
        KeyError, match=f"{name}: no word named 'zebra'. Closest: 'a', 'b', 'c'. Lower min_count"
    ):
        model.most_similar("zebra")
    # of a text only the known words count, and a text without any is the zero vector
    codes = model.transform([["a", "zebra"], ["a"], ["zebra"]])
    np.testing.assert_allclose(codes[0], codes[1])
    assert (codes[2] == 0).all()


@pytest.mark.parametrize("name", named("text"))
def test_too_few_words(name):
    for texts, got in (
        (["a", "b"], "0 of 2 words"),
        (["a b a b c a b"], "0 of 3"),
        (["a a a a a a"], "1 of 1"),
    ):
        with pytest.raises(
            ValueError, match=f"{name}: at least two words must occur min_count=5 times; got {got}"
        ):
            make(name).fit(texts)


def test_a_dimension_above_the_vocabulary():
    with pytest.raises(ValueError, match=r"dimension must be at most the number of words \(3\); got 50"):
        make("CooccurrenceEmbedding", dimension=50).fit(TEXTS)
    for name in ("SkipGram", "GloVe"):  # trained vectors may have more coordinates than there are words
        assert np.isfinite(make(name, dimension=5).fit(TEXTS).vectors_).all()
