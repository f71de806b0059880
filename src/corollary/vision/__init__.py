"""Images: nets at their published sizes and at small ones, classification and segmentation.

Names are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "AlexNet": "alexnet",
    "DenseNet": "densenet",
    "GoogLeNet": "googlenet",
    "ImageClassifier": "classifier",
    "LeNet5": "lenet",
    "ResNet": "resnet",
    "SegFormer": "segformer",
    "Segmenter": "segmenter",
    "UNet": "unet",
    "VGG": "vgg",
    "ViT": "vit",
}

__all__ = sorted(_WHERE)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"corollary.vision.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'corollary.vision' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
