"""A small bundle with random networks: two features, two members, three actions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from outlay.bundles.decide import Bundle
from outlay.bundles.read import load_bundle
from outlay.bundles.write import BundleSpec, MemberSpec, write_bundle
from outlay.core.arrays import Dense, NetworkArrays, lookup_network
from outlay.core.bodies import StateTable
from outlay.core.campaign import Campaign
from outlay.core.schema import FIRST, Categorical, Numeric, Schema

SCHEMA = Schema(
    (Categorical("level", ("1", "2", "3")), Categorical("city", ("Lyon", "Ulm"))), (Numeric("spend", 10, 4),)
)
CAMPAIGN = Campaign.parse(
    {
        "campaign": {"name": "coupons", "unit": "yuan", "none": 0.0},
        "log": {
            "source": "log.parquet",
            "user": "user_id",
            "time": "day",
            "action": "coupon",
            "reward": "active",
            "features": {"categorical": ["level", "city"], "numeric": ["spend"]},
        },
        "budget": [{"name": "coupon_cost", "cost": "coupon * active", "at_most": 1.2}],
    },
    Path("campaign.toml"),
)


def random_network(
    seed: int,
    *,
    sizes: tuple[int, ...] = SCHEMA.sizes,
    numbers: int = 2,
    layers: tuple[int, ...] = (16, 8),
    actions: int = 3,
    heads: int = 2,
    imitation: bool = True,
    outcomes: int = 0,
    pair: int = 2,
) -> NetworkArrays:
    rng = np.random.default_rng(seed)

    def dense(width: int, out: int) -> Dense:
        weight = rng.normal(0, (2 / width) ** 0.5, (pair, width, out)).astype(np.float32)
        return weight, rng.normal(0, 0.3, (pair, out)).astype(np.float32)

    widths = (len(sizes) * 4 + numbers, *layers)
    return NetworkArrays(
        embedding=rng.normal(0, 1, (pair, sum(sizes), 4)).astype(np.float32),
        offsets=np.cumsum((0, *sizes))[:-1].astype(np.int64),
        layers=tuple(dense(a, b) for a, b in itertools.pairwise(widths)),
        head=dense(widths[-1], actions * heads),
        imitation=dense(widths[-1], actions) if imitation else None,
        num_actions=actions,
        outcome=dense(widths[-1], actions * outcomes) if outcomes else None,
    )


def spec(
    campaign: Campaign = CAMPAIGN, *, threshold: float | None = None, weights: tuple[float, ...] = (0.6, 0.4)
) -> BundleSpec:
    members = tuple(
        MemberSpec(random_network(i), weight, [0.5 * i], [1.0, -0.5 * i], [0.2, 1.0])
        for i, weight in enumerate(weights)
    )
    return BundleSpec(
        campaign,
        SCHEMA,
        [0.0, 1.5, 3.0],
        ("reward", "coupon_cost"),
        members,
        imitation_threshold=threshold,
        data_hash="d4",
    )


@pytest.fixture(scope="session")
def make_spec() -> Callable[..., BundleSpec]:
    return spec


@pytest.fixture(scope="session")
def make_network() -> Callable[..., NetworkArrays]:
    return random_network


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_bundle(tmp_path / "bundle", spec())
    return tmp_path / "bundle"


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    path = tmp_path_factory.mktemp("bundles") / "bundle"
    write_bundle(path, spec())
    return load_bundle(path)


@pytest.fixture(scope="session")
def eligible_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Its campaign has the list column `allowed`; its members threshold π_B at 0.9 of the largest."""
    path = tmp_path_factory.mktemp("bundles") / "bundle"
    campaign = CAMPAIGN.model_copy(update={"log": CAMPAIGN.log.model_copy(update={"eligible": "allowed"})})
    write_bundle(path, replace(spec(campaign), imitation_threshold=0.9))
    return load_bundle(path)


def frontier_spec(policies: int = 5) -> BundleSpec:
    """A bundle of two members with all policies of its network beside them; dearer ones earn more."""
    network = random_network(0, heads=2 * policies, imitation=False)
    network = replace(network, num_policies=policies)
    every = tuple(
        MemberSpec(network, 0.0, [0.2 * i], [1.0, -0.2 * i], [1.0 - 0.1 * i - 0.02 * i * i, 1.6 - 0.35 * i], i)
        for i in range(policies)
    )
    used = [1, 3]
    members = tuple(
        replace(every[i], network=network.only(used), weight=weight, policy=place)
        for place, (i, weight) in enumerate(zip(used, (0.6, 0.4), strict=True))
    )
    return replace(spec(), members=members, frontier=every, reserve=[0.0, 1.5, 3.0])


@pytest.fixture(scope="session")
def make_frontier() -> Callable[..., BundleSpec]:
    return frontier_spec


@pytest.fixture(scope="session")
def frontier_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    path = tmp_path_factory.mktemp("bundles") / "bundle"
    write_bundle(path, frontier_spec())
    return load_bundle(path)


@pytest.fixture(scope="session")
def table_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A policy counted in states: the log showed levels 1 and 2 in each city, and a spend of 10 in every row."""
    codes = np.array(list(itertools.product((FIRST, FIRST + 1), (FIRST, FIRST + 1))), np.int32)
    table = StateTable(codes, np.zeros((4, 2), np.float32))
    q = np.zeros((4, 3, 1, 2))
    q[[0, 1, 2, 3], [0, 1, 2, 2], 0, 0] = 1.0
    network = lookup_network(table, SCHEMA.sizes, q, np.zeros((4, 3, 2)), np.full(4, 0.25))
    path = tmp_path_factory.mktemp("bundles") / "bundle"
    write_bundle(path, replace(spec(), members=(MemberSpec(network, 1.0, [0.5], [1.0, -0.5], [0.2, 1.0]),)))
    return load_bundle(path)
