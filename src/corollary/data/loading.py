"""``load``, the one way to data: it takes a name, a path, or what is already in memory.

What a path holds is told by ``kind``, or else by this table:

===================================================  ========================================================
path                                                 kind
===================================================  ========================================================
``.csv .tsv .tab .xlsx .json .jsonl .parquet``       ratings if the header has user, item and rating (or
                                                     value) and no target is asked for, else table; text
                                                     files also as ``.csv.gz .csv.bz2 .csv.xz .csv.zip``
``.dat .data``                                       table
``.npy``                                             table if 2-D, image if 3-D or 4-D
``.npz``                                             ratings if written by ``scipy.sparse.save_npz`` (a
                                                     table if told so), graph with ``edge_index``,
                                                     graphs with ``batch`` too (the graph of each node),
                                                     sequence with ``lengths``, else as ``.npy``;
                                                     data in ``X``, target in ``y``
``.txt``                                             text, a document per line
``sqlite:///file.db#table`` and other addresses      table, through SQLAlchemy
``.edges .edgelist .graphml .gml``                   graph
``.wav``                                             sequence
``.png .jpg .jpeg .bmp .gif .pgm .ppm .tif .webp``   image
folder of such images, ``.wav`` or ``.txt``          image, sequence or text, a sub-folder per class
folder with ``images/`` and ``masks/``               image, a mask of labels for each as its target
folder with ``nodes.csv`` and ``edges.csv``          graph, with the columns of the nodes as features and target
===================================================  ========================================================

A delimited or ``.txt`` file can also be told to be ratings (triples), graph (an edge list), table, text
or sequence (series, if it has a date column, else strings); any other file, with a ``kind``, is read as delimited text.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from corollary import errors
from corollary.data import edges, images, kinds, masks, ratings, registry, sounds, tables, texts
from corollary.data.arrays import read_npy, read_npz
from corollary.data.compressed import plain_suffix
from corollary.data.dataset import KINDS, Dataset, missing_file
from corollary.data.detect import told_kinds
from corollary.data.folders import files_in
from corollary.data.limits import Limits
from corollary.data.limits import reading as bounded
from corollary.data.memory import from_arrays, from_memory, no_target, with_target
from corollary.data.node_tables import node_files, read_nodes_and_edges
from corollary.data.series import as_series, has_dates

__all__ = ["load"]

_DELIMITED = (".csv", ".tsv", ".tab", ".dat", ".data", *tables.READERS)
_EDGES = (".edges", ".edgelist")


def load(
    source: Any,
    kind: str | None = None,
    target: str | None = None,
    *,
    y: Any = None,
    columns: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    reading: Mapping[str, Any] | None = None,
    directed: bool | None = None,
) -> Dataset:
    """Return data of any kind, from a name, a file, a folder or memory.

    Parameters
    ----------
    source : str, path, array, DataFrame, dict of columns, sparse matrix, graph, list or Dataset
        The name of a data set (see :func:`corollary.data.names`; it wins over a file of that name,
        for which write ``./name``), a path, or data in memory; a pair of frames, or of paths, is a table of nodes and one of
        edges.
    kind : str, optional
        What the data are: table, image, sequence, set, graph, graphs, text or ratings. Otherwise
        inferred; the rules stand at the head of this module.
    target : str, optional
        The column of a table, key of an ``.npz`` file, or node attribute of a graph (a GraphML file, a networkx graph, a
        table of nodes) that becomes ``y``. Numbers stay numbers, anything else becomes class labels as strings.
    y : array-like, optional
        The target of data in memory, one entry per example (per node of a graph).
    columns : dict of str to str, optional
        What columns of a table are, where the reader would see it otherwise: number, category, date, text, id (left
        out of the features) or ignore.
    limits : Limits, optional
        How much memory a file may unpack to, and how wide a table of text may be; raise them for large files that
        you trust: ``Limits(bytes=2**33)``.
    reading : dict, optional
        How the data of a fit were read, ``extra["reading"]`` of theirs: new data are then read alike.
    directed : bool, optional
        Whether the edges of an edge list or a table of edges go one way; by default only where the file says so.

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
        found = load(source, kind, columns=columns, limits=limits, reading=reading, directed=directed)
        return with_target(found, y)
    if kind is not None and kind not in KINDS:
        raise errors.unknown("load", "kind", str(kind), KINDS)
    if isinstance(source, Dataset):
        return _told(_as_kind(source, kind, target), columns)
    if kind in (None, "graph") and _two_paths(source):
        with bounded(limits):
            nodes, ends = map(Path, source)
            return read_nodes_and_edges(nodes, ends, target, reading or {}, directed)
    if not isinstance(source, str | os.PathLike):
        found = from_memory(source, kind, target, "data", columns, directed)
        return found if hasattr(source, "columns") else _told(found, columns)
    if isinstance(source, str) and registry.known(source):
        return _told(_as_kind(registry.open_named(source), kind, target), columns)
    if isinstance(source, str) and "://" in source:
        return tables.read_database(source, target, columns)
    path = Path(source).expanduser()
    path = path if path.name not in ("", "..") else path.resolve()  # the current folder has a name too
    if not path.exists():
        raise _no_such(path, str(source))
    with bounded(limits):
        how = _How(kind, target, columns, reading or {}, directed)
        found = _from_folder(path, how) if path.is_dir() else _from_file(path, how)
    return found if found.kind == "table" and found.feature_names else _told(found, columns)


