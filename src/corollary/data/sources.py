"""Samples that stay where they are, and are read a batch or a block at a time: data larger than memory.

A :class:`Source` looks like an array of which only rows can be asked for. Estimators that read sources take as ``X``

- a memory-mapped array (``np.load(path, mmap_mode="r")``), as :class:`MappedArray`;
- :class:`ParquetTable`, a Parquet file or a folder of them;
- :class:`ImageFolder`, decoded by threads when its turn comes;
- a torch ``Dataset``, as :class:`MapDataset`;
- a torch ``IterableDataset`` or a generator function, as :class:`Stream`.

A source may bring its targets: then ``fit(source)`` needs no ``y``.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from inspect import isgenerator
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors

__all__ = [
    "ImageFolder",
    "MapDataset",
    "MappedArray",
    "ParquetTable",
    "Source",
    "Stream",
    "as_source",
    "mapping",
]

BLOCK = 2**22  # bytes that are read at a time where the whole is walked through
GATHER = 128  # rows of a memory map that are gathered before its pages are given back
WORKERS = min(8, os.cpu_count() or 1)


class Source(ABC):
    """Samples that are read on demand; the first axis of ``shape`` counts them.

    A subclass sets ``shape`` and ``dtype`` and reads rows in ``_read``.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    target: np.ndarray | None = None  # one per sample, where the source brings them
    sequential = False  # whether samples can only be had in their own order

    @abstractmethod
    def _read(self, rows: np.ndarray) -> np.ndarray:
        """Return the samples with these numbers, in this order."""

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that all samples would take in memory."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.shape} of {self.dtype}"

    def __getitem__(self, key: Any) -> np.ndarray:
        """Return some samples as an array: a slice, a mask, or row numbers; ``source[:]`` reads all of them."""
        return self._read(np.atleast_1d(np.arange(len(self))[key]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        must = "this estimator takes data that fit into memory"
        raise errors.kind("fit", must, repr(self), "Read them, source[:], if they do.")

    def head(self, n: int) -> np.ndarray:
        """Return the first samples."""
        return self[:n]

    def order(self, seed: int) -> np.ndarray | None:
        """Return an order of the samples that is random and cheap to read, or None if any order is."""
        return None

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all samples in their own order, a block of about 4 MB at a time."""
        step = max(1, BLOCK * len(self) // max(1, self.nbytes))
        for begin in range(0, len(self), step):
            yield self[begin : begin + step]

    def bounds(self) -> tuple[float, float]:
        """Return the smallest and the largest entry."""
        each = [(block.min(), block.max()) for block in self.blocks()]
        return float(min(low for low, _ in each)), float(max(high for _, high in each))

    def digest(self) -> str:
        """Return a hash of shape, type and every sample, which tells whether a checkpoint belongs to these data.

        A fit that is kept in a directory reads all samples once for it. Samples that differ each time they are read, as
        those of a data set that augments, are told by their number, shape and type alone.
        """
        total = hashlib.blake2b(f"{self.shape}{self.dtype};".encode(), digest_size=16)
        if self._steady():
            for content in self._contents():
                total.update(content)
        return total.hexdigest()

    def _steady(self) -> bool:
        """Whether samples are the same each time they are read."""
        return True

    def _contents(self) -> Iterator[bytes]:
        """Yield all that the samples are made of."""
        for block in self.blocks():
            yield block.tobytes()

    def astype(self, dtype: Any, copy: bool = False) -> Source:
        """Return the source of the same samples in another type."""
        return self if np.dtype(dtype) == self.dtype else self.map(partial(_as_type, dtype=np.dtype(dtype)))

    def map(self, change: Callable[[np.ndarray], np.ndarray]) -> Source:
        """Return the source whose blocks are changed as they are read; each sample must stay one sample."""
        return _Changed(self, change)

    def take(self, rows: np.ndarray) -> Source:
        """Return the source of some of the samples; nothing is read."""
        return _Some(self, np.asarray(rows))


class _Some(Source):
    """Some of the samples of a source."""

    def __init__(self, source: Source, rows: np.ndarray) -> None:
        self.source, self.rows = source, np.arange(len(source))[rows]
        self.target = None if source.target is None else np.asarray(source.target)[self.rows]
        self.shape, self.dtype = (len(self.rows), *source.shape[1:]), source.dtype

    def _read(self, rows: np.ndarray) -> np.ndarray:
        return self.source._read(self.rows[rows])


def _as_type(block: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    return block.astype(dtype)


class _Changed(Source):
    def __init__(self, source: Source, change: Callable[[np.ndarray], np.ndarray]) -> None:
        self.source, self.change = source, change
        self.sequential = source.sequential
        self.target = source.target
        first = change(source.head(1))
        self.shape, self.dtype = (len(source), *first.shape[1:]), first.dtype

    def _read(self, rows: np.ndarray) -> np.ndarray:
        return self.change(self.source._read(rows))

    def order(self, seed: int) -> np.ndarray | None:
        return self.source.order(seed)

    def digest(self) -> str:
        return self.source.digest()

    def blocks(self) -> Iterator[np.ndarray]:
        return map(self.change, self.source.blocks()) if self.sequential else super().blocks()

    def batches(self, batch_size: int, start: int) -> Iterator[np.ndarray]:
        """Yield consecutive batches of a stream."""
        return map(self.change, self.source.batches(batch_size, start))  # type: ignore[attr-defined]

    def state_dict(self) -> Any:
        """Return the position of a stream."""
        return self.source.state_dict()  # type: ignore[attr-defined]

    def load_state_dict(self, state: Any) -> None:
        """Go to a position of a stream."""
        self.source.load_state_dict(state)  # type: ignore[attr-defined]


# --- memory maps -----------------------------------------------------------------------------------------


class MappedArray(Source):
    """A memory-mapped array: rows are gathered, and its pages given back, so that it never lies in memory as a whole.

    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.arange(12.0).reshape(6, 2))
    ...     MappedArray(np.load(f"{folder}/x.npy", mmap_mode="r"))[[4, 0]]
    array([[8., 9.],
           [0., 1.]])
    """

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype
        owner = mapping(array)
        own_copy = owner is None or owner.mode == "c"  # changed pages of a private copy would be lost
        self._pages = None if own_copy else owner._mmap  # type: ignore[union-attr]

    def _read(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for begin in range(0, len(rows), GATHER):
            part = rows[begin : begin + GATHER]
            if part[-1] - part[0] == len(part) - 1 and np.all(np.diff(part) == 1):
                out[begin : begin + GATHER] = self.array[part[0] : part[-1] + 1]
            else:
                out[begin : begin + GATHER] = self.array[part]
            if self._pages is not None:
                self._pages.madvise(mmap.MADV_DONTNEED)
        return out

    def __reduce__(self) -> Any:
        """Pickle the place of the file, not its contents, where the array is the whole of it."""
        owner = mapping(self.array)
        whole = self.array is owner and isinstance(self.array.base, mmap.mmap)
        if not whole or owner is None or owner.filename is None or owner.mode == "c":
            return type(self), (np.array(self.array),)
        opened = (str(owner.filename), owner.dtype, "r", owner.offset, owner.shape, _layout(owner))
        return _reopened, opened


def _layout(array: np.ndarray) -> str:
    return "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"


def _reopened(path: str, dtype: Any, mode: Any, offset: int, shape: Any, order: Any) -> MappedArray:
    return MappedArray(np.memmap(path, dtype, mode, offset, shape, order))


def mapping(array: Any) -> np.memmap | None:
    """Return the memory map that an array is, or is a view of."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and array._mmap is not None:  # type: ignore[attr-defined]
            return array
        array = array.base
    return None


# --- Parquet ---------------------------------------------------------------------------------------------


class ParquetTable(Source):
    """The number columns of a Parquet file, or of a folder of files with the same columns.

    Row groups are visited in an order that depends on (seed, epoch) only, and rows are mixed inside a window of several
    groups. So a fit reads each group once an epoch and holds a window of them in memory.

    Parameters
    ----------
    path : path
        A ``.parquet`` file or a folder of them.
    target : str, optional
        The column to predict; it is read whole, and is no feature.
    columns : sequence of str, optional
        The features; by default all columns but the target.
    window : int, default=8
        Row groups that are mixed together. More mix better and take more memory.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        target: str | None = None,
        columns: Sequence[str] | None = None,
        window: int = 8,
    ) -> None:
        self.path, self.window = Path(path), window
        self._files = _parts(self.path)
        schema = self._file(0).schema_arrow
        self.columns = [name for name in (columns or schema.names) if name != target]
        for name in (*self.columns, *((target,) if target else ())):
            if name not in schema.names:
                raise errors.unknown("ParquetTable", "column", name, schema.names)
        self._check_parts(schema)
        self.dtype = _number_type([schema.field(name) for name in self.columns])
        groups = [
            (f, g, self._file(f).metadata.row_group(g).num_rows)
            for f in range(len(self._files))
            for g in range(self._file(f).num_row_groups)
        ]
        self._groups = [(f, g) for f, g, n in groups if n]
        self._open: tuple[int, Any] | None = None
        self._starts = np.cumsum([0, *(n for _, _, n in groups if n)])
        self.shape = (int(self._starts[-1]), len(self.columns))
        self._held: OrderedDict[int, np.ndarray] = OrderedDict()
        self.target_name = target

    def _file(self, part: int) -> Any:
        """Return an opened part; only its footer is read."""
        try:
            from pyarrow import ArrowInvalid
            from pyarrow.parquet import ParquetFile
        except ImportError as error:
            raise errors.missing("ParquetTable", "pyarrow", "parquet") from error
        path = self._files[part]
        try:
            return ParquetFile(path)
        except ArrowInvalid as error:
            raise errors.value("ParquetTable", f"{path.name} must be a Parquet file", error) from error

    def _check_parts(self, schema: Any) -> None:
        first = self._files[0].name
        for part in range(1, len(self._files)):
            other = self._file(part).schema_arrow
            if set(other.names) != set(schema.names):
                odd = ", ".join(map(repr, sorted(set(other.names) ^ set(schema.names))))
                must = f"all parts must have the columns of {first}"
                raise errors.value("ParquetTable", must, f"{self._files[part].name}, which differs in {odd}")
            for name in self.columns:
                if other.field(name).type != schema.field(name).type:
                    got = f"{other.field(name).type} in {self._files[part].name}"
                    must = f"column {name!r} must be {schema.field(name).type} as in {first}"
                    raise errors.value("ParquetTable", must, got)

    @cached_property
    def target(self) -> np.ndarray | None:  # type: ignore[override]
        """The target column of all parts, or None."""
        if self.target_name is None:
            return None
        parts = [self._file(f).read([self.target_name]).column(0) for f in range(len(self._files))]
        return np.concatenate([part.to_numpy() for part in parts])

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is open and what is held."""
        return {**vars(self), "_open": None, "_held": OrderedDict()}

    def _group(self, number: int) -> np.ndarray:
        """Return one row group as an array; those of a window are held."""
        if number not in self._held:
            while len(self._held) >= self.window:
                self._held.popitem(last=False)
            f, g = self._groups[number]
            if self._open is None or self._open[0] != f:
                self._open = (f, self._file(f))
            table = self._open[1].read_row_group(g, columns=self.columns, use_threads=False)
            out = np.empty((table.num_rows, len(self.columns)), self.dtype)
            for j, name in enumerate(self.columns):
                out[:, j] = table.column(name).to_numpy()
            self._held[number] = out
        return self._held[number]

    def _read(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), self.shape[1]), self.dtype)
        where = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(where):
            mine = where == number
            out[mine] = self._group(int(number))[rows[mine] - self._starts[number]]
        return out

    def order(self, seed: int) -> np.ndarray:
        """Return row groups in random order, the rows of each window of them mixed."""
        rng = np.random.default_rng(seed)
        groups = rng.permutation(len(self._groups))
        windows = []
        for begin in range(0, len(groups), self.window):
            each = [
                np.arange(self._starts[g], self._starts[g + 1]) for g in groups[begin : begin + self.window]
            ]
            windows.append(rng.permutation(np.concatenate(each)))
        return np.concatenate(windows)


