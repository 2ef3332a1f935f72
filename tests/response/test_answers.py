"""A response model as JAX, as plain arrays, as the longhand reference, and as an ONNX graph: one function."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from outlay.bundles.graph import response_graph
from outlay.bundles.reference import respond
from outlay.core.arrays import ResponseArrays
from outlay.nets import deepfm, din
from outlay.nets.deepfm import ResponseShape
from outlay.response.answers import AnsweredRows, Response, answer, arrays
from small_responses import COLUMNS, random_past, random_states

ROWS, BACK, ACTIONS = 3000, 5, 4
SPREAD = np.array([0.5, 20.0, 3.0])
MEAN = np.array([4.0, 100.0, -1.0])

FIELDS = pytest.mark.parametrize(
    ("sizes", "num_numbers"),
    [pytest.param((5, 9), 0, marks=pytest.mark.slow), pytest.param((), 4, marks=pytest.mark.slow), ((5, 9), 4)],
    ids=["categorical only", "numeric only", "both"],
)


def response(
    kind: str,
    sizes: tuple[int, ...],
    num_numbers: int,
    heads: int = 3,
    layers: tuple[int, ...] = (32, 16),
    binary: tuple[bool, ...] = (False, False, False),
) -> Response:
    """With every parameter away from zero, where a term that is forgotten would pass."""
    shape = ResponseShape(sizes, num_numbers, ACTIONS, heads, layers, 8)
    fresh: Any = deepfm.init(shape, 0) if kind == "deepfm" else din.init(shape, BACK, COLUMNS, 0)
    rng = np.random.default_rng(1)
    network = jax.tree.map(lambda x: x + 0.1 * rng.normal(size=x.shape).astype(np.float32), fresh)
    mean, spread = np.where(binary, 0.0, MEAN)[:heads], np.where(binary, 1.0, SPREAD)[:heads]
    return Response(network, mean, spread, binary[:heads], 2)


def states(kind: str, sizes: tuple[int, ...], num_numbers: int) -> tuple[Any, Any]:
    codes, numbers = random_states(ROWS, sizes, num_numbers)
    return codes, np.hstack([numbers, random_past(ROWS, BACK)]) if kind == "din" else numbers


def predicted(of: Response, codes: Any, numbers: Any) -> NDArray[np.float64]:
    """As `Response` itself predicts: `[N, K, H]` in the unit of the labels."""
    rows = AnsweredRows(codes, numbers, np.zeros(len(codes), np.int32))
    found = np.asarray(answer(of.network, rows, logged=False), np.float64) * of.spread + of.mean
    return np.where(of.binary, expit(found), found)


def run(network: ResponseArrays, codes: Any, numbers: Any) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(
        response_graph(network).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feed = {"codes": codes, "numbers": numbers}
    names = [given.name for given in session.get_inputs()]
    found = session.run(None, {name: feed[name] for name in names})
    return dict(zip([output.name for output in session.get_outputs()], found, strict=True))


def close(found: Any, wanted: Any) -> None:
    """Each head to 1e-5 of its own scale."""
    assert found.shape == wanted.shape
    scale = np.abs(wanted).reshape(-1, wanted.shape[-1]).max(0)
    assert (np.abs(found - wanted) / scale).max() < 1e-5


@FIELDS
@pytest.mark.parametrize("binary", [(False, False, False), (True, False, True)], ids=["totals", "binary"])
@pytest.mark.parametrize("kind", ["deepfm", "din"])
def test_arrays_reference_and_onnx_agree_with_jax(
    kind: str, sizes: tuple[int, ...], num_numbers: int, binary: tuple[bool, ...]
) -> None:
    of = response(kind, sizes, num_numbers, binary=binary)
    codes, numbers = states(kind, sizes, num_numbers)
    y = predicted(of, codes, numbers)
    network = arrays(of)
    reference, found = respond(network, codes, numbers), run(network, codes, numbers)
    for q, outcome in ((reference.q, reference.outcome), (found["q"], found["outcome"])):
        close(q, y[:, :, :2])
        close(outcome, y[:, :, [0, 2]])
    close(found["features"], reference.features)
    width = 8 * (3 if kind == "deepfm" else 1)  # DeepFM has embeddings for each head
    assert found["features"].shape == (ROWS, network.num_features) == (ROWS, 32 + width)


@pytest.mark.parametrize("kind", ["deepfm", "din"])
@pytest.mark.parametrize(("heads", "layers"), [(2, (16,)), (3, ())], ids=["one-day label", "no hidden layer"])
def test_other_shapes_agree_too(kind: str, heads: int, layers: tuple[int, ...]) -> None:
    of = response(kind, (5, 9), 2, heads, layers)
    codes, numbers = states(kind, (5, 9), 2)
    y, found = predicted(of, codes, numbers), run(arrays(of), codes, numbers)
    close(found["q"], y[:, :, :2])
    close(found["outcome"], y[:, :, [0, heads - 1]])
    assert np.array_equal(found["outcome"], found["q"]) == (heads == 2)


@pytest.mark.parametrize("kind", ["deepfm", "din"])
def test_arrays_say_what_the_model_holds(kind: str) -> None:
    of = response(kind, (5, 9), 4)
    network = arrays(of)
    products = 3 * 8 * 3 if kind == "deepfm" else 0  # which products belong to which head, which JAX need not store
    assert network.num_parameters == of.num_parameters + products
    assert (network.num_actions, network.num_heads) == (ACTIONS, 2)
    assert network.day_heads.tolist() == [0, 2]
