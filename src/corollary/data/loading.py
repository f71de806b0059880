"""The one door to data: ``load`` takes a name, a path, or what is already in memory.

What a path holds is told by ``kind``, or else by this table:

===================================================  ========================================================
path                                                 kind
===================================================  ========================================================
``.csv .tsv .tab .parquet .pq``                      ratings if the header has user, item and rating (or
                                                     value) and no target is asked for, else table
``.dat .data``                                       table
``.npy``                                             table if 2-D, image if 3-D or 4-D
``.npz``                                             ratings if written by ``scipy.sparse.save_npz`` (a
                                                     table if told so), graph with ``edge_index``,
                                                     graphs with ``batch`` too (the graph of each node),
                                                     sequence with ``lengths``, else as ``.npy``;
                                                     data in ``X``, target in ``y``
``.txt``                                             text, a document per line
``.edges .edgelist .graphml``                        graph
``.wav``                                             sequence
``.png .jpg .jpeg .bmp .gif .pgm .ppm .tif .webp``   image
folder of such images, ``.wav`` or ``.txt``          image, sequence or text, a sub-folder per class
===================================================  ========================================================

A delimited or ``.txt`` file can also be told to be ratings (triples), graph (an edge list), table, text
or sequence (strings); any other file, with a ``kind``, is read as delimited text.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from corollary import errors
from corollary.data import edges, images, kinds, ratings, registry, sounds, tables, texts
from corollary.data.arrays import read_npy, read_npz
from corollary.data.dataset import KINDS, Dataset, missing_file
from corollary.data.folders import files_in
from corollary.data.limits import Limits, reading
from corollary.data.memory import from_arrays, from_memory, no_target, with_target

__all__ = ["load"]

_DELIMITED = (".csv", ".tsv", ".tab", ".parquet", ".pq", ".dat", ".data")
_EDGES = (".edges", ".edgelist")


def load(
    source: Any,
    kind: str | None = None,
    target: str | None = None,
    *,
    y: Any = None,
    limits: Limits | None = None,
) -> Dataset:
    """Return data of any kind, from a name, a file, a folder or memory.

    Parameters
    ----------
    source : str, path, array, DataFrame, sparse matrix, graph, list or Dataset
        The name of a data set (see :func:`corollary.data.names`; it wins over a file of that name,
        for which write ``./name``), a path, or data in memory.
    kind : str, optional
        What the data are: table, image, sequence, set, graph, graphs, text or ratings. Otherwise
        inferred; the rules stand at the head of this module.
    target : str, optional
        The column of a table, key of an ``.npz`` file, or node attribute of a GraphML file that
        becomes ``y``. Numbers stay numbers, anything else becomes class labels as strings.
    y : array-like, optional
        The target of data in memory, one entry per example (per node of a graph).
    limits : Limits, optional
        How much memory a file may unpack to, and how wide a table of text may be; raise them for large files that
        you trust: ``Limits(bytes=2**33)``.

    Returns
    -------
    Dataset
        ``X``, ``y``, and what is known about them.

    Examples
    --------
    >>> from corollary import data
    >>> data.load("digits")
    Dataset 'digits': image, X (1797, 8, 8), y (1797,)
    >>> data.load([[0, 1, 1], [2, 0]], kind="sequence")
    Dataset 'data': sequence, X list of 2
    >>> data.load([[0.0, 1.0], [2.0, 3.0]], y=["no", "yes"])
    Dataset 'data': table, X (2, 2), y (2,)
    """
    if y is not None:
        if target is not None:
            do = "Pass one of them."
            raise errors.value("load", "the target must come from y= or from target=", "both", do)
        return with_target(load(source, kind), y)
    if kind is not None and kind not in KINDS:
        raise errors.unknown("load", "kind", str(kind), KINDS)
    if isinstance(source, Dataset):
        return _as_kind(source, kind, target)
    if not isinstance(source, str | os.PathLike):
        return from_memory(source, kind, target, "data")
    if isinstance(source, str) and registry.known(source):
        return _as_kind(registry.open_named(source), kind, target)
    path = Path(source).expanduser()
    if not path.exists():
        near = errors.closest(str(source), registry.names())
        do = f"Data sets with a name like it: {near}. See corollary.data.names()."
        raise missing_file(
            "load", "the source must be a data set or a path that exists", repr(str(source)), do
        )
    with reading(limits):
        return _from_folder(path, kind, target) if path.is_dir() else _from_file(path, kind, target)


def _as_kind(dataset: Dataset, kind: str | None, target: str | None) -> Dataset:
    """Return a data set as it is, or images as a table of pixels."""
    if target is not None:
        must = f"{dataset.name!r} brings its own target; target= is for files and frames"
        raise errors.value("load", must, f"target={target!r}", "Leave target out.")
    if kind in (None, dataset.kind):
        return dataset
    if (dataset.kind, kind) == ("image", "table"):
        flat = kinds.check_images(dataset.X, "load").reshape(len(dataset), -1)
        return replace(dataset, X=flat, kind="table")
    do = f"Leave kind out, or use kind={dataset.kind!r}."
    raise errors.value("load", f"{dataset.name!r} is of kind {dataset.kind}", f"kind={kind!r}", do)


# -------------------------------------------------------------------------------- files and folders


def _from_folder(folder: Path, kind: str | None, target: str | None) -> Dataset:
    no_target(target, folder.name)
    readers = {"image": images.read_folder, "sequence": sounds.read_sounds, "text": texts.read_documents}
    kind = kind or _folder_kind(folder)
    if kind not in readers:
        do = "Pass the path of the file itself."
        raise errors.value("load", "a folder must hold images, sounds or texts", f"kind={kind!r}", do)
    return readers[kind](folder)


def _folder_kind(folder: Path) -> str:
    inner = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    found = {file.suffix.lower() for path in inner for file in files_in(path)}
    for kind, suffixes in {"image": images.SUFFIXES, "sequence": (".wav",), "text": (".txt",)}.items():
        if found & set(suffixes):
            return kind
    must = f"{folder.name} must hold image, .wav or .txt files, or sub-folders of them"
    raise errors.value("load", must, ", ".join(sorted(found)) or "no files")


def _from_file(path: Path, kind: str | None, target: str | None) -> Dataset:
    suffix = path.suffix.lower()
    if path.stat().st_size == 0:
        raise errors.value("load", f"{path.name} must have content", "an empty file")
    if suffix in (".npy", ".npz"):
        return _from_numpy(path, kind, target)
    if suffix == ".graphml":
        return _fixed(edges.read_graphml(path, target), kind, path)
    if suffix in _DELIMITED or (suffix == ".txt" and kind) or (kind and suffix not in _fixed_suffixes()):
        return _from_delimited(path, kind, target)
    no_target(target, path.name)
    if suffix == ".txt":
        return texts.read_lines(path)
    if suffix in _EDGES:
        return _fixed(edges.read_edges(path), kind, path)
    if suffix == ".wav":
        return _fixed(sounds.read_sounds(path), kind, path)
    if suffix in images.SUFFIXES:
        return _fixed(images.read_image(path), kind, path)
    known = (*_DELIMITED, ".npy", ".npz", ".txt", *_fixed_suffixes())
    do = "Pass kind= to read it as delimited text."
    raise errors.value("load", f"{path.name} must end in one of {', '.join(known)}", repr(suffix), do)


def _fixed_suffixes() -> tuple[str, ...]:
    return (*_EDGES, ".graphml", ".wav", *images.SUFFIXES)


def _fixed(dataset: Dataset, kind: str | None, path: Path) -> Dataset:
    if kind not in (None, dataset.kind):
        raise errors.value("load", f"{path.name} holds data of kind {dataset.kind}", f"kind={kind!r}")
    return dataset


def _from_delimited(path: Path, kind: str | None, target: str | None) -> Dataset:
    if kind in ("ratings", "graph"):
        no_target(target, path.name)
        return ratings.read_ratings(path) if kind == "ratings" else _edge_table(path)
    if kind in ("text", "sequence") and path.suffix.lower() == ".txt" and target is None:
        return replace(texts.read_lines(path), kind=kind)
    if kind in ("image", "set", "graphs"):
        do = "Save the data as .npz."
        raise errors.value("load", f"{path.name} cannot hold data of kind {kind}", "delimited text", do)
    frame = tables.read_frame(path)
    if kind in ("text", "sequence"):
        return replace(texts.text_column(frame, path.stem, target, str(path)), kind=kind)
    if kind is None and target is None and ratings.triple_columns(frame.columns):
        return ratings.dataset_from(frame, path)
    return tables.as_table(frame, path.stem, target, str(path))


def _edge_table(path: Path) -> Dataset:
    if path.suffix.lower() not in (".parquet", ".pq"):
        return edges.read_edges(path)
    do = "Save it as .csv."
    raise errors.value("load", "an edge list must be a text file", path.suffix, do)


def _from_numpy(path: Path, kind: str | None, target: str | None) -> Dataset:
    if path.suffix.lower() == ".npy":
        no_target(target, path.name)
        return replace(from_memory(read_npy(path), kind, None, path.stem), source=str(path))
    arrays = read_npz(path)
    if not arrays:
        raise errors.value("load", f"{path.name} must hold at least one array", "none")
    return replace(from_arrays(arrays, kind, target, path.stem), source=str(path))
