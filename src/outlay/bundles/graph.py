"""Q-networks as ONNX graphs, written node by node.

    codes [B, F], numbers [B, n]  →  q [B, K, L·H], features [B, E·width]
                                     and, where there are such heads, imitation [B, K] (log π_B), outcome [B, K, 1+m]
                                     and, where there is a table of states, unseen [B]: 1 if a row is in none, else 0

The graph of a frontier has a branch for each of its N networks. It computes only the requested policies: it
takes their positions in network i as live_i [k_i], k_i ≥ 1, and gives q [B, K, (k_0 + k_1 + …)·H], network by network,
imitation [B, K, N] where any network has such a head, and unseen [B] for the tables of states among them. A runtime
computes every node it has, wanted or not, so this is what keeps such a graph fast.

The equations are those of `core/network.py`. A mean over the pair of heads is one product with the features of both:
mean_e (h_e W_e + b_e) = concat(h_e) · concat(W_e)/E + mean(b_e). Only plain operations are used (Gather, Concat, Gemm,
Relu and their like; Conv where past days are encoded, TreeEnsembleRegressor where there are trees), so any runtime
reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from outlay.bundles.nodes import Graph
from outlay.bundles.table_graph import table_features, unseen_output
from outlay.bundles.tree_graph import tree_features
from outlay.core.network import Dense, NetworkArrays
from outlay.core.state_table import StateTable
from outlay.core.trees import Trees


def policy_graph(network: NetworkArrays, num_codes_fields: int, num_numbers: int) -> Any:
    """The graph of one network pair.

    Args:
        network: E networks of one shape.
        num_codes_fields: F, categorical fields; 0 leaves the input `codes` (int32) out.
        num_numbers: n, numbers per row; 0 leaves the input `numbers` (float32) out.

    Returns:
        An `onnx.ModelProto` that the ONNX checker accepts.
    """
    graph = Graph()
    _inputs(graph, num_codes_fields, num_numbers)
    features = _features(graph, network, num_codes_fields, num_numbers, "", "features")

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
    unseen_output(graph, [features] if isinstance(network.body, StateTable) else [])
    return graph.model()


def frontier_graph(networks: Sequence[NetworkArrays], num_codes_fields: int, num_numbers: int) -> Any:
    """The graph of several networks, of which each call asks for some policies.

    Args:
        networks: N, of the same actions and heads.
        num_codes_fields: F, categorical fields; 0 leaves the input `codes` (int32) out.
        num_numbers: n, numbers per row; 0 leaves the input `numbers` (float32) out.

    Returns:
        An `onnx.ModelProto` that the ONNX checker accepts.
    """
    graph = Graph()
    _inputs(graph, num_codes_fields, num_numbers)
    imitates = any(network.imitation is not None for network in networks)
    values, imitations, tables = [], [], []
    actions = networks[0].num_actions
    for i, network in enumerate(networks):
        features = _features(graph, network, num_codes_fields, num_numbers, f"_{i}", f"features_{i}")
        values.append(_selected(graph, network, features, f"_{i}"))
        if isinstance(network.body, StateTable):
            tables.append(features)
        if imitates:
            imitations.append(_imitation(graph, network, features, f"_{i}"))
    graph.node("Concat", values, "q", axis=2)
    graph.output("q", actions, None)
    if imitates:
        graph.node("Concat", imitations, "imitation", axis=2)
        graph.output("imitation", actions, len(networks))
    unseen_output(graph, tables)
    return graph.model()


def _inputs(graph: Graph, num_codes_fields: int, num_numbers: int) -> None:
    if num_codes_fields:
        graph.integers("codes", num_codes_fields)
    if num_numbers:
        graph.floats("numbers", num_numbers)


def _features(
    graph: Graph, network: NetworkArrays, num_codes_fields: int, num_numbers: int, suffix: str, name: str
) -> str:
    """The node `name` of the last hidden layers, side by side; names of all others end in `suffix`."""
    if isinstance(network.body, Trees):
        return tree_features(graph, network.body, num_codes_fields, num_numbers, suffix, name)
    if isinstance(network.body, StateTable):
        return table_features(graph, network.body, suffix, name)
    places = shape = ""
    if num_codes_fields:
        offsets = graph.constant(f"offsets{suffix}", network.offsets.astype(np.int32))
        places = graph.node("Add", ["codes", offsets], f"places{suffix}")
        flat = np.array([0, num_codes_fields * network.embedding.shape[2]], np.int64)
        shape = graph.constant(f"flat{suffix}", flat)
    hidden = []
    for e in range(network.head[0].shape[0]):
        parts = []
        if num_codes_fields:
            table = graph.constant(f"embedding{suffix}_{e}", network.embedding[e])
            embedded = graph.node("Gather", [table, places], f"embedded{suffix}_{e}", axis=0)
            parts.append(graph.node("Reshape", [embedded, shape], f"flat{suffix}_{e}"))
        parts += ["numbers"] if num_numbers else []
        x = parts[0] if len(parts) == 1 else graph.node("Concat", parts, f"input{suffix}_{e}", axis=1)
        for depth, (weight, bias) in enumerate(network.layers):
            layer = graph.dense(x, f"dense{suffix}_{e}_{depth}", weight[e], bias[e])
            x = graph.node("Relu", [layer], f"hidden{suffix}_{e}_{depth}")
        hidden.append(x)
    return graph.node("Concat", hidden, name, axis=1)


def _selected(graph: Graph, network: NetworkArrays, features: str, suffix: str) -> str:
    """Give q `[B, K, k·H]` of the policies at the positions `live`; heads of a policy lie side by side."""
    policies, actions, heads = network.num_policies, network.num_actions, network.num_heads
    weight, bias = (part.reshape(-1, actions, policies, heads) for part in _mean_head(network.head))
    live = graph.positions(f"live{suffix}")
    parts = []
    for name, part in (("head_weight", weight), ("head_bias", bias)):
        whole = graph.constant(f"{name}{suffix}", part.transpose(2, 0, 1, 3).reshape(policies, -1, actions * heads))
        parts.append(graph.node("Gather", [whole, live], f"live_{name}{suffix}", axis=0))
    product = graph.node("MatMul", [features, parts[0]], f"product{suffix}")
    split = graph.constant("split", np.array([0, 0, actions, heads], np.int64))
    head = graph.node("Add", [product, parts[1]], f"head{suffix}")
    each = graph.node("Reshape", [head, split], f"each{suffix}")  # [k, B, K, H]
    joined = graph.constant("joined", np.array([0, 0, -1], np.int64))
    by_row = graph.node("Transpose", [each], f"by_row{suffix}", perm=[1, 2, 0, 3])
    return graph.node("Reshape", [by_row, joined], f"q{suffix}")


def _imitation(graph: Graph, network: NetworkArrays, features: str, suffix: str) -> str:
    """Give log π_B `[B, K, 1]`; uniform where the network has no such head, which leaves no action out."""
    none = np.zeros((network.num_features, network.num_actions), np.float32), np.zeros(network.num_actions, np.float32)
    head = none if network.imitation is None else _mean_head(network.imitation)
    logits = graph.dense(features, f"logits{suffix}", *head)
    log_prob = graph.node("LogSoftmax", [logits], f"log_prob{suffix}", axis=1)
    last = graph.constant("last", np.array([2], np.int64))
    return graph.node("Unsqueeze", [log_prob, last], f"imitation{suffix}")


def _mean_head(head: Dense) -> Dense:
    weight, bias = head
    pair, width, out = weight.shape
    return (weight / pair).reshape(pair * width, out).astype(np.float32), bias.mean(0).astype(np.float32)
