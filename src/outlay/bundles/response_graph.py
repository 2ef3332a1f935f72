"""A response model as an ONNX graph, written node by node.

    codes [B, F], numbers [B, n]  →  q [B, K, 1+m], outcome [B, K, 1+m], features [B, width + k]

For DIN the last L·2C of the n numbers are what is told of past days.

q is the label's total of reward and costs, outcome the same reward and the costs of the day itself, features the state
alone: its part of the first layer after ReLU, and the sum of its embeddings. The equations are those of
`core/arrays.py`; what belongs to an incentive alone is multiplied out here, once. Only operations that every runtime
has are used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from outlay.bundles.graph import Graph
from outlay.core.arrays import Attention, Pairs, ResponseArrays


def response_graph(network: ResponseArrays) -> Any:
    """The graph of one response model.

    Returns:
        An `onnx.ModelProto` that the ONNX checker accepts. No categorical field: no input `codes`; no numeric one: no
        `numbers`.
    """
    graph = Graph()
    width = (len(network.offsets) + len(network.number)) * network.action.shape[1]
    weight, bias = network.layers[0]
    of_state, of_action, of_pooled = np.split(weight, [width, width + network.action.shape[1]])

    numbers = _numbers(graph, network)
    fields = _fields(graph, network, numbers)
    flat = graph.node("Reshape", [fields, graph.constant("flat_shape", np.array([0, width], np.int64))], "flat")
    deep = graph.dense(flat, "deep", of_state, bias)
    total = graph.node("ReduceSum", [fields, _axis(graph, 1)], "total", keepdims=0)
    graph.node("Concat", [graph.node("Relu", [deep], "deep_features"), total], "features", axis=1)

    deep_action = graph.constant("deep_action", network.action @ of_action)
    x = graph.node("Add", [graph.node("Unsqueeze", [deep, _axis(graph, 1)], "deep_each"), deep_action], "first")
    if isinstance(network.own, Attention):
        pooled = _pooled(graph, network, network.own, flat, width)
        pooled = graph.node("MatMul", [pooled, graph.constant("deep_pooled", of_pooled)], "first_pooled")
        x = graph.node("Add", [x, pooled], "first_with_past")
    for depth, (weight, bias) in enumerate(network.layers[1:]):
        x = graph.node("Relu", [x], f"hidden_{depth}")
        x = graph.node("MatMul", [x, graph.constant(f"dense_{depth}_weight", weight)], f"product_{depth}")
        x = graph.node("Add", [x, graph.constant(f"dense_{depth}_bias", bias)], f"dense_{depth}")
    if isinstance(network.own, Pairs):
        x = graph.node("Add", [x, _pairs(graph, network, network.own, fields, total)], "with_pairs")
    if network.binary.any():
        chance = graph.node("Sigmoid", [x], "chance")
        x = graph.node("Where", [graph.constant("binary", network.binary), chance, x], "answers")

    K, heads = network.num_actions, network.num_heads
    graph.node("Gather", [x, graph.constant("total_heads", np.arange(heads))], "q", axis=2)
    graph.node("Gather", [x, graph.constant("day_heads", network.day_heads)], "outcome", axis=2)
    graph.output("q", K, heads)
    graph.output("features", network.num_features)
    graph.output("outcome", K, heads)
    return graph.model()


def _numbers(graph: Graph, network: ResponseArrays) -> str:
    """`[B, n]` the numbers of the state itself; the whole input where none are of past days."""
    own, past = len(network.number), 0
    if isinstance(network.own, Attention):
        past = len(network.own.age) * len(network.own.day)
    every = graph.floats("numbers", own + past) if own + past else ""
    return _part(graph, every, "numbers_today", 0, own) if own and past else every


def _part(graph: Graph, numbers: str, name: str, start: int, stop: int) -> str:
    """`[B, stop − start]` some of a row's numbers."""
    return graph.node("Gather", [numbers, graph.constant(f"{name}_at", np.arange(start, stop))], name, axis=1)


def _fields(graph: Graph, network: ResponseArrays, numbers: str) -> str:
    """`[B, F + n, k]` the embeddings of a state."""
    parts = []
    if num_fields := len(network.offsets):
        offsets = graph.constant("offsets", network.offsets.astype(np.int32))
        places = graph.node("Add", [graph.integers("codes", num_fields), offsets], "places")
        parts.append(graph.node("Gather", [graph.constant("code", network.code), places], "embedded", axis=0))
    if len(network.number):
        column = graph.node("Unsqueeze", [numbers, _axis(graph, -1)], "column")
        parts.append(graph.node("Mul", [column, graph.constant("number", network.number)], "scaled"))
    return graph.node("Concat", parts, "fields", axis=1)


