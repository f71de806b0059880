"""A second device that every machine has: memory of the processor that may not be mixed with the rest.

Storages that were moved to ``privateuseone`` are remembered, and tensors in them say that they are there. Every torch function
is watched: one that would need both memories is refused as CUDA refuses it, ``numpy()`` and ``np.asarray`` need ``.cpu()``, and
noise is drawn from a generator of the device's own. Backward passes run unwatched, with the gradients that the forward passes
left. Values are computed by the processor, so results can be compared.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves, tree_map

from corollary.engine.run import Run

NAME = "privateuseone"
DEVICE = torch.device(NAME)
CROSSING = {"copy_", "__set__", "set_data", "load_state_dict", "is_set_to", "__deepcopy__"}
LENGTHS = {"_pack_padded_sequence", "_pad_packed_sequence"}  # these give back lengths, which stay here
PACKED = LENGTHS | {"lstm", "gru", "rnn_tanh", "rnn_relu"}  # these take lengths, which must be here
PLAIN = {
    "size",
    "dim",
    "shape",
    "dtype",
    "stride",
    "is_floating_point",
    "requires_grad",
    "is_inference",
    "_version",
}


class WrongDevice(RuntimeError):
    """What CUDA would have refused."""


def _storage(t: Tensor) -> Any:
    while torch._C._functorch.is_functorch_wrapped_tensor(t):
        t = torch._C._functorch.get_unwrapped(t)
    if t.layout is torch.sparse_coo:
        t = t._values()
    elif t.layout is not torch.strided:
        t = t.values()
    return t.untyped_storage()


class Watch(TorchFunctionMode):
    """Remember what lies on the device, and refuse what would need both memories."""

    def __init__(self) -> None:
        super().__init__()
        self.there: dict[int, StorageWeakRef] = {}  # a weak reference keeps the address from being used again
        self.noise = torch.Generator().manual_seed(0).get_state()
        self.calls = 0  # functions that had a tensor of the device among their arguments

    def has(self, t: Any) -> bool:
        return isinstance(t, Tensor) and _storage(t)._cdata in self.there

    def put(self, found: Any) -> Any:
        for t in tree_leaves(found):
            if isinstance(t, Tensor) and not self.has(t):
                storage = _storage(t)
                self.there[storage._cdata] = StorageWeakRef(storage)
        return found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", str(func))
        own = (resolve_name(func) or "").split(".")[-2:] if name == "__get__" else ()
        if name in PLAIN or (own and own[0] in PLAIN):
            return func(*args, **kwargs)
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        mine = [t for t in tensors if self.has(t)]
        if own and own[0] in ("device", "is_cpu"):
            if not mine:
                return func(*args)
            return DEVICE if own[0] == "device" else False
        if name == "get_device" and mine:
            return 0
        if name == "_has_compatible_shallow_copy_type" and 0 < len(mine) < len(tensors):
            return False
        if name == "numpy" and kwargs.get("force"):
            return func(*args, **kwargs)
        if name in ("numpy", "__array__") and mine:
            raise WrongDevice(f"{name} of a tensor on {NAME}; use .cpu() first")
        if name in ("to", "cpu"):
            return self._moved(func, args, kwargs)
        wanted = kwargs.get("device")
        self._refuse_noise(name, kwargs.get("generator"), wanted, bool(mine))
        if wanted is not None and torch.device(wanted).type == NAME:
            kwargs["device"] = "cpu"
            if func in (torch.tensor, torch.as_tensor, torch.asarray):
                return self.put(func(*args, **kwargs).clone())
            return self.put(self._drawn(func, args, kwargs))
        if not mine or wanted is not None:
            return func(*args, **kwargs)
        self.calls += 1
        self._refuse(name, args, tensors)
        found = self._drawn(func, args, kwargs)
        self.put(found[0] if name in LENGTHS else found)
        return found

    def _refuse(self, name: str, args: Any, tensors: list[Tensor]) -> None:
        if name in CROSSING:
            return
        if name in ("__getitem__", "__setitem__", "index_put_", "index_put") and self.has(args[0]):
            indexed = any(isinstance(t, Tensor) for t in tree_leaves(args[1]))
            tensors = list(args[2:]) if indexed else []  # places may be given from here, and whole slices too
        others = [t for t in tensors if isinstance(t, Tensor) and t.dim() and not self.has(t)]
        if name in PACKED:
            others = [t for t in others if t.is_floating_point()]
        if others:
            raise WrongDevice(
                f"{name} mixes {NAME} with a tensor of shape {tuple(others[0].shape)} on the processor"
            )

    def _refuse_noise(self, name: str, generator: Any, wanted: Any, mine: bool) -> None:
        if generator is None:
            return
        there = mine if wanted is None else torch.device(wanted).type == NAME
        if there != (generator.device.type == NAME):
            raise WrongDevice(f"{name} draws with a generator of {generator.device} on another device")

    def _drawn(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function with the device's own noise."""
        here = torch.get_rng_state()
        torch.set_rng_state(self.noise)
        try:
            return func(*args, **kwargs)
        finally:
            self.noise = torch.get_rng_state()
            torch.set_rng_state(here)

    def _moved(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Move a tensor: to where another is, to a device, or nowhere if only the type is asked for."""
        t, where = args[0], torch.device("cpu") if func is Tensor.cpu else None

        def look(given: Any) -> Any:
            nonlocal where
            if isinstance(given, Tensor):
                where = DEVICE if self.has(given) else torch.device("cpu")
                return given
            if isinstance(given, torch.device) or (isinstance(given, str) and func is not Tensor.cpu):
                where = torch.device(given)
                return "cpu"
            return given

        args, kwargs = tree_map(look, args[1:]), tree_map(look, kwargs)
        was, found = self.has(t), func(t, *args, **kwargs)
        goes = was if where is None else where.type == NAME
        if goes != was and _storage(found)._cdata == _storage(t)._cdata:
            found = found.clone()
        return self.put(found) if goes else found


class Fabric:
    """What the engine asks of Lightning Fabric, for one process."""

    def launch(self) -> None:
        pass

    def setup(self, module: Any, optimizer: Any) -> Any:
        return module, optimizer

    def backward(self, loss: Tensor, **options: Any) -> None:
        loss.backward(**options)


@contextmanager
def second_device(monkeypatch: Any) -> Any:
    """Let fits run on the device; what is watched is handed out."""
    watch = Watch()

    def set_state(state: Tensor, device: Any = None) -> None:
        watch.noise = state.clone()

    def seed(number: int) -> None:
        watch.noise = torch.Generator().manual_seed(number).get_state()

    own = torch.Generator

    class Generator(own):
        """A generator that says where it draws."""

        def __new__(cls, device: Any = "cpu") -> Any:
            made = own.__new__(cls, "cpu")
            made.place = torch.device(device)
            return made

        def __init__(self, device: Any = "cpu") -> None:
            pass

        @property
        def device(self) -> Any:
            return self.place

    module = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: 0,
        get_rng_state=lambda device=None: watch.noise.clone(),
        set_rng_state=set_state,
        manual_seed=seed,
        manual_seed_all=seed,
    )
    with monkeypatch.context() as patch:
        patch.setattr(torch, NAME, module, raising=False)
        patch.setattr(torch, "get_device_module", lambda kind=None: module)
        patch.setattr(torch, "Generator", Generator)
        patch.setattr(Run, "fabric", Fabric())
        with Run(device=NAME), watch:
            yield watch
