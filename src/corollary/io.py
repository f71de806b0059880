"""Save and load: one safetensors file, JSON in its header, never pickle.

A file holds a *document*: plain values nested in dicts and lists, with arrays and tensors
among them. The arrays go into the file as tensors, everything else into the header as JSON,
with ``{"$": tag}`` objects where JSON has no word of its own. A SHA-256 over both is kept
beside them, so a file that was cut short or changed is reported and never half-loaded.
Reading imports nothing but what the catalog lists. What a file cannot hold, such as another person's module, is
described in it and has to be given to :func:`load` again.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from corollary import __version__, catalog, errors
from corollary.shapes import Mismatch

__all__ = ["SCHEMA", "decode", "encode", "load", "read", "save", "write", "write_text"]

SCHEMA = 1  # raised when an older version could no longer read the file
KEY = "corollary"
TEMPORARY = ".tmp"  # how the name of a file ends that is not whole yet
# Public classes outside the catalog that may stand in a file.
HELPERS = {
    **dict.fromkeys(("Net", "NetClassifier", "NetRegressor"), "corollary.networks.net"),
    "Consistency": "corollary.regularisation.semisupervised",
    "Training": "corollary.engine.training",
    **dict.fromkeys(("FGSM", "PGD"), "corollary.attack.pgd"),
    **dict.fromkeys(
        (
            "ClipNorm",
            "Curriculum",
            "GradientNoise",
            "InputNoise",
            "L1",
            "LabelSmoothing",
            "Mixup",
            "NormBall",
            "Spectral",
        )
        + ("TargetNoise", "WeightDecay", "WeightNoise"),
        "corollary.engine.regularisers",
    ),
}
# What `load` was given beside the file: classes that are not in the catalog, and parameters that no file can hold.
_given: ContextVar[tuple[dict[str, type], dict[str, Any]]] = ContextVar("corollary_given", default=({}, {}))


class FileError(ValueError):
    """A file that cannot be read as what it should be."""


class NewerFile(FileError):
    """A whole file that a newer version of the library wrote."""


# --- documents -------------------------------------------------------------------------------------------


def encode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return ``value`` as JSON-able data; arrays are put into ``arrays`` and named in their place."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, np.bool_):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        return number if np.isfinite(number) else {"$": "float", "value": repr(number)}
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, complex | np.complexfloating):
        return {"$": "complex", "value": [float(value.real), float(value.imag)]}
    if isinstance(value, np.ndarray):
        return _encode_array(value, arrays)
    if isinstance(value, tuple):
        return {"$": "tuple", "value": [encode(part, arrays) for part in value]}
    if isinstance(value, list):
        return [encode(part, arrays) for part in value]
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and key != "$" for key in value):
            return {key: encode(part, arrays) for key, part in value.items()}
        return {"$": "dict", "value": [[encode(k, arrays), encode(v, arrays)] for k, v in value.items()]}
    return _encode_object(value, arrays)


def _encode_array(value: np.ndarray, arrays: dict[str, np.ndarray], **extra: Any) -> dict[str, Any]:
    if value.dtype.kind in "OUS":  # strings and mixed labels
        if value.dtype.kind != "O":
            lengths = np.char.str_len(value)
            check_width(value.size, int(lengths.max(initial=0)), int(lengths.sum()))
        return {
            "$": "labels",
            "dtype": value.dtype.kind,
            "shape": [*value.shape],
            "value": _labels(value, arrays),
        }
    if value.dtype.kind not in "biufc":
        raise errors.kind("save", "arrays must hold numbers, booleans or strings", f"dtype {value.dtype}")
    stored, spec = value, {"$": "array", **extra}
    # the layout decides the last bit of a product
    if value.flags.f_contiguous and not value.flags.c_contiguous:
        stored, spec = value.T, {**spec, "order": "F"}
    if value.dtype.kind == "c":
        stored = np.ascontiguousarray(stored)[..., None].view(stored.real.dtype)
        spec = {**spec, "complex": True}
    name = str(len(arrays))
    arrays[name] = np.array(stored, order="C", ndmin=stored.ndim)
    return {**spec, "name": name}


def _labels(value: np.ndarray, arrays: dict[str, np.ndarray]) -> list[Any]:
    return [encode(part, arrays) for part in value.ravel().tolist()]


def _encode_object(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if type(value).__module__.startswith("torch") and hasattr(value, "detach"):
        return _encode_tensor(value, arrays)
    if hasattr(value, "state_dict") and hasattr(value, "parameters"):
        return {"$": "module", "value": encode(dict(value.state_dict()), arrays)}
    if hasattr(value, "tocsr") and hasattr(value, "nnz"):
        csr = value.tocsr()
        parts = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr, "shape": tuple(csr.shape)}
        return {"$": "sparse", "format": value.format, "value": encode(parts, arrays)}
    if type(value).__name__ in HELPERS or hasattr(value, "_saved_attributes"):
        return {"$": "estimator", **_describe(value, arrays)}
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None  # only a seed survives saving
    if hasattr(value, "__dataclass_fields__"):
        raise errors.kind("save", "values must be plain", type(value).__name__)
    raise errors.kind(
        "save",
        "parameters and fitted attributes must be numbers, strings, arrays, tensors or our own estimators",
        f"a {type(value).__module__}.{type(value).__name__}",
        "Give the choice by name instead of by object.",
    )


def _encode_tensor(value: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    value = value.detach().cpu()
    if str(value.dtype) == "torch.bfloat16":
        import torch

        return _encode_array(value.contiguous().view(torch.int16).numpy(), arrays, tensor="bfloat16")
    return _encode_array(value.numpy(), arrays, tensor=str(value.dtype).removeprefix("torch."))


def _describe(estimator: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    plain = getattr(estimator, "_plain_params", None)
    params = estimator.get_params(deep=False) if plain is None else plain()
    parts = estimator._given_parts() if hasattr(estimator, "_given_parts") else {}
    fitted = estimator._saved_attributes() if hasattr(estimator, "_saved_attributes") else {}
    if fitted:
        try:
            estimator._check_fitted(fitted)
        except Mismatch as error:
            do = "Fit again, or put back the parameters that were changed after the fit."
            raise ValueError(f"save: {error} {do}") from error
    return {
        "name": type(estimator).__name__,
        "params": {
            key: _part(key, value) if key in parts else encode(value, arrays) for key, value in params.items()
        },
        "fitted": {key: encode(value, arrays) for key, value in fitted.items()},
    }


def _part(name: str, value: Any) -> dict[str, Any]:
    """Return the description of a parameter that the file cannot hold: it is given again when loading."""
    kind = value if isinstance(value, type) or hasattr(value, "__qualname__") else type(value)
    return {"$": "given", "name": name, "type": f"{kind.__module__}.{kind.__qualname__}"}


def _decode_part(value: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    name, parts = value["name"], _given.get()[1]
    if name not in parts:
        raise FileError(
            f"load: the model was fitted with {name}={value['type']}, which no file holds; nothing is imported by "
            f"name. Pass it again: load(path, {name}=...)."
        )
    return parts[name]


def decode(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Undo :func:`encode`."""
    if isinstance(value, list):
        return [decode(part, arrays) for part in value]
    if not isinstance(value, dict):
        return value
    if "$" not in value:
        return {key: decode(part, arrays) for key, part in value.items()}
    tag = value["$"]
    if tag not in _DECODERS:
        raise FileError(f"load: unknown entry {tag!r}; the file was altered or written by a newer version.")
    return _DECODERS[tag](value, arrays)