def _pairs(graph: Graph, network: ResponseArrays, own: Pairs, fields: str, total: str) -> str:
    """`[B, K, H]` the first order and the pairs, those of the state and those of the state with each incentive."""
    squares = graph.node("Mul", [fields, fields], "squares")
    squares = graph.node("ReduceSum", [squares, _axis(graph, 1)], "sum_of_squares", keepdims=0)
    x = graph.node("Sub", [graph.node("Mul", [total, total], "square_of_sum"), squares], "twice_pairs")
    x = graph.node("MatMul", [x, graph.constant("half_product", own.product / 2)], "pairs")
    if len(network.offsets):
        weights = graph.node("Gather", [graph.constant("code_weight", own.code), "places"], "code_weights", axis=0)
        weights = graph.node("ReduceSum", [weights, _axis(graph, 1)], "of_codes", keepdims=0)
        x = graph.node("Add", [x, weights], "pairs_codes")
    if len(network.number):
        weights = graph.node("MatMul", ["numbers", graph.constant("number_weight", own.number)], "of_numbers")
        x = graph.node("Add", [x, weights], "pairs_numbers")
    x = graph.node("Unsqueeze", [x, _axis(graph, 1)], "of_state")
    x = graph.node("Add", [x, graph.constant("action_weight", own.action)], "of_state_and_action")

    shape = (network.num_actions, own.product.shape[1])
    with_action = np.einsum("ad,dh->dah", network.action, own.product).reshape(len(own.product), -1)
    cross = graph.node("MatMul", [total, graph.constant("cross_weight", with_action)], "cross_flat")
    cross = graph.node("Reshape", [cross, graph.constant("cross_shape", np.array([0, *shape], np.int64))], "cross")
    return graph.node("Add", [x, cross], "beside")


def _pooled(graph: Graph, network: ResponseArrays, own: Attention, flat: str, width: int) -> str:
    """`[B, K, D]` Σ_l u_l e_l."""
    weight, bias = own.query
    action_query = graph.constant("action_query", network.action @ weight[width:])
    query = graph.node("Unsqueeze", [graph.dense(flat, "query_state", weight[:width], bias), _axis(graph, 1)], "today")
    query = graph.node("Add", [query, action_query], "query")
    past, days = _days(graph, own, len(network.number))

    # [q, e, q·e] W in three parts: the first two need not be made for every pair of query and day.
    of_query, of_day, of_product = np.split(own.unit[0], 3)
    query_each = graph.node("Unsqueeze", [query, _axis(graph, 2)], "query_each")
    x = graph.node("Mul", [query_each, graph.node("Unsqueeze", [days, _axis(graph, 1)], "days_each")], "both")
    x = graph.node("MatMul", [x, graph.constant("unit_both", of_product)], "unit_of_both")
    part = graph.node("MatMul", [query, graph.constant("unit_query", of_query)], "unit_of_query")
    x = graph.node("Add", [x, graph.node("Unsqueeze", [part, _axis(graph, 2)], "unit_query_each")], "unit_part")
    part = graph.node("MatMul", [days, graph.constant("unit_day", of_day)], "unit_of_day")
    part = graph.node("Add", [part, graph.constant("unit_bias", own.unit[1])], "unit_of_day_bias")
    x = graph.node("Add", [x, graph.node("Unsqueeze", [part, _axis(graph, 1)], "unit_day_each")], "unit")
    x = graph.node(
        "MatMul", [graph.node("Relu", [x], "unit_hidden"), graph.constant("rate", own.relevance[0])], "rated"
    )
    x = graph.node("Add", [x, graph.constant("rate_bias", own.relevance[1])], "rated_bias")
    x = graph.node("Squeeze", [x, _axis(graph, -1)], "relevance_any")

    missing = graph.constant("missing_at", np.arange(1, len(own.day), 2))
    absent = graph.node(
        "ReduceMin", [graph.node("Gather", [past, missing], "missing", axis=2)], "absent", axes=[2], keepdims=0
    )
    present = graph.node("Less", [absent, graph.constant("half", np.array(0.5, np.float32))], "present")
    present = graph.node("Unsqueeze", [present, _axis(graph, 1)], "present_each")
    x = graph.node("Where", [present, x, graph.constant("irrelevant", np.array(0, np.float32))], "relevance")
    return graph.node("MatMul", [x, days], "pooled")


def _days(graph: Graph, own: Attention, start: int) -> tuple[str, str]:
    """`[B, L, 2C]` the numbers of past days, which begin at `start`, and `[B, L, D]` what each day was."""
    shape = len(own.age), len(own.day)
    numbers = _part(graph, "numbers", "numbers_past", start, start + shape[0] * shape[1])
    shaped = graph.constant("past_shape", np.array([0, *shape], np.int64))
    past = graph.node("Reshape", [numbers, shaped], "past")
    x = graph.node("MatMul", [past, graph.constant("day_weight", own.day)], "day_numbers")
    return past, graph.node("Add", [x, graph.constant("age", own.age)], "days")


def _axis(graph: Graph, axis: int) -> str:
    return graph.constant(f"axis_{axis}", np.array([axis], np.int64))
