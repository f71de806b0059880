"""Sound: WAV files as sequences ``(t, channels)`` of floats in [-1, 1]."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.dataset import Dataset
from corollary.data.folders import by_class

__all__ = ["read_sounds", "wave"]


def read_sounds(path: Path, reading: Any = ()) -> Dataset:
    """Read one WAV file, or a folder of them with a sub-folder per class; the rate is in ``extra``."""
    files, labels = by_class(path, (".wav",), "sound") if path.is_dir() else ([path], None)
    rates, sounds = zip(*(wave(file.read_bytes(), file.name) for file in files))
    for file, rate in zip(files, rates):
        if rate != rates[0]:
            got = f"{rates[0]} Hz for {files[0].name} and {rate} Hz for {file.name}"
            raise errors.value("load", "all sounds must have one sampling rate", got, "Resample them first.")
    extra = {"rate": rates[0], "files": [file.name for file in files]}
    return Dataset(list(sounds), labels, "sequence", path.stem, source=str(path), extra=extra)


def wave(raw: bytes, name: str) -> tuple[int, np.ndarray]:
    """Decode a WAV file into its sampling rate and an array ``(t, channels)``."""
    from scipy.io import wavfile

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", wavfile.WavFileWarning)  # chunks that are not sound
            rate, samples = wavfile.read(io.BytesIO(raw))
    except Exception as error:  # whatever the bytes make scipy raise
        got = f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]
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
