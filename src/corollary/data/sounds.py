"""Sound: WAV files as sequences ``(t, channels)`` of floats in [-1, 1].

Sounds of different rates are resampled to the commonest one; mono beside stereo is mixed to one channel. A file that cannot
be read is left out, unless most cannot.
"""

from __future__ import annotations

import io
import warnings
from collections import Counter
from collections.abc import Mapping
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.dataset import Dataset
from corollary.data.folders import by_class, check_readable, names_below, readable

__all__ = ["read_sounds", "wave"]


def read_sounds(path: Path, reading: Mapping[str, Any] | None = None) -> Dataset:
    """Read one WAV file, or a folder of them with a sub-folder per class; the rate is in ``extra``."""
    files, labels = by_class(path, (".wav",), "sound") if path.is_dir() else ([path], None)
    found, broken = readable(files, lambda file: wave(file.read_bytes(), file.name))
    check_readable(path.name, len(files), broken, "sounds")
    learned = reading or {}
    rate = learned.get("rate") or Counter(rate for rate, _ in found.values()).most_common(1)[0][0]
    widths = {sound.shape[1] for _, sound in found.values()}
    channels = learned.get("channels") or (widths.pop() if len(widths) == 1 else 1)
    sounds = [_as_channels(_resampled(sound, own, rate), channels) for own, sound in found.values()]
    _say(path.name, list(found.values()), rate, channels)
    root = path if path.is_dir() else path.parent
    extra: dict[str, Any] = {"rate": rate, "files": names_below(root, found)}
    extra |= {"skipped": names_below(root, broken)} if broken else {}
    extra["reading"] = {"rate": rate, "channels": channels}
    y = None if labels is None else labels[[file in found for file in files]]
    return Dataset(sounds, y, "sequence", path.stem, source=str(path), extra=extra)


def _say(name: str, found: list[tuple[int, np.ndarray]], rate: int, channels: int) -> None:
    others = sum(own != rate for own, _ in found)
    mixed = sum(sound.shape[1] != channels for _, sound in found)
    done = [f"{others} resampled to {rate} Hz"] * bool(others)
    done += [f"{mixed} mixed to {channels} channel{'s' * (channels > 1)}"] * bool(mixed)
    if done:
        text = f"load: of {len(found)} sounds of {name}, {' and '.join(done)}."
        warnings.warn(text, errors.CorollaryWarning, stacklevel=3)


def _resampled(sound: np.ndarray, own: int, rate: int) -> np.ndarray:
    if own == rate:
        return sound
    from scipy.signal import resample_poly

    shared = gcd(own, rate)
    return np.asarray(resample_poly(sound, rate // shared, own // shared, axis=0)).astype(np.float32)


def _as_channels(sound: np.ndarray, channels: int) -> np.ndarray:
    if sound.shape[1] == channels:
        return sound
    return np.repeat(sound.mean(axis=1, keepdims=True), channels, axis=1)


def wave(raw: bytes, name: str) -> tuple[int, np.ndarray]:
    """Decode a WAV file into its sampling rate and an array ``(t, channels)``."""
    from scipy.io import wavfile

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", wavfile.WavFileWarning)  # chunks that are not sound
            rate, samples = wavfile.read(io.BytesIO(raw))
    except Exception as error:  # whatever the bytes make scipy raise
        got = f"{type(error).__name__}: {' '.join(str(error).split())}"[:160].rstrip(".")
        raise errors.value("load", f"{name} must be a WAV file", got) from error
    if samples.size == 0:
        raise errors.value("load", f"{name} must have at least one sample", "none")
    return int(rate), _scaled(samples.reshape(len(samples), -1))


def _scaled(samples: np.ndarray) -> np.ndarray:
    if samples.dtype == np.uint8:  # 8-bit WAV is unsigned around 128
        return (samples.astype(np.float32) - 128) / 128
    if np.issubdtype(samples.dtype, np.integer):
        return (samples / -float(np.iinfo(samples.dtype).min)).astype(np.float32)
    return samples.astype(np.float32)
