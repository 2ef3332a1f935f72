"""The graph computes what the network says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from outlay.bundles.decide import Member
from outlay.bundles.graph import frontier_graph, policy_graph
from outlay.bundles.reference import forward
from outlay.core.arrays import (
    NetworkArrays,
    averaged,
    body_network,
    lookup_network,
    read_network,
    write_network,
)
from outlay.core.bodies import LEAF, Node, StateTable, joined

ROWS = 10_000


def member(network: NetworkArrays, fields: int, numbers: int) -> Member:
    graph = policy_graph(network, fields, numbers).SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return Member(session, 1.0, "salt", np.ones(network.num_heads))


def rows(sizes: tuple[int, ...], numbers: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, np.array(sizes, np.int64), (ROWS, len(sizes))).astype(np.int32)
    return codes, rng.normal(0, 3, (ROWS, numbers)).astype(np.float32)


@pytest.mark.parametrize(
    ("sizes", "numbers", "shape"),
    [
        ((6, 5), 2, {}),
        ((6, 5), 0, {"heads": 4, "actions": 11, "outcomes": 3}),
        ((), 4, {"pair": 1}),
        ((9,), 2, {"layers": (), "imitation": False}),
        ((40,) * 30, 60, {"layers": (128, 64)}),
        ((), 6, {"layers": ()}),
    ],
)
def test_graph_and_reference_agree_on_ten_thousand_rows(
    make_network: Callable[..., NetworkArrays], sizes: tuple[int, ...], numbers: int, shape: dict[str, Any]
) -> None:
    network = make_network(7, sizes=sizes, numbers=numbers, **shape)
    codes, values = rows(sizes, numbers)
    policy, wanted = member(network, len(sizes), numbers), forward(network, codes, values)
    names = ["q", "features", "imitation"] if network.imitation is not None else ["q", "features"]
    names += ["outcome"] if network.outcome is not None else []
    assert list(policy.shapes) == names
    assert policy.inputs == tuple(n for n, there in (("codes", sizes), ("numbers", numbers)) if there)
    assert policy.shapes["features"] == (network.num_features,)
    for found, value in zip(policy.run(names, codes, values), wanted, strict=False):
        assert value is not None
        np.testing.assert_allclose(found, value, atol=1e-5 * max(1, np.abs(value).max()), rtol=0)
    both = frontier_graph([network, network], len(sizes), numbers).SerializeToString()
    session = onnxruntime.InferenceSession(both, providers=["CPUExecutionProvider"])
    feed = {"codes": codes, "numbers": values} | {f"live_{i}": np.zeros(1, np.int32) for i in range(2)}
    (q,) = session.run(["q"], {given.name: feed[given.name] for given in session.get_inputs()})
    np.testing.assert_allclose(q, np.tile(wanted.q, 2), atol=1e-5 * max(1, np.abs(wanted.q).max()), rtol=0)


def test_reference_by_hand() -> None:
    """Two networks, one code and one number: h = relu(e + 2x + 1) = 1 + 6 + 1 = 8 and relu(−1 − 6 + 1) = 0.

    Q = mean(8·[1, 2] + [0, 1], 0·[…] + [4, 5]) = mean([8, 17], [4, 5]) = [6, 11]; logits mean([0, 8], [0, 0]) = [0, 4].
    """
    embedding = np.array([[[0.0], [1.0]], [[0.0], [-1.0]]], np.float32)
    layer = (np.array([[[1.0], [2.0]], [[1.0], [-2.0]]], np.float32), np.ones((2, 1), np.float32))
    head = (np.array([[[1.0, 2.0]], [[7.0, 7.0]]], np.float32), np.array([[0.0, 1.0], [4.0, 5.0]], np.float32))
    imitation = (np.array([[[0.0, 1.0]], [[0.0, 9.0]]], np.float32), np.zeros((2, 2), np.float32))
    network = NetworkArrays(embedding, np.array([0]), (layer,), head, imitation, 2)
    codes, numbers = np.array([[1]], np.int32), np.array([[3.0]], np.float32)
    found = forward(network, codes, numbers)
    assert found.q.tolist() == [[[6.0], [11.0]]]
    assert found.features.tolist() == [[8.0, 0.0]]
    log_prob = [[-np.log1p(np.exp(4)), 4 - np.log1p(np.exp(4))]]
    assert found.imitation is not None
    np.testing.assert_allclose(found.imitation, log_prob, atol=1e-12)
    q, features, imitated = member(network, 1, 1).run(["q", "features", "imitation"], codes, numbers)
    np.testing.assert_allclose(q, found.q, atol=1e-5)
    np.testing.assert_allclose(features, found.features, atol=1e-5)
    np.testing.assert_allclose(imitated, log_prob, atol=1e-5)


def test_rows_in_chunks_and_alone_are_the_same(
    make_network: Callable[..., NetworkArrays], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, numbers = rows((6, 5), 2)
    policy = member(make_network(3), 2, 2)
    whole = policy.choose(codes[:100], numbers[:100], None, 0.5)
    monkeypatch.setattr("outlay.bundles.decide.CHUNK_ROWS", 7)
    parts = policy.choose(codes[:100], numbers[:100], None, 0.5)
    assert np.array_equal(whole[0], parts[0])
    np.testing.assert_allclose(whole[1], parts[1], atol=1e-6)
    empty = policy.choose(codes[:0], numbers[:0], None, 0.5)
    assert empty[0].shape == (0,)
    assert empty[1].shape == (0, 3)


def test_equal_values_give_the_lower_action(make_network: Callable[..., NetworkArrays]) -> None:
    network = make_network(3)
    weight, bias = network.head
    flat = NetworkArrays(
        network.embedding, network.offsets, network.layers, (weight * 0, bias * 0), network.imitation, 3
    )
    codes, numbers = rows((6, 5), 2)
    assert set(member(flat, 2, 2).choose(codes, numbers, None, 0.0)[0].tolist()) == {0}
    eligible = np.tile([False, True, True], (ROWS, 1))
    assert set(member(flat, 2, 2).choose(codes, numbers, eligible, 0.0)[0].tolist()) == {1}


def test_threshold_leaves_out_rare_actions_among_the_eligible(make_network: Callable[..., NetworkArrays]) -> None:
    network = make_network(3)
    codes, numbers = rows((6, 5), 2)
    policy = member(network, 2, 2)
    eligible = np.random.default_rng(0).random((ROWS, 3)) < 0.6
    eligible[:, 1] |= ~eligible.any(1)
    reference = forward(network, codes, numbers)
    assert reference.imitation is not None
    prob = np.where(eligible, np.exp(reference.imitation), 0)
    allowed = prob >= 0.7 * prob.max(1, keepdims=True)
    wanted = np.where(allowed, reference.q.sum(2), -np.inf).argmax(1)
    found = policy.choose(codes, numbers, eligible, 0.7)[0]
    assert (found == wanted).mean() > 0.999  # the rest sits on the threshold or on a tie, to rounding
    assert eligible[np.arange(ROWS), found].all()
    assert (found != policy.choose(codes, numbers, eligible, 0.0)[0]).any()


def test_trees_are_the_same_to_the_bit_where_their_sums_are_exact() -> None:
    """Leaves are whole numbers, so a sum is wrong only where a row took another way; thresholds lie on the values."""
    rng = np.random.default_rng(0)
    sizes, columns, outputs = (7, 9), 4, 3

    def grown(depth: int) -> Node:
        if depth == 0:
            return Node(LEAF, 0.0, float(rng.integers(-9, 10)))
        children = grown(depth - 1), grown(depth - 1 - int(rng.integers(0, depth)))
        column = int(rng.integers(columns + len(sizes)))
        if column >= columns:
            return Node(column, 0.0, 0.0, frozenset(rng.integers(7, size=3).tolist()), *children)
        at = float(np.float32(rng.integers(-20, 20) / 7))
        return Node(column, at + float(rng.choice([-1e-9, 0, 1e-9])), 0.0, None, *children)

    trees = joined([(int(rng.integers(outputs)), grown(5)) for _ in range(60)], sizes, columns, outputs)
    codes = np.stack([rng.integers(size, size=ROWS) for size in sizes], axis=1).astype(np.int32)
    numbers = (rng.integers(-20, 20, (ROWS, columns)) / 7).astype(np.float32)
    identity = np.eye(outputs, dtype=np.float32)[None], np.zeros((1, outputs), np.float32)
    network = body_network(trees, identity, identity, sizes, num_actions=1)
    policy = member(network, len(sizes), columns)
    q, features = policy.run(["q", "features"], codes, numbers)
    wanted = forward(network, codes, numbers)
    np.testing.assert_array_equal(features, wanted.features)
    np.testing.assert_array_equal(q, wanted.q)
    both = frontier_graph([network, network], len(sizes), columns).SerializeToString()
    session = onnxruntime.InferenceSession(both, providers=["CPUExecutionProvider"])
    live = {f"live_{i}": np.zeros(1, np.int32) for i in range(2)}
    (pair,) = session.run(["q"], {"codes": codes, "numbers": numbers, **live})
    np.testing.assert_array_equal(pair, np.concatenate([q, q], axis=2))
    low = codes[:, 0] == 3  # a set of one code by hand
    stump = Node(columns, 0.0, 0.0, frozenset({3}), Node(LEAF, 0.0, 2.0), Node(LEAF, 0.0, 5.0))
    by_hand = joined([(0, stump)], sizes, columns, 1).sums(codes, numbers)[:, 0]
    np.testing.assert_array_equal(by_hand, np.where(low, 2.0, 5.0))


@pytest.mark.parametrize("numbers", [0, 2])
def test_an_ensemble_without_trees_or_splits_says_its_constant(numbers: int) -> None:
    codes, values = rows((6,), numbers)
    head = np.ones((1, 2, 3), np.float32), np.array([[1.0, 2.0, 3.0]], np.float32)
    network = body_network(joined([], (6,), numbers, 2), head, head, (6,), num_actions=3)
    (q,) = member(network, 1, numbers).run(["q"], codes, values)
    np.testing.assert_array_equal(q[:, :, 0], np.broadcast_to([1.0, 2.0, 3.0], (ROWS, 3)))


@pytest.mark.parametrize("outputs", [3, 12])  # narrower and wider than the networks' last layer
def test_networks_and_trees_are_averaged_as_one_network(
    make_network: Callable[..., NetworkArrays], outputs: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    sizes, numbers = (6, 5), 2
    layered = make_network(7, sizes=sizes, numbers=numbers, layers=(16, 8), outcomes=2)

    def dense(out: int) -> tuple[Any, Any]:
        return rng.normal(size=(1, outputs, out)).astype(np.float32), rng.normal(size=(1, out)).astype(np.float32)

    split = Node(0, 0.5, 0.0, None, Node(LEAF, 0.0, 2.0), Node(LEAF, 0.0, 5.0))
    of_codes = Node(numbers + 1, 0.0, 0.0, frozenset({3}), split, Node(LEAF, 0.0, -1.0))
    trees = joined([(0, split), (outputs - 1, of_codes)], sizes, numbers, outputs)
    bodied = body_network(trees, dense(6), dense(6), sizes, num_actions=3)
    path = tmp_path / "network.npz"
    write_network(path, averaged(layered, bodied))
    network = read_network(path)
    assert network.num_parameters >= layered.num_parameters - 8 * 3 * 2 + trees.num_parameters
    codes, values = rows(sizes, numbers)
    one, other, both = (forward(each, codes, values) for each in (layered, bodied, network))
    for name in ("q", "outcome"):
        mean = (getattr(one, name) + getattr(other, name)) / 2
        np.testing.assert_allclose(getattr(both, name), mean, atol=1e-5)
    names = ["q", "features", "outcome"]
    for name, found in zip(names, member(network, 2, numbers).run(names, codes, values), strict=True):
        np.testing.assert_allclose(found, getattr(both, name), atol=1e-4)
    graph = frontier_graph([network, bodied], 2, numbers).SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    feed = {"codes": codes, "numbers": values} | {f"live_{i}": np.zeros(1, np.int32) for i in range(2)}
    (q,) = session.run(["q"], feed)
    np.testing.assert_allclose(q, np.concatenate([both.q, other.q], axis=2), atol=1e-4)


@pytest.mark.parametrize(("fields", "columns"), [(2, 0), (0, 2), (2, 2)])
def test_a_table_of_states_is_looked_up_exactly(fields: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    sizes = (4, 3)[:fields]
    every = np.unique(rng.integers(0, 3, (60, fields + columns)), axis=0)
    codes, numbers = every[:, :fields].astype(np.int32), (every[:, fields:] / 7).astype(np.float32)
    known = rng.random(len(every)) < 0.7
    table = StateTable(codes[known], numbers[known])
    q, outcome = rng.normal(size=(known.sum(), 3, 1, 2)), rng.normal(size=(known.sum(), 3, 2))
    share = rng.dirichlet(np.ones(known.sum()))
    network = lookup_network(table, sizes, q, outcome, share)
    got, features = member(network, fields, columns).run(["q", "features"], codes, numbers)
    np.testing.assert_allclose(got[known], q[:, :, 0], atol=1e-6)
    np.testing.assert_allclose(
        got[~known], np.broadcast_to(share @ q[:, :, 0].reshape(-1, 6), (sum(~known), 6)).reshape(-1, 3, 2), atol=1e-6
    )
    np.testing.assert_array_equal(features, forward(network, codes, numbers).features)
    np.testing.assert_array_equal(features.sum(axis=1), known)
    (unseen,) = member(network, fields, columns).run(["unseen"], codes, numbers)
    np.testing.assert_array_equal(unseen, ~known)
    fewer = lookup_network(StateTable(codes[known][1:], numbers[known][1:]), sizes, q[1:], outcome[1:], share[1:])
    both = frontier_graph([network, fewer], fields, columns).SerializeToString()
    session = onnxruntime.InferenceSession(both, providers=["CPUExecutionProvider"])
    feed = {"codes": codes, "numbers": numbers, **{f"live_{i}": np.zeros(1, np.int32) for i in range(2)}}
    (absent,) = session.run(["unseen"], {given.name: feed[given.name] for given in session.get_inputs()})
    known[np.flatnonzero(known)[0]] = False  # seen by one of the tables only
    np.testing.assert_array_equal(absent, ~known)
