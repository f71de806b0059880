"""Change the values of whole files, as an attacker would, and see that nothing worse than an error comes of it.

``python tests/contract/hostile.py CHAPTER [COUNT [SEED]]`` prints, as JSON, what went wrong with each estimator of a chapter:
its model file and a checkpoint of its learner are written, changed in COUNT ways each with the checksum made anew, and
read. A reader may refuse with its own error or accept; whatever was accepted is used. A process of its own for each
estimator shows crashes.
"""

import contextlib
import copy
import json
import math
import os
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save as to_bytes
from sklearn.base import clone

from corollary import catalog, io, testing
from corollary.engine.checkpoints import plain
from corollary.testing import outputs

SECONDS = 240  # an estimator that takes longer hangs
MEGABYTES = 256  # what reading a file of a few kilobytes may take at most


# --- files -----------------------------------------------------------------------------------------------


def write(path, header, arrays):
    """Write a file with a right checksum."""
    text = json.dumps(header)
    arrays = {name: np.array(a, order="C", ndmin=np.ndim(a)) for name, a in arrays.items()}
    path.write_bytes(to_bytes(arrays, metadata={io.KEY: text, "sha256": io._digest(text, arrays)}))


def places(node, path=()):
    """Yield the path of every value in the header's document."""
    yield path, node
    if isinstance(node, dict | list):
        for key in node if isinstance(node, dict) else range(len(node)):
            yield from places(node[key], (*path, key))


def array_changes(a, rng):
    """Return what an array may be changed to."""
    one, large = np.array(a), {"f": math.nan, "b": True, "c": math.nan}
    if one.size:
        end = np.iinfo(a.dtype).max if a.dtype.kind in "iu" else None
        one.flat[rng.integers(one.size)] = large[a.dtype.kind] if end is None else min(2**40, end)
    changed = [
        one,
        a[:0] if a.ndim else a,
        np.concatenate([a, a]) if a.ndim else a[None],
        a[None],
        a.ravel(),
        np.zeros_like(a),
    ]
    changed += [a.astype(np.float64) if a.dtype.kind in "iub" else a.astype(np.int64)] if a.size else []
    changed += [np.full_like(a, -1)] if a.dtype.kind in "if" else []
    changed += [a * a.dtype.type(1e30)] if a.dtype.kind == "f" else []
    changed += [a.T, a[:, :-1]] if a.ndim > 1 else []
    return changed


def scalar_changes(value):
    """Return what a value of the header may be changed to."""
    if isinstance(value, bool) or value is None:
        return [7, "x", [], not value]
    if isinstance(value, int):
        return [-1, 0, value + 1, 60_000_000, 2**31, 2**62, 10**30, 0.5, "x", None]
    if isinstance(value, float):
        return [-1.0, 0.0, 1e308, {"$": "float", "value": "nan"}, "x", None]
    if isinstance(value, str):
        return ["x", "", "float64", "U400000000", "dia", 3]
    if isinstance(value, list):
        return [[], value * 2, value[:-1], 3, [value]]
    return [None, 3, {}, *({k: v for k, v in value.items() if k != key} for key in list(value)[:3])]


