"""All policies of a bundle, mixed anew: the same ones that its own mixture has, and at another price others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from outlay.bundles.decide import Bundle
from outlay.bundles.pool import Pool
from outlay.bundles.read import load_bundle
from outlay.bundles.reference import forward
from outlay.bundles.write import BundleSpec, MemberSpec, write_bundle
from outlay.core.arrays import NetworkArrays, preferring_network
from outlay.core.errors import BundleError
from small_bundles import random_network

RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 4, (200, 2)).astype(np.int32)
NUMBERS = RNG.normal(size=(200, 2)).astype(np.float32)
POLICIES = 5


def actions(bundle: Bundle) -> list[list[int]]:
    return [chosen.tolist() for chosen, _ in bundle.choices(CODES, NUMBERS)]


@pytest.fixture(scope="module")
def longhand(make_frontier: Callable[[], BundleSpec]) -> Callable[[list[float], int], list[int]]:
    """A policy's actions from the plain forward pass."""
    network = make_frontier().frontier[0].network
    assert isinstance(network, NetworkArrays)
    q = forward(network, CODES, NUMBERS).q.reshape(200, 3, POLICIES, 2)

    def chosen(head_weights: list[float], policy: int) -> list[int]:
        found: list[int] = (q[:, :, policy] @ head_weights).argmax(1).tolist()
        return found

    return chosen


def test_the_pool_of_a_plain_bundle_is_its_mixture(bundle: Bundle) -> None:
    pool = Pool(bundle)
    assert pool.weights.tolist() == [0.6, 0.4]
    assert pool.measurements.tolist() == [[0.2, 1.0], [0.2, 1.0]]
    mixed = pool.mixture([0.25, 0.75])
    assert mixed.weights.tolist() == [0.25, 0.75]
    assert actions(mixed) == actions(bundle)


def test_policies_of_the_frontier_are_those_of_the_mixture(frontier_bundle: Bundle) -> None:
    pool = Pool(frontier_bundle)
    assert pool.weights.tolist() == [0, 0.6, 0, 0.4, 0]
    own, more = pool.mixture(pool.weights), pool.mixture([0, 0.5, 0.1, 0.4, 0])
    assert [member.salt for member in own.members] == [member.salt for member in frontier_bundle.members]
    assert own.members[0].session is frontier_bundle.members[0].session
    assert [member.salt for member in more.members][::2] == [member.salt for member in own.members]
    assert actions(own) == actions(frontier_bundle) == actions(more)[::2]


def test_every_policy_does_what_the_network_says_alone_and_among_others(
    frontier_bundle: Bundle, longhand: Callable[[list[float], int], list[int]]
) -> None:
    pool = Pool(frontier_bundle)
    wanted = [longhand([1.0, -0.2 * i], i) for i in range(POLICIES)]
    assert actions(pool.mixture(np.full(POLICIES, 0.2))) == wanted
    assert [actions(pool.mixture(alone))[0] for alone in np.eye(POLICIES)] == wanted
    assert len({tuple(one) for one in wanted}) == POLICIES


def test_a_price_is_a_factor_on_all_but_the_reward(
    frontier_bundle: Bundle, longhand: Callable[[list[float], int], list[int]]
) -> None:
    mixed = Pool(frontier_bundle).mixture(np.full(POLICIES, 0.2), price=3.0)
    assert actions(mixed) == [longhand([1.0, -0.6 * i], i) for i in range(POLICIES)]
    assert mixed.members[2].head_weights.tolist() == pytest.approx([1.0, -1.2])


def test_many_rows_go_through_in_chunks(frontier_bundle: Bundle) -> None:
    mixed = Pool(frontier_bundle).mixture([0.5, 0, 0, 0, 0.5])
    codes, numbers = np.tile(CODES, (12, 1)), np.tile(NUMBERS, (12, 1))
    found = [chosen.tolist() for chosen, _ in mixed.choices(codes, numbers)]
    assert found == [one * 12 for one in actions(mixed)]


@pytest.fixture
def with_constant(make_frontier: Callable[[], BundleSpec]) -> BundleSpec:
    """Its mixture holds "always the second action" as well."""
    spec = make_frontier()
    always = preferring_network(np.eye(3)[1], spec.schema.sizes, NUMBERS.shape[1], 2)
    constant = MemberSpec(always, 0.5, [0.0], [1.0, 0.0], [0.7, 1.5])
    halved = tuple(replace(member, weight=member.weight / 2) for member in spec.members)
    return replace(spec, members=(*halved, constant), frontier=(*spec.frontier, constant), imitation_threshold=0.9)


