"""A Q-network as an ONNX graph, written node by node.

    codes [B, F], numbers [B, n]  →  q [B, K, H], features [B, E·width]
                                     and, where there are such heads, imitation [B, K] (log π_B), outcome [B, K, 1+m]

The equations are those of `core/network.py`. A mean over the pair of heads is one product with the features of both:
mean_e (h_e W_e + b_e) = concat(h_e) · concat(W_e)/E + mean(b_e). Only Gather, Concat, Gemm and Relu are used, so any
runtime reads it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.network import Dense, NetworkArrays

OPSET = 17
IR_VERSION = 8  # the oldest that holds OPSET, for older runtimes


def policy_graph(network: NetworkArrays, num_codes_fields: int, num_numbers: int) -> Any:
    """The graph of one network pair.

    Args:
        network: E networks of one shape.
        num_codes_fields: F, categorical fields; 0 leaves the input `codes` (int32) out.
        num_numbers: n, numbers per row; 0 leaves the input `numbers` (float32) out.

    Returns:
        An `onnx.ModelProto` that the ONNX checker accepts.
    """
    # Only whoever writes bundles needs the package onnx; serving does without.
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, value: NDArray[Any]) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def dense(x: str, name: str, weight: NDArray[np.float32], bias: NDArray[np.float32]) -> str:
        return node("Gemm", [x, constant(f"{name}_weight", weight), constant(f"{name}_bias", bias)], name)

    inputs = []
    if num_codes_fields:
        inputs.append(helper.make_tensor_value_info("codes", TensorProto.INT32, ["batch", num_codes_fields]))
        offsets = constant("offsets", network.offsets.astype(np.int32))
        places = node("Add", ["codes", offsets], "places")
        shape = constant("flat", np.array([0, num_codes_fields * network.embedding.shape[2]], np.int64))
    if num_numbers:
        inputs.append(helper.make_tensor_value_info("numbers", TensorProto.FLOAT, ["batch", num_numbers]))

    hidden = []
    for e in range(network.head[0].shape[0]):
        parts = []
        if num_codes_fields:
            table = constant(f"embedding_{e}", network.embedding[e])
            embedded = node("Gather", [table, places], f"embedded_{e}", axis=0)
            parts.append(node("Reshape", [embedded, shape], f"flat_{e}"))
        if num_numbers:
            parts.append("numbers")
        x = parts[0] if len(parts) == 1 else node("Concat", parts, f"input_{e}", axis=1)
        for depth, (weight, bias) in enumerate(network.layers):
            x = node("Relu", [dense(x, f"dense_{e}_{depth}", weight[e], bias[e])], f"hidden_{e}_{depth}")
        hidden.append(x)
    features = node("Concat", hidden, "features", axis=1)

    shape_q = constant("shape_q", np.array([0, network.num_actions, network.num_heads], np.int64))
    node("Reshape", [dense(features, "head", *_mean_head(network.head)), shape_q], "q")
    outputs = [
        helper.make_tensor_value_info("q", TensorProto.FLOAT, ["batch", network.num_actions, network.num_heads]),
        helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", network.num_features]),
    ]
    if network.imitation is not None:
        node("LogSoftmax", [dense(features, "logits", *_mean_head(network.imitation))], "imitation", axis=1)
        outputs.append(helper.make_tensor_value_info("imitation", TensorProto.FLOAT, ["batch", network.num_actions]))

    if network.outcome is not None:
        num_outcomes = network.outcome[1].shape[1] // network.num_actions
        shape_x = constant("shape_outcome", np.array([0, network.num_actions, num_outcomes], np.int64))
        node("Reshape", [dense(features, "day", *_mean_head(network.outcome)), shape_x], "outcome")
        wanted = ["batch", network.num_actions, num_outcomes]
        outputs.append(helper.make_tensor_value_info("outcome", TensorProto.FLOAT, wanted))

    graph = helper.make_graph(nodes, "policy", inputs, outputs, constants)
    model = helper.make_model(
        graph, producer_name="outlay", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    onnx.checker.check_model(model)
    return model


def _mean_head(head: Dense) -> Dense:
    weight, bias = head
    pair, width, out = weight.shape
    return (weight / pair).reshape(pair * width, out).astype(np.float32), bias.mean(0).astype(np.float32)