def _no_such(path: Path, source: str) -> FileNotFoundError:
    """Return the error for a source that does not exist: a path names files beside it, a word data sets like it."""
    must = "the source must be a data set or a path that exists"
    if not path.suffix and path.parent == Path():
        near = errors.closest(source, registry.names())
        do = f"Data sets with a name like it: {near}. See corollary.data.names()."
    elif not path.parent.is_dir():
        do = f"There is no folder {str(path.parent)!r} either."
    else:
        near = errors.closest(path.name, (other.name for other in path.parent.iterdir()))
        do = f"In {str(path.parent.resolve())!r} there is {near or 'nothing'}."
    return missing_file("load", must, repr(source), do)


def _told(dataset: Dataset, columns: Mapping[str, str] | None) -> Dataset:
    """Return the data with what the user says about columns, or raise if there are none."""
    if not columns:
        return dataset
    if dataset.kind != "table" or hasattr(dataset.X, "tocsr"):
        must, do = "columns= (--column) is for tables", "Leave it out, or pass kind='table'."
        raise errors.value("load", must, f"data of kind {dataset.kind}", do)
    names = [*(dataset.feature_names or (f"x{i}" for i in range(dataset.X.shape[1])))]
    known = {**dataset.extra.get("columns", {}), **told_kinds(columns, names)}
    return replace(dataset, feature_names=names, extra={**dataset.extra, "columns": known})


class _How(NamedTuple):
    """How a path is to be read."""

    kind: str | None
    target: str | None
    columns: Mapping[str, str] | None
    reading: Mapping[str, Any]
    directed: bool | None = None


def _two_paths(source: Any) -> bool:
    """Whether these are the files of nodes and of edges."""
    pair = isinstance(source, list | tuple) and len(source) == 2
    return pair and all(isinstance(part, os.PathLike) for part in source)


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


def _from_folder(folder: Path, how: _How) -> Dataset:
    if how.kind in (None, "graph") and (files := node_files(folder)):
        return read_nodes_and_edges(*files, how.target, how.reading, how.directed)
    no_target(how.target, folder.name)
    readers: dict[str, Any] = {
        "image": images.read_folder,
        "sequence": sounds.read_sounds,
        "text": texts.read_documents,
    }
    kind = how.kind or _folder_kind(folder)
    if kind == "image" and masks.mask_folders(folder):
        return masks.read_masked(folder, how.reading)
    if kind not in readers:
        do = "Pass the path of the file itself."
        raise errors.value("load", "a folder must hold images, sounds or texts", f"kind={kind!r}", do)
    return readers[kind](folder, how.reading)  # type: ignore[no-any-return]