def test_constant_actions_of_the_mixture_are_in_the_pool(
    with_constant: BundleSpec, tmp_path: Path, longhand: Callable[[list[float], int], list[int]]
) -> None:
    write_bundle(tmp_path / "bundle", with_constant)
    bundle = load_bundle(tmp_path / "bundle")
    pool = Pool(bundle)
    assert pool.weights.tolist() == [0, 0.3, 0, 0.2, 0, 0.5]
    assert pool.measurements[-1].tolist() == [0.7, 1.5]
    constant, learned = [1] * 200, {i: longhand([1.0, -0.6 * i], i) for i in (0, 4)}
    own, mixed = pool.mixture(pool.weights), pool.mixture([0.2, 0, 0, 0, 0.2, 0.6], price=3.0)
    assert actions(own) == actions(bundle)
    assert actions(mixed) == [learned[0], learned[4], constant]
    assert actions(pool.mixture(np.eye(6)[5], price=0.5)) == [constant]
    assert mixed.members[-1].salt == bundle.members[-1].salt


@pytest.fixture
def several(make_frontier: Callable[[], BundleSpec], with_constant: BundleSpec) -> BundleSpec:
    """A frontier of three networks: its own, one that imitates with two policies that share a Q, and a constant one."""
    other = random_network(7, layers=(12,))
    shared = [MemberSpec(other, 0.0, [price], [1.0, -price], [0.5, 1.0]) for price in (0.1, 2.0)]
    return replace(
        make_frontier(),
        frontier=(*make_frontier().frontier, *shared, with_constant.members[-1]),
        imitation_threshold=0.9,
    )


def test_policies_of_several_networks_are_one_graph(
    several: BundleSpec, tmp_path: Path, longhand: Callable[[list[float], int], list[int]]
) -> None:
    write_bundle(tmp_path / "bundle", several)
    pool = Pool(load_bundle(tmp_path / "bundle"))
    other = several.frontier[5].network
    assert isinstance(other, NetworkArrays)
    said = forward(other, CODES, NUMBERS)
    assert said.imitation is not None
    likely = said.imitation >= np.log(0.9) + said.imitation.max(axis=1, keepdims=True)
    assert not likely.all()
    shared = [np.where(likely, said.q @ [1.0, -price], -np.inf).argmax(axis=1).tolist() for price in (0.1, 2.0)]
    wanted = [*(longhand([1.0, -0.2 * i], i) for i in range(POLICIES)), *shared, [1] * 200]
    everybody = pool.mixture(np.full(8, 1 / 8))
    assert actions(everybody) == wanted
    assert len({id(member.session) for member in everybody.members}) == 1
    for live in ([5], [7], [0, 6], [2, 5, 6, 7]):  # some networks are asked for nothing
        some = pool.mixture(np.isin(np.arange(8), live) / len(live))
        assert actions(some) == [wanted[i] for i in live]
    first = everybody.members[0].run(["q"], CODES[:1], NUMBERS[:1])[0]
    assert first.shape == (1, 3, (POLICIES + 1 + 1) * 2)  # the Q that two policies share is computed once


def test_a_frontier_that_changed_after_the_bundle_was_loaded_is_refused_when_it_is_read(
    frontier_bundle: Bundle, tmp_path: Path
) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(frontier_bundle.folder, folder)
    pool = Pool(load_bundle(folder))
    (folder / "frontier.onnx").write_bytes((folder / "frontier.onnx").read_bytes()[:-1])
    assert actions(pool.mixture(pool.weights)) == actions(frontier_bundle)
    for ask in (pool.check, lambda: pool.mixture(np.eye(POLICIES)[0])):
        with pytest.raises(BundleError, match=r"frontier\.onnx: was changed"):
            ask()


def test_the_manifest_names_all_policies(tmp_path: Path, make_frontier: Callable[[], BundleSpec]) -> None:
    write_bundle(tmp_path / "bundle", make_frontier())
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    entries = manifest["frontier"]["members"]
    assert manifest["frontier"]["file"] == "frontier.onnx"
    assert [entry["policy"] for entry in entries] == list(range(POLICIES))
    assert [entries[i]["salt"] for i in (1, 3)] == [member["salt"] for member in manifest["members"]]
    assert len({entry["salt"] for entry in entries}) == POLICIES