def _decode_array(value: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    array = arrays[value["name"]]
    if value.get("complex"):
        array = array.view({4: np.complex64, 8: np.complex128}[array.dtype.itemsize])[..., 0]
    if value.get("order") == "F":
        array = array.T
    if "tensor" not in value:
        return array
    import torch

    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if value["tensor"] == "bfloat16" else tensor


def _decode_labels(value: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    parts, kind = decode(value["value"], arrays), np.dtype(value["dtype"]).kind
    flat = np.empty(len(parts), dtype=object)
    flat[:] = parts
    if kind != "O":
        lengths = [len(str(part)) for part in parts]
        check_width(len(parts), max(lengths, default=0), sum(lengths))
        flat = flat.astype(kind)  # as wide as the longest, whatever the file says
    return flat.reshape(value["shape"])


def check_width(count: int, longest: int, total: int) -> None:
    """Raise if an array of strings, each as wide as the longest, would be far larger than the strings themselves."""
    if 4 * count * longest > 2**20 + 64 * total:
        got = f"{longest} characters in one of {count}, and {total} in all"
        do = "Use an array of objects, or shorter labels."
        raise FileError(errors.wording("file", "labels must be of about one length", got, do))


def _decode_sparse(value: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    from scipy import sparse

    parts = decode(value["value"], arrays)
    rows, columns = map(int, parts["shape"])
    matrix = sparse.csr_matrix((parts["data"], parts["indices"], parts["indptr"]), shape=(rows, columns))
    matrix.check_format(full_check=True)
    # other formats can be much larger than what is stored; the data are the same in this one
    small = columns <= 2**16 + 16 * (matrix.nnz + rows)
    return matrix.asformat(value["format"]) if value["format"] in ("coo", "csc") and small else matrix


def _decode_estimator(value: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    name = value["name"]
    if name in HELPERS:
        from importlib import import_module

        cls = getattr(import_module(HELPERS[name]), name)
    elif name in _given.get()[0]:
        cls = _given.get()[0][name]
    elif catalog.has(name, "estimator") or catalog.has(name, "sampler"):
        cls = catalog.resolve(name)
    else:
        raise FileError(
            f"load: the file names {name!r}, which is not in the catalog; it was not imported. "
            f"Import its package and corollary.register({name}), or load(path, classes=[{name}])."
        )
    estimator = cls(**decode(value["params"], arrays))
    fitted = {key: decode(part, arrays) for key, part in value["fitted"].items()}
    if fitted:
        estimator._validate_params()
        estimator._check_fitted(fitted)
        estimator._load_attributes(fitted)
    return estimator


_DECODERS: dict[str, Callable[[dict[str, Any], Mapping[str, np.ndarray]], Any]] = {
    "array": _decode_array,
    "complex": lambda value, _: complex(*value["value"]),
    "dict": lambda value, arrays: {decode(k, arrays): decode(v, arrays) for k, v in value["value"]},
    "estimator": _decode_estimator,
    "float": lambda value, _: float(value["value"]),
    "given": _decode_part,
    "labels": _decode_labels,
    "module": lambda value, arrays: decode(value["value"], arrays),
    "sparse": _decode_sparse,
    "tuple": lambda value, arrays: tuple(decode(value["value"], arrays)),
}


# --- files -----------------------------------------------------------------------------------------------


def _digest(header: str, arrays: Mapping[str, np.ndarray]) -> str:
    total = hashlib.sha256(header.encode())
    for name in sorted(arrays):
        total.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        total.update(arrays[name].data if arrays[name].size else b"")
    return total.hexdigest()


def write(path: str | os.PathLike[str], document: Any, kind: str) -> Path:
    """Write a document atomically: a reader finds the old file or the new one, whole."""
    from safetensors.numpy import save as to_bytes

    path = Path(path)
    arrays: dict[str, np.ndarray] = {}
    body = encode(document, arrays)
    header = json.dumps(
        {"schema": SCHEMA, "version": __version__, "kind": kind, "document": body}, allow_nan=False
    )
    content = to_bytes(arrays, metadata={KEY: header, "sha256": _digest(header, arrays)})
    with _replacing(path) as file:
        file.write(content)
    return path


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text file atomically: a reader finds the old one or the new one, whole."""
    path = Path(path)
    with _replacing(path) as file:
        file.write(text.encode())
    return path


def check_directory(path: Path) -> None:
    """Raise unless a file can be written there: torch and the system would name a temporary file of ours."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"save: no directory {str(path.parent)!r}. Make it first.")


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of ``path`` once it is whole and on disk."""
    check_directory(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}{TEMPORARY}")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(path: str | os.PathLike[str], kind: str) -> Any:
    """Read a document; whatever is wrong with the file becomes one clear :class:`FileError`."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"load: no file {str(path)!r}. Give the path of a .safetensors file written by save."
        )
    header, arrays = _open(path)
    try:
        schema, found = header["schema"], header["kind"]
        if schema > SCHEMA:
            raise NewerFile(
                f"load: {path.name} was written by schema {schema}; this version reads up to {SCHEMA}. "
                f"Install corollary>={header['version']}."
            )
        if found != kind:
            raise FileError(f"load: {path.name} is a {found} file; a {kind} file is needed here.")
        return decode(header["document"], arrays)
    except FileError:
        raise
    except Mismatch as error:
        raise FileError(f"load: {error} {path.name} was altered.") from error
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        RecursionError,
        RuntimeError,
    ) as error:
        raise FileError(
            f"load: {path.name} does not hold what its header says ({error}); it was altered."
        ) from error


def _open(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"load: {path.name} is not a whole safetensors file ({error}).") from error
    if KEY not in metadata:
        raise FileError(f"load: {path.name} is a safetensors file, but corollary did not write it.")
    if metadata.get("sha256") != _digest(metadata[KEY], arrays):
        raise FileError(
            f"load: {path.name} was changed or damaged after it was written (its checksum differs)."
        )
    try:
        return json.loads(metadata[KEY]), arrays
    except (ValueError, RecursionError) as error:
        raise FileError(f"load: the header of {path.name} cannot be read ({error}).") from error


def save(estimator: Any, path: str | os.PathLike[str]) -> Path:
    """Write a fitted (or unfitted) estimator as one file."""
    return write(path, estimator, "model")


def load(path: str | os.PathLike[str], *, classes: Iterable[type] = (), **parts: Any) -> Any:
    """Read an estimator that ``save`` wrote; nothing in the file is ever executed, and no name in it imported.

    Parameters
    ----------
    path : path
        A ``.safetensors`` file.
    classes : iterable of type, default=()
        Estimator classes that may stand in the file although they are not in the catalog.
    **parts
        Parameters that no file can hold, such as ``module=`` of :class:`corollary.NetClassifier`: what the model was
        made with, which the file only describes.

    Returns
    -------
    estimator
    """
    token = _given.set(({cls.__name__: cls for cls in classes}, parts))
    try:
        return read(path, "model")
    finally:
        _given.reset(token)
