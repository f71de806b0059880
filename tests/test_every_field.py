"""Every field of Training, alone, on every gradient model: it trains, or the message says why it cannot."""

import numpy as np
import pytest
from sklearn.base import clone

from corollary import catalog
from corollary.engine.training import DEFAULTS
from corollary.gradient import GradientTrained
from corollary.testing.checks import sample_data

MODELS = {
    cls.__name__: cls
    for cls in (entry.load() for entry in catalog.entries(kind="estimator"))
    if issubclass(cls, GradientTrained)
    and cls.__name__ != "MultiTaskNet"  # not tried yet: targets of many kinds in one
}


class Mine:
    """Somebody's own regulariser with all hooks."""

    def __init__(self):
        self.calls = []

    def on_batch(self, batch, module, rng):
        self.calls.append("batch")
        return batch

    def on_loss(self, loss, module, batch):
        self.calls.append("loss")
        return 1.0 * loss

    def on_gradient(self, vectors):
        self.calls.append("gradient")

    def after_step(self, vectors):
        self.calls.append("step")


PLANS = {
    "accumulate": {"accumulate": 2},
    "adversary": {"adversary": 0.1},
    "augment": {"augment": {"flip": True}},
    "average": {"average": "polyak"},
    "clip_norm": {"clip_norm": 0.5},
    "curriculum": {"curriculum": "loss"},
    "curriculum self-paced": {"curriculum": "self-paced"},
    "early_stopping": {"early_stopping": True, "validation_fraction": 0.4, "patience": 1},
    "gradient_noise": {"gradient_noise": 0.01},
    "input_noise": {"input_noise": 0.1},
    "l1": {"l1": 0.01},
    "label_smoothing": {"label_smoothing": 0.1},
    "learning_rate": {"learning_rate": 1e-4},
    "mixup": {"mixup": 0.2},
    "norm_ball": {"norm_ball": 0.5},
    "optimizer": {"optimizer": "rmsprop"},
    "optimizer_options": {"optimizer": "sgd", "learning_rate": 1e-4, "optimizer_options": {"momentum": 0.5}},
    "regularisers": {},
    "schedule": {"schedule": "cosine", "warmup": 2},
    "shuffle": {"shuffle": False},
    "spectral": {"spectral": 0.01},
    "spectral jacobian": {"spectral": {"rate": 0.01, "of": "jacobian"}},
    "target_noise": {"target_noise": 0.1},
    "weight_decay": {"weight_decay": 0.01},
    "weight_noise": {"weight_noise": 0.01},
    **{
        f"optimizer {name}": {"optimizer": name}
        for name in ("sam", "svrg", "extragradient", "lbfgs", "newton")
    },
}
LOOKS = [name for name in PLANS if name.startswith("optimizer ")]
SLOW = {
    "ImageClassifier",
    "PatchPretrainer",
    "PointNet",
    "PointNetSegmenter",
    "RotationPretrainer",
    "Segmenter",
}
# Models whose loss is no comparison of an output with a target: bounds, games, densities, masked and contrastive losses.
FREE = {
    "BERT", "ContrastivePredictiveCoding", "DDPM", "ELMo", "Flow", "GAN", "LinkPredictor", "PatchPretrainer", "PixelCNN",
    "RotationPretrainer", "ScoreModel", "SequenceForecaster", "VAE",
}  # fmt: skip
# Models that read numbers of words, levels, nodes or edges: nothing can be added to them.
CODES = {
    "BERT", "BERTAnswerer", "BERTClassifier", "BERTRegressor", "BERTTagger", "ELMo", "GPT", "GraphClassifier",
    "LinkPredictor", "MemoryNetwork", "NodeClassifier", "PixelCNN", "Seq2Seq", "SequenceTagger", "TextCNN", "Transformer",
    "WaveNet",
}  # fmt: skip
NO_CLASSES = {
    "Autoencoder",
    "BERTAnswerer",
    "BERTRegressor",
    "DeepSetsRegressor",
    "LinearAutoencoder",
    "MLPRegressor",
}
RAGGED = {"DeepSetsClassifier", "DeepSetsRegressor", "PointNet", "PointNetSegmenter", "SequenceClassifier"}
IMAGES = {
    "ImageClassifier",
    "PatchPretrainer",
    "RotationPretrainer",
    "Segmenter",
}  # of those whose sample data are images
COUNTED = {
    "BERTClassifier",
    "TextCNN",
}  # beside the words these read scores of counted phrases, which are real numbers
REFUSED = {
    "adversary": FREE | CODES - COUNTED,
    "augment": set(MODELS) - IMAGES,
    "curriculum": FREE,
    "curriculum self-paced": FREE,
    "input_noise": CODES - COUNTED,
    "label_smoothing": FREE | NO_CLASSES,
    "mixup": FREE | CODES | RAGGED,
    "spectral jacobian": FREE | CODES - COUNTED,
    "target_noise": FREE | {"BERTAnswerer"},
    **{name: {"GAN"} for name in ("accumulate", "early_stopping", *LOOKS)},
}
REASON = (
    r"needs (a model whose loss compares|inputs of real numbers|images; got|samples of one size|classes; got|a loss that)"
    r"|takes an optimiser that looks at each batch once, and one player|players must look at each batch once"
)


def test_every_field_is_tried():
    fields = {name.split()[0] for name in PLANS} | {key for plan in PLANS.values() for key in plan}
    beside = {"batch_size", "compile", "epochs", "warm_start"}  # in the contract, and test_regularisers
    assert fields | beside == {*DEFAULTS}
    assert {name for refused in REFUSED.values() for name in refused} <= {*MODELS}


@pytest.mark.parametrize("name", MODELS)
def test_each_field_alone_trains_or_says_why_not(name):
    model = MODELS[name](**MODELS[name]._test_params()).set_params(random_state=0)
    X, y = model._test_data() if hasattr(model, "_test_data") else sample_data(model.input)
    given = model.training
    for field, plan in PLANS.items():
        if name in SLOW and field in LOOKS:
            continue
        mine = Mine()
        fields = {"epochs": 1, **plan} if field != "regularisers" else {"epochs": 1, "regularisers": (mine,)}
        model.set_params(training=clone(given)).set_params(
            **{f"training__{key}": value for key, value in fields.items()}
        )
        data = model._data(X, y, None)
        if name in REFUSED.get(field, ()):
            with pytest.raises(ValueError, match=f"{name}: .*({REASON})"):
                model._learner(data).step()
            continue
        learner = model._learner(data)
        before = [p.detach().clone() for p in learner.module.parameters()]
        metrics = learner.step()
        assert metrics and np.isfinite([*metrics.values()]).all(), field
        after = [*learner.module.parameters()]
        moved = any(not np.array_equal(a, b.detach()) for a, b in zip(before, after))
        assert moved or field in LOOKS, field  # a line search may find nothing better
        if field == "norm_ball":
            first = learner.players[0]  # of a game the others may not have moved yet
            assert sum(float(p.detach().square().sum()) for p in first.matrices) <= 0.25 * 1.0001
        if field == "regularisers":
            assert {*mine.calls} == {"batch", "loss", "gradient", "step"}