def changes(header, arrays, count, rng, within):
    """Yield what was changed, and the changed header and arrays."""
    with np.errstate(all="ignore"):
        first = [
            (n, i) for n in arrays if arrays[n].dtype.kind in "iu" for i in range(3)
        ]  # indices before all
        every = [(n, i) for n in arrays for i in range(len(array_changes(arrays[n], rng)))]
        rest = [every[i] for i in rng.permutation(len(every))]
        for name, i in [*first[: count // 4], *rest[: count // 2]]:
            changed = array_changes(arrays[name], np.random.default_rng(int(rng.integers(2**31))))[i]
            yield (
                f"array {name} change {i}: {changed.dtype}{changed.shape}",
                header,
                {**arrays, name: changed},
            )
    spots = [path for path, _ in places(header["document"]) if path and within(path)]
    for _ in range(count // 2 if spots else 0):
        path = spots[rng.integers(len(spots))]
        new = copy.deepcopy(header)
        node = new["document"]
        for key in path[:-1]:
            node = node[key]
        options = scalar_changes(node[path[-1]])
        node[path[-1]] = options[rng.integers(len(options))]
        yield f"{'.'.join(map(str, path))} = {str(node[path[-1]])[:60]}", new, arrays


def learning():
    """Return the entries of the catalog whose objects are fitted and saved."""
    return [entry for entry in catalog.entries() if entry.kind in ("estimator", "sampler")]


def normal(theta):
    """The log-density that samplers draw from."""
    return -0.5 * (theta**2).sum(-1)


class Caught(Exception):
    """A fit has made its learner."""


# --- one estimator ---------------------------------------------------------------------------------------


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def attack_file(model, X, folder, count, rng, note):
    """Yield what loading changed files did that it must not."""
    path = model.save(folder / "model.safetensors")
    header, arrays = io._open(path)
    outputs(io.load(path), X)
    for what, *changed in changes(header, arrays, count, rng, lambda path: path[-1] != "version"):
        note(what)
        write(path, *changed)
        before, loaded = peak(), None
        try:
            loaded = io.load(path)
        except io.FileError:
            pass
        except BaseException as error:
            yield f"{what}: load raised {type(error).__name__}: {error}"
        if peak() - before > MEGABYTES:
            yield f"{what}: load took {peak() - before:.0f} MB"
        if loaded is not None and not (what.startswith("params.") or "max_" in what):
            try:
                outputs(loaded, X)
            except Exception:  # an error is well; a crash ends the process
                pass


def attack_checkpoint(model, X, y, folder, count, rng, note):
    """Go on from changed states of a learner; only a crash counts, since the engine turns errors into a new beginning."""

    def learner():
        fresh, caught = clone(model), []

        def catch(learner, *rest):
            caught.append(learner)
            raise Caught

        fresh._drive, fresh._rolled_back_on_failure = catch, contextlib.nullcontext
        with contextlib.suppress(Caught):
            fresh.fit(X, y)
        return fresh, caught[0]

    _, begun = learner()
    for _ in range(2):
        if not begun.done:
            begun.step()
    path = io.write(folder / "checkpoint", plain(begun.state()), "checkpoint")
    header, arrays = io._open(path)
    for what, *changed in changes(header, arrays, count, rng, lambda path: True):
        note(f"learner {what}")
        write(path, *changed)
        fresh, resumed = learner()
        try:
            resumed.restore(io.read(path, "checkpoint"))
            if not resumed.done:
                resumed.step()
            fresh._adopt(resumed)
            outputs(fresh, X)
        except Exception:
            pass


def attack(name, count, seed, note):
    """Return what went wrong with one estimator."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    entry = next(e for e in learning() if e.name == name)
    cls = entry.load()
    few = {"n_chains": 2, "n_draws": 8, "warmup": 4} if entry.kind == "sampler" else {}
    model = cls(**(cls._test_params() if hasattr(cls, "_test_params") else few))
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    if entry.kind == "sampler":
        X, y = normal, np.zeros(3)
    else:
        X, y = model._test_data() if hasattr(model, "_test_data") else testing.sample_data(model.input)
    rng = np.random.default_rng([seed, *name.encode()])
    found = []
    with tempfile.TemporaryDirectory() as folder:
        found += attack_file(clone(model).fit(X, y), X, Path(folder), count, rng, note)
        attack_checkpoint(model, X, y, Path(folder), count, rng, note)
    return found


def isolated(name, count, seed):
    """Attack one estimator in a process of its own; return what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        log, result = Path(folder) / "log", Path(folder) / "result"
        child = os.fork()
        if not child:
            signal.alarm(SECONDS)
            soft = resource.getrlimit(resource.RLIMIT_AS)[1]
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + 4 * 2**30, soft))
            code = 1
            try:
                found = attack(name, count, seed, lambda what: log.write_text(what))
                result.write_text(json.dumps(found))
                code = 0
            except BaseException:
                result.write_text(json.dumps([traceback.format_exc()[-1500:]]))
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            last = log.read_text() if log.exists() else "the fit"
            return [f"{signal.Signals(os.WTERMSIG(status)).name} at {last}"]
        return json.loads(result.read_text())


if __name__ == "__main__":
    chosen = sys.argv[1]
    amount, first_seed = (int(word) for word in [*sys.argv[2:], 32, 0][:2])
    names = dict.fromkeys(entry.name for entry in learning() if chosen in (entry.chapter, entry.name))
    print(json.dumps({name: isolated(name, amount, first_seed) for name in names}))