def _folder_kind(folder: Path) -> str:
    inner = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    found = {file.suffix.lower() for path in inner for file in files_in(path)}
    for kind, suffixes in {"image": images.SUFFIXES, "sequence": (".wav",), "text": (".txt",)}.items():
        if found & set(suffixes):
            return kind
    must = f"{folder.name} must hold image, .wav or .txt files, or sub-folders of them"
    raise errors.value("load", must, ", ".join(sorted(found)) or "no files")


def _from_file(path: Path, how: _How) -> Dataset:
    kind, suffix = how.kind, plain_suffix(path)
    if path.stat().st_size == 0:
        raise errors.value("load", f"{path.name} must have content", "an empty file")
    if suffix in (".npy", ".npz"):
        return _from_numpy(path, kind, how.target)
    if suffix in (".graphml", ".gml"):
        return _fixed(edges.read_graphml(path, how.target), kind, path)
    if suffix in (".xls", ".ods"):
        do = "Save it as .xlsx or .csv in the program that made it."
        raise errors.value("load", "a workbook must be an .xlsx file", repr(suffix), do)
    if suffix in _DELIMITED or (suffix == ".txt" and kind) or (kind and suffix not in _fixed_suffixes()):
        return _from_delimited(path, how)
    no_target(how.target, path.name)
    if suffix == ".txt":
        return texts.read_text(path, how.reading)
    if suffix in _EDGES:
        return _fixed(edges.read_edges(path, how.directed), kind, path)
    if suffix == ".wav":
        return _fixed(sounds.read_sounds(path, how.reading), kind, path)
    if suffix in images.SUFFIXES:
        return _fixed(images.read_image(path, how.reading), kind, path)
    known = (*_DELIMITED, ".npy", ".npz", ".txt", *_fixed_suffixes())
    do = "Pass kind= (--kind table) to read it as delimited text."
    raise errors.value("load", f"{path.name} must end in one of {', '.join(known)}", repr(suffix), do)


def _fixed_suffixes() -> tuple[str, ...]:
    return (*_EDGES, ".graphml", ".gml", ".wav", *images.SUFFIXES)


def _fixed(dataset: Dataset, kind: str | None, path: Path) -> Dataset:
    if kind not in (None, dataset.kind):
        raise errors.value("load", f"{path.name} holds data of kind {dataset.kind}", f"kind={kind!r}")
    return dataset


def _from_delimited(path: Path, how: _How) -> Dataset:
    kind, target = how.kind, how.target
    if kind in ("ratings", "graph"):
        no_target(target, path.name)
        return ratings.read_ratings(path) if kind == "ratings" else _edge_table(path, how.directed)
    if kind in ("text", "sequence") and path.suffix.lower() == ".txt" and target is None:
        return replace(texts.read_text(path, how.reading), kind=kind)
    if kind in ("image", "set", "graphs"):
        do = "Save the data as .npz."
        raise errors.value("load", f"{path.name} cannot hold data of kind {kind}", "delimited text", do)
    if kind == "sequence":
        dated = tables.read_table(path, target, how.columns, how.reading.get("columns"))
        if has_dates(dated):
            return as_series(dated, dict(how.reading))
    if kind in ("text", "sequence"):
        frame, _ = tables.read_frame(path)
        return replace(texts.text_column(frame, tables.plain_stem(path), target, str(path)), kind=kind)
    found = tables.read_table(path, target, how.columns, how.reading.get("columns"))
    names = found.feature_names or ()
    if kind is None and target is None and not how.columns and ratings.triple_columns(names):
        return ratings.read_ratings(path)
    return found


def _edge_table(path: Path, directed: bool | None) -> Dataset:
    if plain_suffix(path) not in tables.READERS:
        return edges.read_edges(path, directed)
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
