"""A user's file, for ``make lint``: a type checker must know the public names and their classes."""

from typing import TYPE_CHECKING, assert_type

if TYPE_CHECKING:  # read by a type checker, never run
    import corollary
    from corollary import MLPClassifier, Run, Training, load, metrics, nn

    model = MLPClassifier(training=Training(epochs=3))
    assert_type(model, corollary.networks.mlp.MLPClassifier)
    assert_type(Run(progress=False).world, int)
    assert_type(metrics.frechet_distance([[0.0], [1.0]], [[0.0], [1.0]]), float)
    residual: type[nn.Residual] = corollary.Residual
    missing = corollary.NoSuchThing  # type: ignore[attr-defined]
    again = load("model.safetensors")
