"""The nets by name, and how one is made for images of a given shape."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from torch import nn

from corollary.errors import kind, unknown, value
from corollary.vision.net import is_small

__all__ = ["CLASSIFIERS", "NETS", "SEGMENTERS", "build", "named"]

# Name -> module, class and what the name fixes. Short names choose the depth from the images' size.
NETS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "alexnet": ("alexnet", "AlexNet", {}),
    "densenet": ("densenet", "DenseNet", {"depth": "by size"}),
    **{f"densenet{d}": ("densenet", "DenseNet", {"depth": d}) for d in (121, 161, 169, 201)},
    "googlenet": ("googlenet", "GoogLeNet", {}),
    "inception": ("googlenet", "GoogLeNet", {}),
    "lenet": ("lenet", "LeNet5", {}),
    "lenet5": ("lenet", "LeNet5", {}),
    "resnet": ("resnet", "ResNet", {"depth": "by size"}),
    **{f"resnet{d}": ("resnet", "ResNet", {"depth": d}) for d in (18, 34, 50, 101, 152)},
    "segformer": ("segformer", "SegFormer", {}),
    **{f"segformer-b{i}": ("segformer", "SegFormer", {"layout": f"b{i}"}) for i in range(6)},
    "unet": ("unet", "UNet", {}),
    "vgg": ("vgg", "VGG", {"depth": 11}),
    **{f"vgg{d}": ("vgg", "VGG", {"depth": d}) for d in (11, 13, 16, 19)},
    "vit": ("vit", "ViT", {}),
    **{f"vit-{s}": ("vit", "ViT", {"preset": s}) for s in ("nano", "tiny", "small", "base", "large")},
}
BY_SIZE: dict[str, Any] = {"DenseNet": ((6, 6, 6), 121), "ResNet": ((1, 1, 1, 1), 18)}
SEGMENTERS = {name for name in NETS if NETS[name][0] in ("segformer", "unet")}
CLASSIFIERS = set(NETS) - SEGMENTERS


def named(net: Any, known: set[str], owner: str) -> str:
    """Return the name of a net as it is known, whatever its case.

    >>> named("ResNet50", CLASSIFIERS, "ImageClassifier")
    'resnet50'
    """
    if not isinstance(net, str):
        given = getattr(net, "__name__", repr(net))
        near = next((name for name in NETS if NETS[name][1] == given and name in known), "resnet18")
        raise kind(owner, "net must be a name", given, f"Use net={near!r}, and options= for its arguments.")
    if net.lower() not in known:
        raise unknown(owner, "net", net, known)
    return net.lower()


def build(name: str, shape: tuple[int, int, int], n_classes: int, **options: Any) -> nn.Module:
    """Return an untrained net for images (c, h, w); options that are None are left to the net.

    >>> build("resnet18", (1, 28, 28), 10).head[-1]
    Linear(in_features=128, out_features=10, bias=True)
    """
    if name not in NETS:
        raise unknown("build", "net", name, NETS)
    channels, h, w = shape
    module, cls, fixed = NETS[name]
    make = getattr(import_module(f"corollary.vision.{module}"), cls)
    if fixed.get("depth") == "by size":
        small, large = BY_SIZE[cls]
        fixed = {"depth": small if is_small((h, w)) else large}
    given = {key: option for key, option in options.items() if option is not None}
    known = set(inspect.signature(make).parameters) - {"channels", "n_classes", "size"}
    if not known.issuperset(given):
        must = f"options must be among {', '.join(sorted(known))}" if known else "this net has no options"
        raise value(f"net={name!r}", must, ", ".join(sorted(set(given) - known)), "Leave it out.")
    return make(channels=channels, n_classes=n_classes, size=(h, w), **{**fixed, **given})
