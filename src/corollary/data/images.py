"""Images: a file, or a folder with a sub-folder per class.

Grey images give ``(n, h, w)``, others ``(n, 3, h, w)``. Photographs are turned as their camera says, transparency is laid over
white, palettes are looked up. 8 bits give uint8; more give uint16 (or float), whose one scale a model learns and keeps. Where
sizes differ, every image is scaled to cover the commonest size (or the median one, if no size is common) and cropped around
its centre. A file that cannot be read is left out, unless most cannot. A folder larger than ``Limits.memory`` becomes a
source (:class:`corollary.data.sources.ImageFolder`), whose images are decoded as batches need them.
"""

from __future__ import annotations

import io
import re
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.dataset import Dataset
from corollary.data.folders import by_class, check_readable, names_below, readable
from corollary.data.limits import allow, current

__all__ = [
    "SUFFIXES",
    "fitted_to",
    "in_depth",
    "joined",
    "levels_of",
    "open_picture",
    "picture",
    "pixels",
    "read_folder",
    "read_image",
]

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".pbm", ".tif", ".tiff", ".webp")
_DEEP = ("I", "I;16", "I;16B", "I;16L", "I;16N", "F")  # modes of more than 8 bits
_SIDE = 256  # the longest side that images of different sizes get
_BYTES = 8  # per pixel, while it is decoded
_opening = threading.Lock()  # Pillow's own bound is a global; ours is asked in its place


def read_image(path: Path, reading: Mapping[str, Any] | None = None) -> Dataset:
    """Read one image file as a data set of one."""
    return _dataset([path], None, path, path.parent, reading or {})


def read_folder(folder: Path, reading: Mapping[str, Any] | None = None, whole: bool = False) -> Dataset:
    """Read the images of a folder; the names of sub-folders are the classes, unless the folder is ``whole``."""
    files, labels = by_class(folder, SUFFIXES, "image")
    if whole:
        labels = None
    return _dataset(files, labels, folder, folder, reading or {})


def _dataset(files: list[Path], labels: Any, path: Path, root: Path, reading: Mapping[str, Any]) -> Dataset:
    sizes, broken = readable(files, lambda file: size_of(file.read_bytes(), file.name))
    size = tuple(reading.get("size") or _common(list(sizes.values())))
    if len(files) > 1 and 3 * size[0] * size[1] * len(sizes) > current().in_memory:
        return _on_demand(files, labels, path, size, broken, [*sizes])
    decoded, late = readable([*sizes], lambda file: fitted_to(file.read_bytes(), file.name, size))
    check_readable(path.name, len(files), {**broken, **late}, "images")
    fitted = [file for file in decoded if sizes[file] != size]
    if fitted and len(files) > 1:
        text = f"load: {len(fitted)} of {len(decoded)} images of {path.name} are scaled and cropped to {size[0]} x {size[1]}."
        warnings.warn(text, errors.CorollaryWarning, stacklevel=2)
    X = joined([*decoded.values()], [file.name for file in decoded], "load", reading.get("channels"))
    learned = {"size": list(size), "channels": 1 if X.ndim == 3 else X.shape[1]}
    kept = [file in decoded for file in files]
    extra = {"files": names_below(root, decoded), "reading": learned}
    extra |= {"skipped": names_below(root, {**broken, **late})} if len(decoded) < len(files) else {}
    y = None if labels is None else labels[kept]
    return Dataset(X, y, "image", path.stem if path.is_file() else path.name, source=str(path), extra=extra)


