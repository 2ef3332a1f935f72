"""A trained pair as JAX, as plain arrays, as the longhand reference, and as an ONNX graph: one function."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from outlay.bundles.graph import policy_graph
from outlay.bundles.reference import forward
from outlay.nets.network import Shape, apply_pair, arrays, init_pair, offsets
from outlay.ops.action_basis import smooth_basis

ROWS = 10_000
SPREAD = np.array([0.5, 2.0])


def shape(sizes: tuple[int, ...], num_numbers: int, imitation: bool, num_policies: int = 1) -> Shape:
    return Shape(
        sizes=sizes,
        num_numbers=num_numbers,
        num_actions=4,
        num_heads=2,
        num_outcomes=2 if imitation else 0,
        imitation=imitation,
        layers=(128, 64),
        embedding=8,
        num_policies=num_policies,
        action_basis=smooth_basis(np.array([0.0, 1.0, 2.0, 4.0]), 1, 0.0) if num_policies > 1 else None,
    )


def rows(of: Shape) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, of.sizes, (ROWS, len(of.sizes))).astype(np.int32)
    return codes, rng.normal(0, 2, (ROWS, of.num_numbers)).astype(np.float32)


KINDS = pytest.mark.parametrize(
    ("sizes", "num_numbers"),
    [((5, 9), 0), ((), 4), ((5, 9), 4)],
    ids=["categorical only", "numeric only", "both"],
)


@KINDS
@pytest.mark.parametrize("num_policies", [1, 3])
@pytest.mark.parametrize("imitation", [False, True])
def test_arrays_reference_and_onnx_agree_with_jax(
    sizes: tuple[int, ...], num_numbers: int, imitation: bool, num_policies: int
) -> None:
    """To 1e-5 on 10,000 random rows, heads in raw units; three policies share a smooth action basis."""
    of = shape(sizes, num_numbers, imitation, num_policies)
    pair = init_pair(of, 3)
    # Biases start at zero, where a graph that forgets them would pass.
    pair = jax.tree.map(lambda x: x + 0.1 * np.random.default_rng(x.size).normal(size=x.shape).astype(np.float32), pair)
    codes, numbers = rows(of)
    outputs = eqx.filter_jit(apply_pair)(pair, jnp.asarray(codes), jnp.asarray(numbers))
    q = (np.asarray(outputs.q.mean(0)) * SPREAD).reshape(ROWS, 4, -1)
    features = np.concatenate(np.asarray(outputs.hidden), axis=1)

    network = arrays(pair, SPREAD)
    reference = forward(network, codes, numbers)
    np.testing.assert_allclose(reference.q, q, atol=1e-5)
    np.testing.assert_allclose(reference.features, features, atol=1e-5)
    last = forward(network.only([num_policies - 1]), codes, numbers)
    np.testing.assert_allclose(last.q, q[:, :, -2:], atol=1e-5)

    session = onnxruntime.InferenceSession(
        policy_graph(network, len(sizes), num_numbers).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feed = {"codes": codes, "numbers": numbers}
    found = dict(
        zip(
            [output.name for output in session.get_outputs()],
            session.run(None, {given.name: feed[given.name] for given in session.get_inputs()}),
            strict=True,
        )
    )
    np.testing.assert_allclose(found["q"], q, atol=1e-5)
    np.testing.assert_allclose(found["features"], features, atol=1e-5)
    assert ("imitation" in found) == imitation == (reference.imitation is not None)
    assert ("outcome" in found) == imitation == (reference.outcome is not None)
    if imitation:
        assert outputs.outcome is not None
        outcome = np.asarray(outputs.outcome.mean(0)) * SPREAD
        assert reference.outcome is not None
        np.testing.assert_allclose(reference.outcome, outcome, atol=1e-5)
        np.testing.assert_allclose(found["outcome"], outcome, atol=1e-5)
        assert outputs.logits is not None
        log_prob = np.asarray(jax.nn.log_softmax(outputs.logits.mean(0)))
        np.testing.assert_allclose(found["imitation"], log_prob, atol=1e-5)
        assert reference.imitation is not None
        np.testing.assert_allclose(reference.imitation, log_prob, atol=1e-5)


def test_the_heads_of_imitation_and_of_the_day_are_stored_too() -> None:
    with_heads, without = (arrays(init_pair(shape((5,), 0, kind), 0), SPREAD) for kind in (True, False))
    assert with_heads.num_parameters - without.num_parameters == 2 * (64 * 4 + 4) + 2 * (64 * 8 + 8)


def test_the_pair_is_two_different_networks_and_a_function_of_the_seed() -> None:
    of = shape((5, 9), 4, True)
    one, again, other = (init_pair(of, seed) for seed in (0, 0, 1))
    for a, b, c in zip(*(jax.tree.leaves(pair) for pair in (one, again, other)), strict=True):
        assert a.shape[0] == 2
        assert np.array_equal(a, b)
        if np.any(a):  # biases are zero
            assert not np.array_equal(a[0], a[1])
            assert not np.array_equal(a, c)


def test_no_two_fields_share_rows_of_the_embedding() -> None:
    assert offsets((5, 9, 2)).tolist() == [0, 5, 14]
    assert init_pair(shape((5, 9, 2), 0, False), 0).embedding.shape == (2, 16, 8)
    assert offsets(()).tolist() == []


def test_a_smooth_basis_holds_every_polynomial_of_its_degree_and_a_step_at_none() -> None:
    values = np.array([0.0, 1.0, 2.0, 3.5, 4.0, 6.0, 7.0])
    basis = smooth_basis(values, 2, 0.0)
    assert basis is not None
    wanted = 3 - 2 * values + 0.5 * values**2 - 4 * (values == 0)
    found, *_ = np.linalg.lstsq(np.array(basis).T, wanted, rcond=None)
    np.testing.assert_allclose(np.array(basis).T @ found, wanted, atol=1e-12)
    assert len(basis) == 4
    assert np.array(smooth_basis(values, 2, None)).shape == (3, 7)


def test_a_basis_that_saves_nothing_is_the_identity() -> None:
    assert smooth_basis(np.array([1.0, 2.0, 3.0]), 4, None) is None
    assert smooth_basis(np.arange(9.0), 0, None) is None


@pytest.mark.parametrize(
    "action_basis", [None, smooth_basis(np.arange(4.0), 2, 0.0), smooth_basis(np.arange(4.0), 2, None)]
)
def test_a_pair_starts_at_its_level(action_basis: tuple[tuple[float, ...], ...] | None) -> None:
    of = shape((5, 9), 0, imitation=False)._replace(num_policies=3, action_basis=action_basis)
    pair = init_pair(of, 3, np.array([0.7, -2.0]))
    pair = eqx.tree_at(lambda net: net.head.weight, pair, jnp.zeros_like(pair.head.weight))
    outputs = apply_pair(pair, *(jnp.asarray(part) for part in rows(of)))
    np.testing.assert_allclose(outputs.q, np.broadcast_to([0.7, -2.0], outputs.q.shape), atol=1e-6)
