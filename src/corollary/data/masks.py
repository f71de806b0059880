"""Masks: a folder of images beside a folder of pictures whose pixels are labels, and pictures made of labels.

``images/`` and ``masks/`` (or names like them) in one folder are one data set for a segmenter: files of one name, up to the
suffix and an ending such as ``_mask``, belong together. The label of a pixel is its grey value, its index in the picture's
palette, or its colour, written ``"#rrggbb"``. Masks are scaled and cropped as their images are, by nearest neighbours, so that
no label is made up between two others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.dataset import Dataset
from corollary.data.folders import files_in
from corollary.data.images import SUFFIXES, open_picture, read_folder

__all__ = ["mask_folders", "read_masked", "write_masks"]

PICTURES = ("images", "image", "imgs", "img", "x", "inputs")
MASKS = ("masks", "mask", "labels", "label", "annotations", "segmentations", "segmentation", "y", "targets")
ENDINGS = re.compile(r"[ _-]?(mask|masks|label|labels|seg|segmentation|annotation|gt|image|img)$")
MOST = 256  # labels that masks may have


def mask_folders(folder: Path) -> tuple[Path, Path] | None:
    """Return the folder of images and that of their masks, if there are both and nothing else with images in it."""
    inner = {p.name.lower(): p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")}
    filled = {name: path for name, path in inner.items() if files_in(path, SUFFIXES)}
    pictures, masks = (next((filled[n] for n in names if n in filled), None) for names in (PICTURES, MASKS))
    if pictures is None or masks is None or len(filled) != 2:
        return None
    return pictures, masks


def read_masked(folder: Path, reading: Mapping[str, Any] | None = None) -> Dataset:
    """Read the images of a folder with their masks, (n, h, w), as the target."""
    pictures, masks = mask_folders(folder) or (folder, folder)
    found = read_folder(pictures, reading, whole=True)
    by_stem = {_stem(path): path for path in files_in(masks, SUFFIXES)}
    missing = [name for name in found.extra["files"] if _stem(Path(name)) not in by_stem]
    if missing:
        must = f"every image of {pictures.name}/ must have a mask of its name in {masks.name}/"
        do = "Name both alike, such as images/cat1.jpg and masks/cat1.png."
        raise errors.value("load", must, f"none for {len(missing)}, such as {missing[0]}", do)
    size = tuple(found.extra["reading"]["size"])
    files = [by_stem[_stem(Path(name))] for name in found.extra["files"]]
    y = _one_kind([_labels(path, size) for path in files])
    labels = np.unique(y)
    if len(labels) > MOST:
        lossy = any(path.suffix.lower() in (".jpg", ".jpeg", ".webp") for path in files)
        do = "JPEG changes grey values: save masks as PNG." if lossy else "Pixels of masks are labels."
        raise errors.value("load", f"masks must have at most {MOST} labels", len(labels), do)
    return replace(found, y=y, name=folder.name, source=str(folder))


def _stem(path: Path) -> str:
    return ENDINGS.sub("", path.stem.lower())


def _labels(path: Path, size: tuple[int, int]) -> np.ndarray:
    """Return the labels of one mask, scaled to cover a size and cropped around its centre."""
    from PIL import Image, ImageOps

    def read(image: Any) -> np.ndarray:
        image = ImageOps.exif_transpose(image)
        if image.mode in ("LA", "PA", "RGBA", "RGBa", "La"):
            image = image.convert("RGB")
        if (image.height, image.width) != size:
            image = ImageOps.fit(image, (size[1], size[0]), method=Image.Resampling.NEAREST)
        values = np.asarray(image)
        if values.ndim == 3 and (values == values[:, :, :1]).all():
            values = values[:, :, 0]
        return values.astype(np.int64)

    return open_picture(path.read_bytes(), path.name, read)  # type: ignore[no-any-return]


def _one_kind(masks: Sequence[np.ndarray]) -> np.ndarray:
    """Return masks as one array: numbers, or colours by name if one of them has colours."""
    if all(mask.ndim == 2 for mask in masks):
        return np.stack(masks)
    colours = np.stack([m if m.ndim == 3 else np.repeat(m[:, :, None], 3, 2) for m in masks])
    codes = colours @ np.array([65536, 256, 1])
    kinds, places = np.unique(codes, return_inverse=True)
    return np.array([f"#{code:06x}" for code in kinds])[places].reshape(codes.shape)


# --- pictures of labels ----------------------------------------------------------------------------------


def write_masks(folder: Path, names: Sequence[str], masks: np.ndarray, classes: np.ndarray) -> list[Path]:
    """Write masks (n, h, w) of labels as PNG files that :func:`read_masked` reads as they were.

    Whole numbers up to 255 are indices into a palette of colours, so that they can be looked at; colours ``"#rrggbb"`` are
    those colours; other labels are numbered in the order of ``classes``, which ``classes.txt`` then lists.
    """
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    classes = np.asarray(classes)
    numbers = classes.dtype.kind in "iub" and classes.min() >= 0 and classes.max() <= 255
    coloured = classes.dtype.kind in "UO" and all(re.fullmatch("#[0-9a-f]{6}", str(c)) for c in classes)
    if not numbers and not coloured:
        lines = [f"{i} {label}" for i, label in enumerate(classes.tolist())]
        (folder / "classes.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    written = []
    for name, mask in zip(names, masks):
        codes = np.searchsorted(classes, mask)
        if coloured:
            table = np.array([[int(str(c)[i : i + 2], 16) for i in (1, 3, 5)] for c in classes], np.uint8)
            image = Image.fromarray(table[codes])
        else:
            image = Image.fromarray((mask if numbers else codes).astype(np.uint8))
            image.putpalette(_palette())
        path = folder / Path(name).with_suffix(".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
        written.append(path)
    return written


def _palette() -> list[int]:
    """Return 256 colours, black first, the others far from those before them."""
    from colorsys import hsv_to_rgb

    shades = [(0.0, 0.0, 0.0)]
    shades += [hsv_to_rgb(i * 0.618034 % 1, 0.65 + 0.35 * (i % 2), 1 - 0.2 * (i % 3)) for i in range(255)]
    return [round(255 * part) for shade in shades for part in shade]
