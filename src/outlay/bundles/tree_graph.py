"""An ensemble of trees as ONNX nodes: a table look-up for sets of codes, and one TreeEnsembleRegressor.

    codes [B, F], numbers [B, n]  →  x [B, n + sets]  →  the T outputs [B, T]

The equations are those of `core/trees.py`. All splits are x_j ≤ threshold in single precision, the one kind that every
runtime knows, and the fastest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.nodes import Graph
from outlay.core.trees import LEAF, Trees

FLOAT = 1  # onnx.TensorProto.FLOAT


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
