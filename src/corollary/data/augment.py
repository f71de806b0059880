r"""Image augmentation: other views of the same pictures, drawn for a whole batch at once.

Every function takes images ``(n, h, w)`` or ``(n, c, h, w)``, as NumPy array or torch tensor, and
returns the same kind, dtype and device (uint8 is computed in float and rounded). What is random is
drawn from the ``generator`` that is passed, one draw per image, and from nothing else.

Colour noise follows [1]_: with the eigenvectors :math:`p_k` and eigenvalues :math:`\lambda_k` of the
:math:`c \times c` covariance of the pixels, each image gets one shift of all its pixels,

.. math:: \delta = \sum_k \alpha_k \lambda_k p_k, \quad \alpha_k \sim N(0, \sigma^2), \qquad
    \mathrm{Cov}[\delta] = \sigma^2 P \Lambda^2 P^\top. \tag{1}

References
----------
.. [1] A. Krizhevsky, I. Sutskever, G. E. Hinton (2012). ImageNet classification with deep
   convolutional neural networks. NeurIPS, section 4.1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import pi
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from corollary import errors

__all__ = [
    "augment",
    "colour_components",
    "colour_noise",
    "crop",
    "draw_moves",
    "flip",
    "move",
    "noise",
    "resize",
    "rotate",
]


def _batched(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """Hand a float tensor (n, c, h, w) in and the caller's own kind of images out."""

    @wraps(function)
    def wrapper(images: Any, *args: Any, **options: Any) -> Any:
        own = isinstance(images, np.ndarray)
        given = torch.from_numpy(np.require(images, requirements=["C", "W"])) if own else images
        if not isinstance(given, Tensor) or given.ndim not in (3, 4) or 0 in given.shape:
            must = "images must be an array or tensor of shape (n, h, w) or (n, c, h, w)"
            raise errors.value(function.__name__, must, getattr(images, "shape", type(images).__name__))
        batch = given if given.is_floating_point() else given / 255
        out = function(batch[:, None] if given.ndim == 3 else batch, *args, **options)
        out = out[:, 0] if given.ndim == 3 else out
        if not given.is_floating_point():
            out = (out * 255).round().clamp(0, 255)
        out = out.to(given.dtype)
        return out.numpy() if own else out

    return wrapper