def _on_demand(
    files: list[Path],
    labels: Any,
    path: Path,
    size: tuple[int, int],
    broken: dict[Path, str],
    good: list[Path],
) -> Dataset:
    """Return the images of a folder that is larger than memory, decoded as they are asked for."""
    from corollary.data.sources import ImageFolder

    check_readable(path.name, len(files), broken, "images")
    y = None if labels is None else labels[[file not in broken for file in files]]
    X = ImageFolder(path, size, files=good, crop=True)
    needed = 3 * size[0] * size[1] * len(good) / 2**30
    text = f"load: the {len(good)} images of {path.name} would take {needed:.1f} GB; they are decoded as batches need them."
    do = "Models that read sources take them; raise Limits(memory=) to hold them in memory."
    warnings.warn(f"{text} {do}", errors.CorollaryWarning, stacklevel=3)
    extra = {
        "files": names_below(path, good),
        "reading": {"size": list(size), "channels": X.shape[1]},
        **({"skipped": names_below(path, broken)} if broken else {}),
    }
    return Dataset(X, y, "image", path.name, source=str(path), extra=extra)


def _common(sizes: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the size of at least half of the images, or else the median one, no side longer than :data:`_SIDE`."""
    if not sizes:
        return (1, 1)
    size, often = Counter(sizes).most_common(1)[0]
    if 2 * often >= len(sizes):
        return size
    height, width = np.median(np.array(sizes), axis=0)
    shrink = min(1.0, _SIDE / max(height, width))
    return max(1, round(height * shrink)), max(1, round(width * shrink))


def joined(
    decoded: list[np.ndarray], names: Sequence[str], owner: str, channels: int | None = None
) -> np.ndarray:
    """Return decoded images as one array: ``(n, h, w)`` if all are grey, else ``(n, 3, h, w)``, in one depth."""
    for name, image in zip(names, decoded):
        if image.shape[:2] != decoded[0].shape[:2]:
            got = f"{_size(decoded[0])} for {names[0]} and {_size(image)} for {name}"
            raise errors.value(owner, "images must all have one size", got, "Resize or crop them first.")
    decoded = _one_depth(decoded)
    if channels == 1 or (channels is None and all(image.ndim == 2 for image in decoded)):
        return np.stack([image if image.ndim == 2 else _luminance(image) for image in decoded])
    colour = [image if image.ndim == 3 else np.repeat(image[:, :, None], 3, 2) for image in decoded]
    return np.ascontiguousarray(np.stack(colour).transpose(0, 3, 1, 2))


def _one_depth(decoded: list[np.ndarray]) -> list[np.ndarray]:
    """Return images of one type: beside deeper ones, 8 bits are spread over all 16."""
    types = {image.dtype for image in decoded}
    deepest = np.uint16 if types <= {np.dtype(np.uint8), np.dtype(np.uint16)} else np.float32
    return decoded if len(types) == 1 else [in_depth(image, np.dtype(deepest)) for image in decoded]


def in_depth(image: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return an image in another type, white as white.

    >>> in_depth(np.array([[0, 255]], np.uint8), np.dtype(np.uint16)).tolist()
    [[0, 65535]]
    """
    if image.dtype == dtype:
        return image
    full = {np.dtype(np.uint8): 255, np.dtype(np.uint16): 65535}
    values = image / full.get(image.dtype, 1) * full.get(dtype, 1)
    return (np.round(values) if dtype.kind == "u" else values).astype(dtype)


def _luminance(image: np.ndarray) -> np.ndarray:
    grey = image @ np.array([0.299, 0.587, 0.114])  # ITU-R 601, as Pillow converts
    return (np.round(grey) if image.dtype.kind == "u" else grey).astype(image.dtype)


def levels_of(X: Any) -> int | None:
    """Return the largest value that pixels of more than 8 bits can have, by their range; None for 8 bits and floats.

    Cameras write 10, 12 or 14 bits into files of 16, so the range of the whole data set decides.

    >>> levels_of(np.array([[[250, 260, 4095]]], np.uint16))
    4095
    """
    if not isinstance(X, np.ndarray) or X.dtype != np.uint16 or not X.size:
        return None
    most = int(X.max())
    return next(full for full in (255, 1023, 4095, 16383, 65535) if most <= full)


def picture(raw: bytes, name: str) -> np.ndarray:
    """Decode an image file, ``(h, w)`` if grey and ``(h, w, 3)`` otherwise."""
    return open_picture(raw, name, pixels)


def size_of(raw: bytes, name: str) -> tuple[int, int]:
    """Return height and width of an image file, as it is to be looked at; Pillow decodes a PNG to find how it is turned."""

    def size(image: Any) -> tuple[int, int]:
        turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
        return (image.width, image.height) if turned else (image.height, image.width)

    return open_picture(raw, name, size, kept=False)  # type: ignore[no-any-return]


def fitted_to(raw: bytes, name: str, size: tuple[int, int]) -> np.ndarray:
    """Decode an image file, scaled to cover a size and cropped around its centre."""
    from PIL import ImageOps

    def fit(image: Any) -> np.ndarray:
        image = ImageOps.exif_transpose(image)
        if (image.height, image.width) == size:
            return pixels(image)
        if image.mode in _DEEP:
            values = pixels(image)
            found = np.asarray(ImageOps.fit(_floats(values), (size[1], size[0])))
            full = 65535 if values.dtype.kind == "u" else 1
            found = found.clip(0, full)  # bicubic edges overshoot
            return (np.round(found) if full > 1 else found).astype(values.dtype)
        mode = "L" if image.mode in ("1", "L") else "RGBA" if _clear(image) else "RGB"
        return pixels(ImageOps.fit(image.convert(mode), (size[1], size[0])))

    return open_picture(raw, name, fit)  # type: ignore[no-any-return]


def open_picture(raw: bytes, name: str, use: Callable[[Any], Any], kept: bool = True) -> Any:
    """Return what ``use`` makes of an image file, opened by Pillow; whatever goes wrong is one error."""
    try:
        from PIL import Image
    except ImportError as error:
        raise errors.missing("load", "pillow", "images") from error
    try:
        with _opening:
            usual, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
            try:
                image = Image.open(io.BytesIO(raw))
            finally:
                Image.MAX_IMAGE_PIXELS = usual
    except Exception as error:  # whatever the bytes make Pillow raise
        raise _no_image(name, error) from error
    with image:
        allow(name, image.width * image.height * _BYTES, of=len(raw), kept=kept)
        try:
            return use(image)
        except Exception as error:
            raise _no_image(name, error) from error


def _no_image(name: str, error: Exception) -> ValueError:
    said = re.sub(r" image file <.*>", "", " ".join(str(error).split()))  # Pillow's name of a file in memory
    got = f"{type(error).__name__}: {said}"[:160].rstrip(".")
    return errors.value("load", f"{name} must be an image file", got)


def pixels(image: Any) -> np.ndarray:
    """Return a Pillow image as it is to be looked at: ``(h, w)`` if grey and ``(h, w, 3)`` otherwise.

    uint8 for 8 bits; uint16 for more, and floats for what exceeds that.
    """
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode in ("1", "L"):
        return np.asarray(image.convert("L"))
    if image.mode in _DEEP:
        return _deep(np.asarray(image))
    if _clear(image):
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.asarray(image.convert("RGB"))


def _clear(image: Any) -> bool:
    """Whether some of an image is transparent."""
    return image.mode in ("LA", "PA", "RGBA", "RGBa", "La") or "transparency" in image.info


def _floats(values: np.ndarray) -> Any:
    from PIL import Image

    return Image.fromarray(values.astype(np.float32))


def _deep(values: np.ndarray) -> np.ndarray:
    whole = values.dtype.kind in "iu"
    if whole and values.min(initial=0) >= 0 and values.max(initial=0) <= 65535:
        return values.astype(np.uint16)
    low, high = float(values.min(initial=0)), float(values.max(initial=0))
    if 0 <= low and high <= 1:
        return values.astype(np.float32)
    return ((values - low) / ((high - low) or 1.0)).astype(np.float32)


def _size(image: np.ndarray) -> str:
    return f"{image.shape[0]} x {image.shape[1]}"
