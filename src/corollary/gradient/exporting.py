"""Export of fitted networks as ONNX graphs."""

from __future__ import annotations

import copy
from typing import Any

from sklearn.utils.validation import check_is_fitted

from corollary import errors

__all__ = ["Exportable"]


class Exportable:
    """Writes a fitted model as an ONNX file; a subclass says by ``_graph`` and ``_graph_inputs`` what is in it."""

    def to_onnx(self, path: Any) -> Any:
        """Write the fitted model as an ONNX file with the outputs of ``predict`` and ``predict_proba``.

        Parameters
        ----------
        path : path
            The file.

        Returns
        -------
        path

        Notes
        -----
        Numbers are float32, whatever the data were, and there may be any number of samples, steps, nodes or edges; padded
        sequences, sets and texts come with their ``lengths``, several graphs with their ``sizes``. A classifier's outputs
        are ``probabilities`` and ``label``, a number into the list ``classes`` of the metadata; a regressor's is
        ``prediction``, in the units of the targets. Texts are given as ``tokens``. Needs the package onnx.
        """
        from corollary.export import Program, write_onnx

        check_is_fitted(self)
        plain = type(self)._graph_inputs is Exportable._graph_inputs and self.input != "table"
        if plain or type(self)._graph is Exportable._graph:
            must = "to_onnx needs a model that answers by one pass of its network"
            do = "Use save and corollary.load, or torch.export on module_."
            raise errors.value(type(self).__name__, must, f"{type(self).__name__}, which does not", do)
        model = copy.copy(self)
        model.module_ = copy.deepcopy(self.module_).cpu().float()
        call, finish, notes = model._graph()
        inputs, free = model._graph_inputs()
        program = Program(
            lambda *given: finish(call(*given)), inputs, free, finish.names, notes, self.input == "graph"
        )
        return write_onnx(program, path, type(self).__name__, model.module_, finish)

    def _graph(self) -> tuple[Any, Any, dict[str, Any]]:
        """Return what ``to_onnx`` exports: the forward call, the module that turns its output into named ones, and metadata."""
        raise NotImplementedError

    def _graph_call(self) -> Any:
        """Return the forward call of the exported graph: preprocessing, then the network."""
        return self.module_

    def _graph_inputs(self) -> tuple[dict[str, Any], dict[str, dict[int, str]]]:
        """Return example inputs of the exported graph by name, and its dynamic axes."""
        import torch

        like = next(self.module_.parameters())
        return {"X": torch.zeros(2, self.n_features_in_, dtype=like.dtype)}, {"X": {0: "n"}}
