"""Images: a file, or a folder with a sub-folder per class.

Grey images give ``(n, h, w)``, others ``(n, 3, h, w)``; transparency is dropped. All must have one size.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.dataset import Dataset
from corollary.data.folders import by_class
from corollary.data.limits import allow

__all__ = ["SUFFIXES", "joined", "picture", "pixels", "read_folder", "read_image"]

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".pbm", ".tif", ".tiff", ".webp")
_GREY = ("1", "L", "I", "I;16", "I;16B", "F")
_BYTES = 8  # per pixel, while it is decoded
_opening = threading.Lock()  # Pillow's own bound is a global; ours is asked in its place


def read_image(path: Path, reading: Any = ()) -> Dataset:
    """Read one image file as a data set of one."""
    return Dataset(_stack([path]), kind="image", name=path.stem, source=str(path))


def read_folder(folder: Path, reading: Any = ()) -> Dataset:
    """Read the images of a folder; the names of sub-folders are the classes."""
    files, labels = by_class(folder, SUFFIXES, "image")
    return Dataset(_stack(files), labels, "image", folder.name, source=str(folder))


def _stack(files: list[Path]) -> np.ndarray:
    decoded = [picture(file.read_bytes(), file.name) for file in files]
    return joined(decoded, [file.name for file in files], "load")


def joined(decoded: list[np.ndarray], names: Sequence[str], owner: str) -> np.ndarray:
    """Return decoded images as one array: ``(n, h, w)`` if all are grey, else ``(n, 3, h, w)``."""
    for name, image in zip(names, decoded):
        if image.shape[:2] != decoded[0].shape[:2]:
            got = f"{_size(decoded[0])} for {names[0]} and {_size(image)} for {name}"
            raise errors.value(owner, "images must all have one size", got, "Resize or crop them first.")
    if all(image.ndim == 2 for image in decoded):
        return np.stack(decoded)
    colour = [image if image.ndim == 3 else np.repeat(image[:, :, None], 3, 2) for image in decoded]
    return np.ascontiguousarray(np.stack(colour).transpose(0, 3, 1, 2))


def picture(raw: bytes, name: str) -> np.ndarray:
    """Decode an image file into uint8, ``(h, w)`` if grey and ``(h, w, 3)`` otherwise."""
    try:
        from PIL import Image
    except ImportError as error:
        raise errors.missing("load", "pillow", "images") from error
    try:
        with _opening:
            kept, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
            try:
                image = Image.open(io.BytesIO(raw))
            finally:
                Image.MAX_IMAGE_PIXELS = kept
    except Exception as error:  # whatever the bytes make Pillow raise
        raise _no_image(name, error) from error
    with image:
        allow(name, image.width * image.height * _BYTES, of=len(raw))
        try:
            return pixels(image)
        except Exception as error:
            raise _no_image(name, error) from error


def _no_image(name: str, error: Exception) -> ValueError:
    got = f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]
    return errors.value("load", f"{name} must be an image file", got)


def pixels(image: Any) -> np.ndarray:
    """Return a Pillow image as uint8, ``(h, w)`` if grey and ``(h, w, 3)`` otherwise."""
    return _grey(image) if image.mode in _GREY else np.asarray(image.convert("RGB"))


def _grey(image: Any) -> np.ndarray:
    if image.mode in ("1", "L"):
        return np.asarray(image.convert("L"))
    values = np.asarray(image).astype(np.float64)  # 16 bits or more: keep the highest eight
    return np.clip(values / (256 if values.max(initial=0) > 255 else 1), 0, 255).astype(np.uint8)


def _size(image: np.ndarray) -> str:
    return f"{image.shape[0]} x {image.shape[1]}"
