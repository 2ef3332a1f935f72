"""A Q-network as an ONNX graph, written node by node.

    codes [B, F], numbers [B, n]  →  q [B, K, L·H], features [B, E·width]
                                     and, where there are such heads, imitation [B, K] (log π_B), outcome [B, K, 1+m]

A graph of very many policies computes the asked ones alone: it takes their positions, live [k], and gives
q [B, K, k·H]. A runtime computes every node it has, wanted or not, so this is what keeps such a graph fast.

The equations are those of `core/network.py`. A mean over the pair of heads is one product with the features of both:
mean_e (h_e W_e + b_e) = concat(h_e) · concat(W_e)/E + mean(b_e). Only plain operations are used (Gather, Concat, Gemm,
Relu and their like), so any runtime reads it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from outlay.bundles.nodes import Graph
from outlay.core.network import Dense, NetworkArrays


def policy_graph(network: NetworkArrays, num_codes_fields: int, num_numbers: int, *, select: bool = False) -> Any:
    """The graph of one network pair.

    Args:
        network: E networks of one shape.
        num_codes_fields: F, categorical fields; 0 leaves the input `codes` (int32) out.
        num_numbers: n, numbers per row; 0 leaves the input `numbers` (float32) out.
        select: the graph takes `live` (int32), positions of the policies that are asked.

    Returns:
        An `onnx.ModelProto` that the ONNX checker accepts.
    """
    graph = Graph()
    if num_codes_fields:
        graph.integers("codes", num_codes_fields)
        offsets = graph.constant("offsets", network.offsets.astype(np.int32))
        places = graph.node("Add", ["codes", offsets], "places")
        shape = graph.constant("flat", np.array([0, num_codes_fields * network.embedding.shape[2]], np.int64))
    if num_numbers:
        graph.floats("numbers", num_numbers)

    hidden = []
    for e in range(network.head[0].shape[0]):
        parts = []
        if num_codes_fields:
            table = graph.constant(f"embedding_{e}", network.embedding[e])
            embedded = graph.node("Gather", [table, places], f"embedded_{e}", axis=0)
            parts.append(graph.node("Reshape", [embedded, shape], f"flat_{e}"))
        if num_numbers:
            parts.append("numbers")
        x = parts[0] if len(parts) == 1 else graph.node("Concat", parts, f"input_{e}", axis=1)
        for depth, (weight, bias) in enumerate(network.layers):
            layer = graph.dense(x, f"dense_{e}_{depth}", weight[e], bias[e])
            x = graph.node("Relu", [layer], f"hidden_{e}_{depth}")
        hidden.append(x)
    features = graph.node("Concat", hidden, "features", axis=1)

    if select:
        _selected(graph, network)
    else:
        per_action = network.num_policies * network.num_heads
        shape_q = graph.constant("shape_q", np.array([0, network.num_actions, per_action], np.int64))
        graph.node("Reshape", [graph.dense(features, "head", *_mean_head(network.head)), shape_q], "q")
        graph.output("q", network.num_actions, per_action)
    graph.output("features", network.num_features)
    if network.imitation is not None:
        logits = graph.dense(features, "logits", *_mean_head(network.imitation))
        graph.node("LogSoftmax", [logits], "imitation", axis=1)
        graph.output("imitation", network.num_actions)

    if network.outcome is not None:
        num_outcomes = network.outcome[1].shape[1] // network.num_actions
        shape_x = graph.constant("shape_outcome", np.array([0, network.num_actions, num_outcomes], np.int64))
        graph.node("Reshape", [graph.dense(features, "day", *_mean_head(network.outcome)), shape_x], "outcome")
        graph.output("outcome", network.num_actions, num_outcomes)
    return graph.model()


def _selected(graph: Graph, network: NetworkArrays) -> None:
    """The output q of the policies at the positions `live`: their heads lie one after another, to be taken whole."""
    policies, actions, heads = network.num_policies, network.num_actions, network.num_heads
    weight, bias = (part.reshape(-1, actions, policies, heads) for part in _mean_head(network.head))
    live = graph.positions("live")
    parts = []
    for name, part in (("head_weight", weight), ("head_bias", bias)):
        whole = part.transpose(2, 0, 1, 3).reshape(policies, -1, actions * heads)
        parts.append(graph.node("Gather", [graph.constant(name, whole), live], f"live_{name}", axis=0))
    product = graph.node("MatMul", ["features", parts[0]], "product")
    split = graph.constant("split", np.array([0, 0, actions, heads], np.int64))
    each = graph.node("Reshape", [graph.node("Add", [product, parts[1]], "head"), split], "each")  # [k, B, K, H]
    joined = graph.constant("joined", np.array([0, 0, -1], np.int64))
    graph.node("Reshape", [graph.node("Transpose", [each], "by_row", perm=[1, 2, 0, 3]), joined], "q")
    graph.output("q", actions, None)


def _mean_head(head: Dense) -> Dense:
    weight, bias = head
    pair, width, out = weight.shape
    return (weight / pair).reshape(pair * width, out).astype(np.float32), bias.mean(0).astype(np.float32)
