"""A table of states as ONNX nodes: which state a row is in.

    codes [B, F], numbers [B, n]  →  1 where all of a row's are those of a state, else 0  [B, S]
                                  →  1 where the row is in none of the states, else 0  [B]

The equations are those of `core/state_table.py`; comparisons are exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outlay.bundles.nodes import Graph
from outlay.bundles.tree_graph import FLOAT
from outlay.core.state_table import StateTable


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
