"""Q-networks and response models as ONNX graphs, written node by node.

    codes [B, F], numbers [B, n]  →  q [B, K, L·H], features [B, E·width]
                                     and, where there are such heads, imitation [B, K] (log π_B), outcome [B, K, 1+m]
                                     and, where there is a table of states, unseen [B]: 1 if a row is in none, else 0

The graph of a frontier has a branch for each of its N networks. It computes only the requested policies: it
takes their positions in network i as live_i [k_i], k_i ≥ 1, and gives q [B, K, (k_0 + k_1 + …)·H], network by network,
imitation [B, K, N] where any network has such a head, and unseen [B] for the tables of states among them. A runtime
computes every node it has, wanted or not, so this is what keeps such a graph fast.

The equations are those of `core/arrays.py` and `core/bodies.py`. A mean over the pair of heads is one product with the
features of both: mean_e (h_e W_e + b_e) = concat(h_e) · concat(W_e)/E + mean(b_e). An ensemble of trees is a look-up
for its sets of codes and one TreeEnsembleRegressor; all its splits are x_j ≤ threshold in single precision, the one
kind that every runtime knows, and the fastest. A table of states is compared exactly. All else are plain operations
(Gather, Concat, Gemm, Relu and their like), so any runtime reads it.

A response model gives its label's total of reward and costs as q, the same reward with the costs of the day itself as
outcome, and as features the state alone: its part of the first layer after ReLU, and the sum of its embeddings.

    codes [B, F], numbers [B, n]  →  q [B, K, 1+m], outcome [B, K, 1+m], features [B, width + k]

For DIN the last L·2C of the n numbers are what is told of past days. What belongs to an incentive alone is multiplied
out here, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.arrays import Attention, Dense, NetworkArrays, Pairs, ResponseArrays
from outlay.core.bodies import LEAF, StateTable, Trees
from outlay.core.machine import optional

OPSET = 17
TREE_DOMAIN, TREE_OPSET = "ai.onnx.ml", 3  # where operations on trees are defined
IR_VERSION = 8  # the oldest that holds OPSET, for older runtimes
FLOAT = 1  # onnx.TensorProto.FLOAT


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


def tree_features(graph: Graph, trees: Trees, num_codes_fields: int, num_numbers: int, suffix: str, name: str) -> str:
    """The node `name` of the outputs of all trees; names of all others end in `suffix`."""
    parts = ["numbers"] if num_numbers else []
    for f in range(num_codes_fields):
        if trees.sets[f].shape[1] == 0:
            continue
        table = graph.constant(f"sets{suffix}_{f}", trees.sets[f])
        place = graph.constant(f"field_{f}", np.array([f], np.int64))
        code = graph.node("Gather", ["codes", place], f"code{suffix}_{f}", axis=1)  # [B, 1]
        inside = graph.node("Gather", [table, code], f"inside{suffix}_{f}", axis=0)  # [B, 1, sets]
        flat = graph.constant(f"inside_shape{suffix}_{f}", np.array([-1, trees.sets[f].shape[1]], np.int64))
        inside = graph.node("Reshape", [inside, flat], f"inside_flat{suffix}_{f}")
        parts.append(graph.node("Cast", [inside], f"inside_float{suffix}_{f}", to=FLOAT))
    if not parts:  # no tree splits: any column will do
        parts = [graph.node("Cast", ["codes"], f"codes_float{suffix}", to=FLOAT)]
    x = parts[0] if len(parts) == 1 else graph.node("Concat", parts, f"columns{suffix}", axis=1)
    return _ensemble(graph, trees, x, name)


def _ensemble(graph: Graph, trees: Trees, x: str, name: str) -> str:
    nodes, leaf = len(trees.column), trees.column == LEAF
    tree = np.searchsorted(trees.root, np.arange(nodes), side="right") - 1
    within = np.arange(nodes) - trees.root[tree]  # a tree's nodes are numbered from 0

    def child(places: NDArray[np.int32]) -> Any:
        return np.where(leaf, 0, places - trees.root[tree]).tolist()

    return graph.trees(
        [x],
        name,
        n_targets=trees.num_outputs,
        aggregate_function="SUM",
        post_transform="NONE",
        nodes_treeids=tree.tolist(),
        nodes_nodeids=within.tolist(),
        nodes_featureids=np.where(leaf, 0, trees.column).tolist(),
        nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_values=np.where(leaf, 0, trees.threshold).tolist(),
        nodes_truenodeids=child(trees.low),
        nodes_falsenodeids=child(trees.high),
        target_treeids=tree[leaf].tolist(),
        target_nodeids=within[leaf].tolist(),
        target_ids=trees.output[tree[leaf]].tolist(),
        target_weights=trees.value[leaf].tolist(),
    )


def table_features(graph: Graph, table: StateTable, suffix: str, name: str) -> str:
    """Add the nodes and return `name`, that of the result; names of all others end in `suffix`."""
    middle, last = graph.constant("axis_1", np.array([1], np.int64)), 2
    matches = []
    for given, own in (("codes", table.codes), ("numbers", table.numbers)):
        if not own.shape[1]:
            continue
        states = graph.constant(f"states_{given}{suffix}", own[None])  # [1, S, F]
        row = graph.node("Unsqueeze", [given, middle], f"row_{given}{suffix}")  # [B, 1, F]
        equal = graph.node("Equal", [row, states], f"equal_{given}{suffix}")
        number = graph.node("Cast", [equal], f"equal_float_{given}{suffix}", to=FLOAT)
        matches.append(graph.node("ReduceMin", [number], f"match_{given}{suffix}", axes=[last], keepdims=0))
    if len(matches) == 1:
        return graph.node("Identity", matches, name)
    return graph.node("Mul", matches, name)


def unseen_output(graph: Graph, features: Sequence[str]) -> None:
    """Add the output `unseen [B]`: 1 for a row that at least one of several tables does not have.

    Args:
        graph: has the nodes of the tables.
        features: names of these, from `table_features`; there is nothing to add where there are none.
    """
    if not features:
        return
    one = graph.constant("one", np.array(1, np.float32))
    seen = [graph.node("ReduceMax", [h], f"seen_{h}", axes=[1], keepdims=0) for h in features]
    everywhere = seen[0] if len(seen) == 1 else graph.node("Min", seen, "seen_everywhere")
    graph.node("Sub", [one, everywhere], "unseen")
    graph.output("unseen")


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
    if isinstance(network.body, Trees) and not network.num_layered:
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
    for e in range(network.num_layered):
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
    if isinstance(network.body, Trees):
        hidden.append(tree_features(graph, network.body, num_codes_fields, num_numbers, suffix, f"trees{suffix}"))
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