@_batched
def crop(
    images: Any,
    size: int | tuple[int, int],
    *,
    padding: int = 0,
    generator: torch.Generator | None = None,
    offsets: Tensor | None = None,
) -> Any:
    """Cut a window of this size out of each image, at a place of its own.

    Parameters
    ----------
    images : array or tensor of shape (n, h, w) or (n, c, h, w)
        The pictures.
    size : int or (int, int)
        Height and width of the window.
    padding : int, default=0
        Zeros laid around the image first, so that windows may reach beyond it.
    generator : torch.Generator
        Where the places are drawn from; not needed with ``offsets``.
    offsets : integer tensor of shape (n, 2), optional
        Row and column of each window's corner in the padded image.
    """
    h, w = _pair(size)
    images = F.pad(images, (padding,) * 4)
    n, _, height, width = images.shape
    if not (0 < h <= height and 0 < w <= width):
        got = f"{h} x {w} for {height} x {width}"
        raise errors.value("crop", "the window must fit into the padded image", got, "Raise padding.")
    if offsets is None:
        rows = _integers(height - h + 1, n, generator, "crop")
        offsets = torch.stack([rows, _integers(width - w + 1, n, generator, "crop")], 1)
    offsets = torch.as_tensor(offsets, device=images.device)
    if (
        offsets.shape != (n, 2)
        or offsets.min() < 0
        or (offsets > offsets.new_tensor([height - h, width - w])).any()
    ):
        must = f"offsets must lie in 0 to ({height - h}, {width - w}) for each of {n} images"
        raise errors.value("crop", must, f"{offsets.tolist()[:3]}")
    rows = offsets[:, :1] + torch.arange(h, device=images.device)  # (n, h)
    columns = offsets[:, 1:] + torch.arange(w, device=images.device)  # (n, w)
    # Advanced indices on both sides of the channel slice put it last: (n, h, w, c).
    which = torch.arange(n, device=images.device)[:, None, None]
    return images[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


@_batched
def resize(images: Any, size: int | tuple[int, int]) -> Any:
    """Scale images to this height and width, bilinearly and without aliasing."""
    h, w = _pair(size)
    if h < 1 or w < 1:
        raise errors.value("resize", "size must be positive", (h, w))
    return F.interpolate(images, (h, w), mode="bilinear", antialias=True, align_corners=False)


@_batched
def flip(
    images: Any, p: float = 0.5, *, vertical: bool = False, generator: torch.Generator | None = None
) -> Any:
    """Mirror each image with probability ``p``, left to right or, if ``vertical``, top to bottom."""
    if not 0 <= p <= 1:
        raise errors.value("flip", "p must be a probability", p)
    chosen = _uniform(len(images), generator, "flip") < p if 0 < p < 1 else torch.full((len(images),), p == 1)
    mirrored = images.flip(-2 if vertical else -1)
    return torch.where(chosen.to(images.device)[:, None, None, None], mirrored, images)


def draw_moves(
    n: int, generator: torch.Generator, *, flip: float = 0.0, vertical_flip: float = 0.0, shift: int = 0
) -> dict[str, Tensor]:
    """Draw how each of n images is moved: what :func:`move` takes.

    Parameters
    ----------
    n : int
        Number of images.
    generator : torch.Generator
        Where everything is drawn from.
    flip, vertical_flip : float, default=0
        Probabilities that left and right, top and bottom change places.
    shift : int, default=0
        Largest move in pixels along each side, either way.
    """
    for name, p in (("flip", flip), ("vertical_flip", vertical_flip)):
        if not 0 <= p <= 1:
            raise errors.value("augment", f"{name} must be a probability", p)
    if isinstance(shift, bool) or shift != int(shift) or shift < 0:
        raise errors.value("augment", "shift must be a number of pixels", shift)
    moves = {}
    for name, p in (("mirrored", flip), ("upturned", vertical_flip)):
        if p:
            moves[name] = _uniform(n, generator, "augment") < p
    if shift:
        steps = [_integers(2 * int(shift) + 1, n, generator, "augment") - int(shift) for _ in range(2)]
        moves["offsets"] = torch.stack(steps, 1)
    return moves


def move(
    images: Tensor,
    *,
    mirrored: Tensor | None = None,
    upturned: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Mirror and shift each image or mask by whole pixels; what comes in is reflected at the border.

    Parameters
    ----------
    images : tensor of shape (n, h, w) or (n, c, h, w)
        Images, or masks of labels: values are moved and never mixed.
    mirrored, upturned : boolean tensor of shape (n,), optional
        Whose left and right, whose top and bottom change places.
    offsets : integer tensor of shape (n, 2), optional
        Rows and columns by which each image moves up and left, after it was mirrored.

    Examples
    --------
    >>> move(torch.arange(4).reshape(1, 1, 4), offsets=torch.tensor([[0, 1]]))
    tensor([[[1, 2, 3, 2]]])
    """
    n, h, w = len(images), *images.shape[-2:]
    rows, columns = (
        _places(side, n, turned, None if offsets is None else offsets[:, axis], images.device)
        for axis, (side, turned) in enumerate(((h, upturned), (w, mirrored)))
    )
    which = torch.arange(n, device=images.device)[:, None, None]
    if images.ndim == 3:
        return images[which, rows[:, :, None], columns[:, None, :]]
    return images[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _places(side: int, n: int, turned: Tensor | None, offset: Tensor | None, device: Any) -> Tensor:
    """Return which row or column of each image every new one shows."""
    places = torch.arange(side, device=device).expand(n, -1)
    if offset is not None:
        last = max(side - 1, 1)
        places = (places + offset.to(device)[:, None]) % (2 * last)  # reflected again and again
        places = (last - (last - places).abs()).clamp(max=side - 1)
    if turned is not None:
        places = torch.where(turned.to(device)[:, None], side - 1 - places, places)
    return places


@_batched
def _moved(images: Any, moves: dict[str, Tensor]) -> Any:
    return move(images, **moves)


@_batched
def rotate(
    images: Any,
    degrees: float = 15.0,
    *,
    generator: torch.Generator | None = None,
    angles: Tensor | None = None,
) -> Any:
    """Turn each image about its centre by an angle of its own, anticlockwise if positive.

    Parameters
    ----------
    images : array or tensor of shape (n, h, w) or (n, c, h, w)
        The pictures. What comes from beyond the edge is 0.
    degrees : float, default=15
        The angles are uniform in [-degrees, degrees].
    generator : torch.Generator
        Where the angles are drawn from; not needed with ``angles``.
    angles : tensor of shape (n,), optional
        The angles themselves, in degrees.
    """
    n, _, h, w = images.shape
    if angles is None:
        angles = (2 * _uniform(n, generator, "rotate") - 1) * degrees
    radians = torch.as_tensor(angles, dtype=torch.float64) * pi / 180
    if radians.shape != (n,):
        raise errors.value(
            "rotate", f"there must be one angle per image ({n})", f"shape {tuple(radians.shape)}"
        )
    cos, sin, zero = radians.cos(), radians.sin(), torch.zeros_like(radians)
    # Output place -> input place, in coordinates where the picture is [-1, 1] both ways; y points down.
    turn = torch.stack([cos, -sin * h / w, zero, sin * w / h, cos, zero], 1).reshape(n, 2, 3)
    turn = turn.to(images.device, images.dtype)
    grid = F.affine_grid(turn, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def colour_components(images: Any) -> tuple[Tensor, Tensor]:
    """Return eigenvalues ``(c,)`` and eigenvectors ``(c, c)``, as columns, of the covariance of pixels."""
    given = torch.as_tensor(images)
    if given.ndim != 4 or given.shape[1] < 2:
        must = "colour images must have shape (n, c, h, w) with two channels or more"
        raise errors.value("colour_components", must, f"shape {tuple(given.shape)}")
    given = given if given.is_floating_point() else given / 255
    pixels = given.transpose(0, 1).flatten(1).double()
    values, vectors = torch.linalg.eigh(torch.cov(pixels, correction=0))
    return values.clamp(min=0), vectors


@_batched
def colour_noise(
    images: Any,
    scale: float = 0.1,
    *,
    generator: torch.Generator | None = None,
    components: tuple[Tensor, Tensor] | None = None,
) -> Any:
    r"""Shift the colour of each image along the main axes of its pixels' colours, eq. (1); not clipped.

    Parameters
    ----------
    images : array or tensor of shape (n, c, h, w)
        The pictures.
    scale : float, default=0.1
        The standard deviation :math:`\sigma`.
    generator : torch.Generator
        Where the shifts are drawn from.
    components : (eigenvalues, eigenvectors), optional
        Those of the whole data set, from :func:`colour_components`; otherwise of this batch.
    """
    values, vectors = components if components is not None else colour_components(images)
    alpha = scale * _normal((len(images), len(values)), generator, "colour_noise").to(values)
    shift = (alpha * values) @ vectors.T
    return images + shift.to(images)[:, :, None, None]


@_batched
def noise(images: Any, scale: float = 0.05, *, generator: torch.Generator | None = None) -> Any:
    """Add Gaussian noise of this standard deviation to every pixel; not clipped."""
    if scale < 0:
        raise errors.value("noise", "scale must not be negative", scale)
    return images + scale * _normal(tuple(images.shape), generator, "noise").to(images)


_FUNCTIONS = {
    "crop": crop,
    "resize": resize,
    "rotate": rotate,
    "colour": colour_noise,
    "noise": noise,
}


def augment(
    images: Any,
    *,
    generator: torch.Generator,
    resize: int | tuple[int, int] | None = None,
    rotate: float = 0.0,
    flip: float = 0.0,
    vertical_flip: float = 0.0,
    shift: int = 0,
    crop: int | tuple[int, int] | None = None,
    padding: int = 0,
    colour: float = 0.0,
    noise: float = 0.0,
) -> Any:
    """Apply what is asked for in the order of the parameters, and clip to [0, 1].

    Parameters
    ----------
    images : array or tensor of shape (n, h, w) or (n, c, h, w)
        Pictures in [0, 1], or uint8.
    generator : torch.Generator
        Where everything random is drawn from.
    resize, crop : int or (int, int), optional
        New height and width; size of a random window, after ``padding`` zeros on every side.
    rotate : float, default=0
        Largest angle in degrees, either way.
    flip, vertical_flip : float, default=0
        Probabilities that left and right, top and bottom change places.
    shift : int, default=0
        Largest move in pixels along each side, either way; what comes in is reflected at the border.
    padding : int, default=0
        Zeros around the image before it is cropped; without ``crop`` the size stays.
    colour, noise : float, default=0
        Standard deviations of :func:`colour_noise` (colour images only) and :func:`noise`.

    Returns
    -------
    array or tensor
        Of the same kind, dtype and device.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from corollary.data.augment import augment
    >>> images = np.zeros((5, 3, 32, 32), np.float32)
    >>> augment(images, flip=0.5, crop=28, generator=torch.Generator().manual_seed(0)).shape
    (5, 3, 28, 28)
    """
    if padding and crop is None:
        crop = tuple(images.shape[-2:])
    moves: dict[str, Any] = {"flip": flip, "vertical_flip": vertical_flip, "shift": shift}
    wanted = {
        "resize": resize,
        "rotate": rotate,
        "move": any(moves.values()),
        "crop": crop,
        "colour": colour,
        "noise": noise,
    }
    for name, amount in wanted.items():
        if amount is None or amount == 0.0:
            continue
        if name == "move":
            images = _moved(images, draw_moves(len(images), _needed(generator, "augment"), **moves))
            continue
        options: dict[str, Any] = {} if name == "resize" else {"generator": generator}
        options |= {"padding": padding} if name == "crop" else {}
        images = _FUNCTIONS[name](images, amount, **options)
    return images.clip(0, 1) if _is_float(images) else images


# ---------------------------------------------------------------------------------------- helpers


def _is_float(images: Any) -> bool:
    return "float" in str(images.dtype)


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


def _needed(generator: torch.Generator | None, owner: str) -> torch.Generator:
    if not isinstance(generator, torch.Generator):
        do = "Pass torch.Generator().manual_seed(0)."
        raise errors.kind(owner, "generator must be a torch.Generator", type(generator).__name__, do)
    return generator


def _uniform(n: int, generator: torch.Generator | None, owner: str) -> Tensor:
    generator = _needed(generator, owner)
    return torch.rand(n, generator=generator, device=generator.device)


def _normal(shape: tuple[int, ...], generator: torch.Generator | None, owner: str) -> Tensor:
    generator = _needed(generator, owner)
    return torch.randn(shape, generator=generator, device=generator.device)


def _integers(high: int, n: int, generator: torch.Generator | None, owner: str) -> Tensor:
    generator = _needed(generator, owner)
    return torch.randint(high, (n,), generator=generator, device=generator.device)
