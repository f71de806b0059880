"""Saving: what of a fitted model goes into its file, and how a file is checked before anything of it is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corollary import io, shapes
from corollary.base.fitting import ENGINE_ATTRIBUTES
from corollary.base.hooks import Hooks

__all__ = ["Saving"]


class Saving(Hooks):
    """Saves a fitted model, and takes over the attributes of a file."""

    def save(self, path: str | Path) -> Path:
        """Write the model as one safetensors file; :func:`corollary.load` reads it."""
        return io.save(self, path)

    def _saved_attributes(self) -> dict[str, Any]:
        left_out = {*self.get_params(deep=False), *ENGINE_ATTRIBUTES, "_sklearn_output_config"}
        return {key: value for key, value in vars(self).items() if key not in left_out}

    def _check_fitted(self, fitted: Mapping[str, Any]) -> None:
        """Raise unless fitted attributes, as read from a file, are what the class declares; nothing is built or run before."""
        # Only our own classes must declare every attribute; a third party's may have more.
        ours = type(self).__module__.startswith("corollary.")
        for name in fitted:
            if not ours and (
                not name.strip("_").isidentifier() or name.startswith("__") or hasattr(type(self), name)
            ):
                raise shapes.Mismatch(f"{name!r} is not a fitted attribute of {type(self).__name__}.")
        shapes.check(
            shapes.declared(type(self), "_fitted"), fitted, type(self).__name__, self, others=not ours
        )
        if self.input == "table" and "n_features_in_" not in fitted:
            raise shapes.Mismatch(f"n_features_in_ of {type(self).__name__} is missing.")

    def _load_attributes(self, fitted: dict[str, Any]) -> None:
        weights = fitted.pop("module_", None)
        self.__dict__.update(fitted)
        if weights is not None:
            from corollary.engine.building import filled

            self.module_ = filled(self._module, weights, type(self).__name__)
