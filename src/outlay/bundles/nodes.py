"""An ONNX graph while it is written: its inputs, nodes, constants and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.machine import optional

OPSET = 17
TREE_DOMAIN, TREE_OPSET = "ai.onnx.ml", 3  # where operations on trees are defined
IR_VERSION = 8  # the oldest that holds OPSET, for older runtimes


class Graph:
    """Collects what a graph is made of; every method gives back the name that later nodes refer to."""

    def __init__(self) -> None:
        with optional():  # only writing bundles needs the package onnx; serving does without
            import onnx

        self._onnx = onnx
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._with_trees = False

    def integers(self, name: str, *shape: int) -> str:
        """An input of int32, `[batch, *shape]`."""
        return self._put(self._inputs, self._onnx.TensorProto.INT32, name, shape)

    def floats(self, name: str, *shape: int) -> str:
        """An input of float32, `[batch, *shape]`."""
        return self._put(self._inputs, self._onnx.TensorProto.FLOAT, name, shape)

    def positions(self, name: str) -> str:
        """An input of int32, `[name]`: as many positions as one likes."""
        self._inputs.append(self._onnx.helper.make_tensor_value_info(name, self._onnx.TensorProto.INT32, [name]))
        return name

    def output(self, name: str, *shape: int | None) -> str:
        """The node of this name is an output, float32 of `[batch, *shape]`."""
        return self._put(self._outputs, self._onnx.TensorProto.FLOAT, name, shape)

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """An array that is part of the graph, once however often it is asked for."""
        self._constants.setdefault(name, self._onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """One operation; its only output is called `output`."""
        self._nodes.append(self._onnx.helper.make_node(kind, inputs, [output], **attributes))
        return output

    def trees(self, inputs: list[str], output: str, **attributes: Any) -> str:
        """One ensemble of regression trees."""
        node = self._onnx.helper.make_node("TreeEnsembleRegressor", inputs, [output], domain=TREE_DOMAIN, **attributes)
        self._nodes.append(node)
        self._with_trees = True
        return output

    def dense(self, x: str, name: str, weight: NDArray[np.float32], bias: NDArray[np.float32]) -> str:
        """The product x W + b for x `[batch, in]`."""
        return self.node(
            "Gemm", [x, self.constant(f"{name}_weight", weight), self.constant(f"{name}_bias", bias)], name
        )

    def model(self) -> Any:
        """An `onnx.ModelProto` that the ONNX checker accepts."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, "policy", self._inputs, self._outputs, list(self._constants.values()))
        imports = [helper.make_opsetid("", OPSET)]
        if self._with_trees:
            imports.append(helper.make_opsetid(TREE_DOMAIN, TREE_OPSET))
        model = helper.make_model(graph, producer_name="outlay", opset_imports=imports, ir_version=IR_VERSION)
        self._onnx.checker.check_model(model)
        return model

    def _put(self, among: list[Any], kind: int, name: str, shape: tuple[int | None, ...]) -> str:
        among.append(self._onnx.helper.make_tensor_value_info(name, kind, ["batch", *shape]))
        return name
