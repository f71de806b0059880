"""What was handed to ``diagnose`` and cannot be used is said; and measurements print in a few lines."""

import pytest
import torch
from torch import nn

from corollary import diagnose

X = torch.randn(120, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] + X[:, 1] > 0).long()


def net(inputs=6):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, 2))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be a positive number of rows; got 0"),
        ({"batch_size": "32"}, ValueError, "batch_size must be a positive number of rows; got '32'"),
        ({"history": "loss"}, TypeError, "history must be a dict per epoch with \"loss\"; got 'loss'"),
        ({"history": 3}, TypeError, "history must be a dict per epoch"),
    ],
)
def test_settings_that_are_none_are_refused(options, error, match):
    with pytest.raises(error, match=match):
        diagnose(net(), (X, Y), **options)


def test_lazy_layers_must_have_been_called():
    with pytest.raises(ValueError, match="got lazy layers without any. Call it once"):
        diagnose(nn.Sequential(nn.LazyLinear(4)), (X, Y))


@pytest.mark.parametrize(
    ("what", "options"),
    [
        ("history", {"history": [{"epoch": 1, "Loss": 2.0}]}),
        ("initial", {"initial": {"foo": torch.zeros(2)}}),
        ("initial", {"initial": net(5).state_dict()}),
        ("validation", {"validation": X + 0.01}),
    ],
)
def test_what_was_not_used_is_said(what, options):
    report = diagnose(net(), (X, Y), loss="cross_entropy", time_limit=5, **options)
    (said,) = [f.said for f in report.findings if f.cause == what]
    assert what in said
    assert not report.unmeasured


def test_a_summary_of_a_scripted_module_asks_for_the_one_it_was_made_from():
    with pytest.warns(DeprecationWarning):
        scripted = torch.jit.script(net())
    with pytest.raises(TypeError, match="got one that was scripted or traced. Pass the module"):
        diagnose.summary(scripted, X)


@pytest.mark.parametrize(
    "name", ["hessian", "gradient_noise", "sharpness", "calibration", "memorisation", "loss_surface"]
)
def test_a_measurement_prints_its_numbers_in_a_few_lines(name):
    found = getattr(diagnose, name)(net(), (X, Y))
    lines = str(found).splitlines()
    assert lines[0] == type(found).__name__
    assert len(lines) == len(found) + 1 < 12
    assert max(map(len, lines)) < 120


def test_an_encoder_and_decoder_of_transformers_reads_the_labels_before():
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 20, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    model = transformers.T5ForConditionalGeneration(
        transformers.T5Config(**sizes, decoder_start_token_id=0)
    ).eval()
    ids = torch.randint(2, 20, (60, 5), generator=torch.Generator().manual_seed(0))
    report = diagnose(model, {"input_ids": ids, "labels": ids.flip(1)}, time_limit=3)
    assert not report.uncalled
    with torch.no_grad():
        loss = float(model(input_ids=ids, labels=ids.flip(1)).loss)
    assert report.measurements["train loss"] == pytest.approx(loss, rel=1e-4)