def _parts(path: Path) -> list[Path]:
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or not files[0].exists():
        text = errors.wording("ParquetTable", "there must be a .parquet file, or a folder of them", str(path))
        raise FileNotFoundError(text)
    return files


def _number_type(fields: Sequence[Any]) -> np.dtype[Any]:
    """Return the floating type of number columns: float32 if no entry needs more."""
    types = []
    for field in fields:
        kind = np.dtype(field.type.to_pandas_dtype())
        if kind.kind not in "biuf":
            do = "Name the number columns: columns=[...]."
            raise errors.value("ParquetTable", f"column {field.name!r} must hold numbers", field.type, do)
        types.append(kind)
    small = all(t.kind == "b" or t.itemsize <= (4 if t.kind == "f" else 2) for t in types)
    return np.dtype(np.float32 if small else np.float64)


# --- images, and other people's data sets ----------------------------------------------------------------


class _OneByOne(Source):
    """Samples that are made one at a time, by a few threads."""

    @abstractmethod
    def _one(self, row: int) -> np.ndarray:
        """Return one sample."""

    def _read(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        with ThreadPoolExecutor(WORKERS) as pool:
            for i, sample in enumerate(pool.map(self._one, rows.tolist())):
                if sample.shape != self.shape[1:]:
                    must = f"sample {rows[i]} must have shape {self.shape[1:]} as the first one"
                    raise errors.value(type(self).__name__, must, f"shape {sample.shape}")
                out[i] = sample
        return out


class ImageFolder(_OneByOne):
    """The images of a folder with a sub-folder per class, decoded by threads when they are needed.

    Parameters
    ----------
    path : path
        The folder.
    size : (int, int), optional
        Height and width that all images are resized to; by default they must have one size.
    files : sequence of path, optional
        Those to take; by default all images of the folder.
    crop : bool, default=False
        Whether images of another size are scaled to cover it and cropped around their centre, rather than stretched.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        size: tuple[int, int] | None = None,
        *,
        files: Sequence[Path] | None = None,
        crop: bool = False,
    ) -> None:
        from corollary.data.folders import by_class
        from corollary.data.images import SUFFIXES

        self.files, self.target = by_class(Path(path), SUFFIXES, "image")
        if files is not None:
            wanted = {*files}
            kept = [file in wanted for file in self.files]
            self.target = None if self.target is None else self.target[kept]
            self.files = [file for file, good in zip(self.files, kept) if good]
        self.size, self.crop = size, crop
        self.channels = 3
        first = self._one(0)
        self.dtype = first.dtype
        if first.shape[0] == 3 and (first[0] == first[1]).all() and (first[0] == first[2]).all():
            self.channels, first = 1, first[:1]
        self.shape = (len(self.files), *first.shape)

    def _contents(self) -> Iterator[bytes]:
        for file in self.files:  # not decoded
            content = file.read_bytes()
            yield f"{file.name} {len(content)};".encode() + content

    def _one(self, row: int) -> np.ndarray:
        from corollary.data.images import fitted_to, in_depth, picture

        raw, name = self.files[row].read_bytes(), self.files[row].name
        image = fitted_to(raw, name, self.size) if self.crop and self.size else picture(raw, name)
        if self.size is not None and image.shape[:2] != tuple(self.size):
            from PIL import Image

            height, width = self.size
            image = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
        image = in_depth(image, getattr(self, "dtype", image.dtype))  # of the first one
        if image.ndim == 2:
            return np.repeat(image[None], self.channels, axis=0)
        return np.moveaxis(image, 2, 0)[: self.channels]


class MapDataset(_OneByOne):
    """A torch ``Dataset``: anything with ``__len__`` and ``__getitem__`` that gives ``x`` or ``(x, y)``."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        if len(dataset) < 1:
            raise errors.value("fit", "the data set must have samples", "none")
        self._pairs = isinstance(dataset[0], tuple | list)
        first = self._one(0)
        self.shape, self.dtype = (len(dataset), *first.shape), first.dtype

    def _steady(self) -> bool:
        few = range(min(4, len(self)))
        return all(np.array_equal(self._one(row), self._one(row)) for row in few)

    def _one(self, row: int) -> np.ndarray:
        found = self.dataset[row]
        return _sample(found[0] if self._pairs else found)

    @cached_property
    def target(self) -> np.ndarray | None:  # type: ignore[override]
        """The second part of every pair; ``targets``, ``labels`` or the second tensor where the data set has them."""
        if not self._pairs or len(self.dataset[0]) < 2:
            return None
        known = getattr(self.dataset, "targets", getattr(self.dataset, "labels", None))
        tensors: Sequence[Any] = getattr(self.dataset, "tensors", ())
        if known is None and len(tensors) == 2:
            known = tensors[1]
        if known is not None and len(known) == len(self):
            return np.asarray(known)
        return np.stack([np.asarray(self.dataset[i][1]) for i in range(len(self))])


def _sample(x: Any) -> np.ndarray:
    """Return one sample, a tensor, an array or a Pillow image, as an array."""
    if hasattr(x, "getbands"):
        from corollary.data.images import pixels

        image = pixels(x)
        return image[None] if image.ndim == 2 else np.moveaxis(image, 2, 0)
    if isinstance(x, dict | tuple):
        do = "Pass several inputs in memory, as a dict of arrays of all samples."
        raise errors.kind("fit", "a sample of a data set must be one array", f"a {type(x).__name__}", do)
    return np.asarray(x)


class Stream(Source):
    """An iterable of ``x`` or ``(x, y)``: a torch ``IterableDataset``, or a function that returns a new iterator.

    It is walked through once to count the samples and to collect the targets, and then once in every epoch. It may come in
    any order, but with targets the order must be the same in every epoch. If it has ``state_dict`` and ``load_state_dict``,
    a resumed fit goes on at the saved position; if not, it walks there again.
    """

    sequential = True

    def __init__(self, iterable: Any) -> None:
        if isgenerator(iterable) or (isinstance(iterable, Iterator) and not callable(iterable)):
            do = "Pass the generator function, or another object that can be iterated anew."
            raise errors.kind(
                "fit", "X must give its samples anew in every epoch", type(iterable).__name__, do
            )
        self.iterable = iterable
        self._pairs = False
        self._resumed: Any = None
        first, targets, n = None, [], 0
        total = hashlib.blake2b(digest_size=16)
        for sample in self._walk():
            self._pairs = isinstance(sample, tuple | list)
            x, y = (sample[0], sample[1]) if self._pairs else (sample, None)
            x = _sample(x)
            total.update(x.tobytes())
            first = x if first is None else first
            targets += [y] if self._pairs else []
            n += 1
        if first is None:
            raise errors.value("fit", "the iterable must give samples", "none")
        self._first, self._seen = first[None], total.hexdigest()
        self.shape, self.dtype = (n, *first.shape), first.dtype
        self.target = np.asarray([np.asarray(y) for y in targets]) if self._pairs else None

    def _walk(self) -> Iterable[Any]:
        return self.iterable() if not hasattr(self.iterable, "__iter__") else iter(self.iterable)

    def head(self, n: int) -> np.ndarray:
        """Return the first samples."""
        return self._first if n == 1 else self[:n]

    def __getitem__(self, key: Any) -> np.ndarray:
        """Return samples of a slice by walking there."""
        rows = np.atleast_1d(np.arange(len(self))[key])
        return self._read(rows)

    def _read(self, rows: np.ndarray) -> np.ndarray:
        if len(rows) and not np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
            must, do = "a stream can only be read in order", "Give a validation part of its own."
            raise errors.value("fit", must, "rows in another order", do)
        if not len(rows):
            return np.empty((0, *self.shape[1:]), self.dtype)
        found = [x for i, x in enumerate(self._samples(0)) if rows[0] <= i <= rows[-1]]
        return np.stack(found)

    def _steady(self) -> bool:
        first = next(iter(self._walk()))
        return np.array_equal(_sample(first[0] if self._pairs else first), self._first[0])

    def _contents(self) -> Iterator[bytes]:
        yield self._seen.encode()  # when the samples were counted

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all samples in order."""
        step = max(1, BLOCK * len(self) // max(1, self.nbytes))
        return self.batches(step, 0)

    def _samples(self, skip: int) -> Iterator[np.ndarray]:
        done = 0
        if self._resumed is not None and skip:  # the iterable goes on behind the samples that were given
            self.iterable.load_state_dict(self._resumed)
            done = skip
        self._resumed = None
        for sample in self._walk():
            done += 1
            if done > skip:
                self._check_order(sample, done)
                yield _sample(sample[0] if self._pairs else sample)
        if done != len(self):
            must = f"the iterable must give the {len(self)} samples that it gave at first"
            raise errors.value("fit", must, f"{done} of them", "Each epoch must walk through the same data.")

    def _check_order(self, sample: Any, place: int) -> None:
        """Raise if a sample comes with another target than the one that stood at this place at first."""
        if self.target is None or place > len(self) or np.array_equal(sample[1], self.target[place - 1]):
            return
        must = "an iterable with targets must give its samples in the same order in every epoch"
        got = f"the target {np.asarray(sample[1]).tolist()!r} at place {place}, where {self.target[place - 1].tolist()!r} was"
        do = "Shuffle once, with a fixed seed, or pass a Dataset with __getitem__, which is shuffled for you."
        raise errors.value("fit", must, got, do)

    def batches(self, batch_size: int, start: int) -> Iterator[np.ndarray]:
        """Yield consecutive batches, from the ``start``-th on."""
        held: list[np.ndarray] = []
        for x in self._samples(start * batch_size):
            held.append(x)
            if len(held) == batch_size:
                yield np.stack(held)
                held = []
        if held:
            yield np.stack(held)

    def state_dict(self) -> Any:
        """Return the position of the iterable, if it knows it."""
        return self.iterable.state_dict() if hasattr(self.iterable, "state_dict") else None

    def load_state_dict(self, state: Any) -> None:
        """Remember a position to go on from."""
        self._resumed = state


def as_source(X: Any) -> Source | None:
    """Return what X is as a source; None if it is data in memory."""
    if isinstance(X, Source):
        return X
    if isinstance(X, np.ndarray):
        return MappedArray(X) if mapping(X) is not None else None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(X, torch.utils.data.IterableDataset):
        return Stream(X)
    if torch is not None and isinstance(X, torch.utils.data.Dataset):
        return MapDataset(X)
    if torch is not None and isinstance(X, torch.utils.data.DataLoader):
        do = "Pass loader.dataset; batches are made by Training(batch_size=...)."
        raise errors.kind("fit", "X must be samples", "a DataLoader, which gives batches", do)
    if callable(X) or (isinstance(X, Iterator) and not hasattr(X, "__len__")):
        return Stream(X)
    return None
