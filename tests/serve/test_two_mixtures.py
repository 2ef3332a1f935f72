"""A bundle of two mixtures: the certified one, and the one that spends the limit, which is served behind a cap."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_servers import ADMIN, RESERVE, request, server
from small_trials import trial

from outlay.bundles.decide import Bundle
from outlay.bundles.pool import Pool
from outlay.bundles.read import load_bundle
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.ops.hashing import rendezvous
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.decider import decode_draw
from outlay.serve.deciding.loaded_bundle import is_capped, mixture_words, prepare_bundle
from outlay.serve.experiment import load_experiment
from outlay.serve.handlers.state import ServingState
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.caps import Caps
from outlay.serve.pacing.mixing import PolicyPool
from outlay.serve.shared_settings import agree_settings
from small_bundles import frontier_spec
from telling import missing

CERTIFIED, CAPPED = [0, 0.6, 0, 0.4, 0], [0, 0.75, 0.25, 0, 0]  # weights of the five policies, dear ones first


def both() -> BundleSpec:
    """The policies 1 and 3 as certified, and 1 and 2, which cost more, behind a cap."""
    of = frontier_spec()
    whole, used = of.frontier[0].network, [1, 2, 3]
    slim = whole.only(used)  # type: ignore[union-attr]  # a network of heads

    def mixture(weights: list[float]) -> tuple[Any, ...]:
        return tuple(
            replace(of.frontier[i], network=slim, weight=weights[i], policy=used.index(i)) for i in used if weights[i]
        )

    return replace(of, members=mixture(CERTIFIED), capped=mixture(CAPPED))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundles") / "bundle"
    write_bundle(folder, both())
    return load_bundle(folder)


def test_the_two_share_networks_and_policies(bundle: Bundle) -> None:
    pool = Pool(bundle)
    assert pool.weights.tolist() == pytest.approx(CERTIFIED)
    assert pool.capped.tolist() == pytest.approx(CAPPED)
    assert len(list(bundle.folder.glob("policy-*.onnx"))) == 1
    assert all(member.file is not None for member in pool.mixture(pool.capped).members), "not the graph of the frontier"


def test_a_bundle_of_one_mixture_serves_it_everywhere(frontier_bundle: Bundle) -> None:
    pool = Pool(frontier_bundle)
    assert pool.capped is pool.weights
    loaded = prepare_bundle(frontier_bundle.folder, ServeConfig.parse({"reserve": RESERVE}))
    assert loaded.capped is loaded.decider
    assert mixture_words(loaded, capped=True) == ""


def test_weights_behind_a_cap_are_checked_as_the_others_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sum to 1"):
        replace(both(), capped=both().capped[:1])
    with pytest.raises(ValueError, match="frontier"):
        write_bundle(tmp_path / "bundle", replace(both(), frontier=()))


def test_which_caps_count() -> None:
    """A cap per user holds no budget, and neither does one of the random slice."""
    assert [is_capped(caps) for caps in (Caps(total=5), Caps(day=5), Caps(arms={"policy": 5}))] == [True] * 3
    others = (Caps(), Caps(user_amount=5), Caps(user_day_offers=1), Caps(arms={"random": 5}))
    assert [is_capped(caps) for caps in others] == [False] * 4


def test_whoever_starts_a_server_is_told_which_one_it_serves(bundle: Bundle, tmp_path: Path) -> None:
    cap: dict[str, Any] = {"caps": {"total": 50}}
    starts: list[tuple[dict[str, Any], list[str]]] = [
        (cap, ["behind a cap", "no margin below the limit", "certified"]),
        ({}, ["without a cap users get the mixture that keeps a margin"]),
        (cap | {"hold": "certified"}, []),
        (cap | {"plan": {"start": "2027-03-01", "days": 28}}, []),
    ]
    for number, (settings, words) in enumerate(starts):
        config = ServeConfig.parse({"reserve": RESERVE, **settings})
        with closing(open_ledger(f"sqlite:///{tmp_path}/{number}.db")) as ledger:
            told = agree_settings(ledger, prepare_bundle(bundle.folder, config), config)
        about = [line for line in told if "mixture" in line]
        assert len(about) == bool(words)
        assert not missing(" ".join(about), *words)


def test_the_mixture_follows_the_caps_and_most_users_keep_their_member(bundle: Bundle, tmp_path: Path) -> None:
    config = ServeConfig.parse({"reserve": RESERVE})
    loaded = prepare_bundle(bundle.folder, config)
    with closing(open_ledger(f"sqlite:///{tmp_path}/ledger.db")) as ledger:
        agree_settings(ledger, loaded, config)
        state = ServingState(loaded, config)
        state.begin(ledger)
        assert state.decider(loaded, "e", 0) is loaded.decider
        ledger.change_caps(loaded.campaign, lambda _caps: Caps(total=5_000))
        state.follow(ledger, 0)
        assert state.decider(loaded, "e", 0) is loaded.capped
        other = ServingState(loaded, config)
        other.begin(ledger)
        assert other.decider(loaded, "e", 0) is loaded.capped, "also the server that starts later"
    users = [f"user-{i}" for i in range(4_000)]
    before, after = (_members(decider.bundle, users) for decider in (loaded.decider, loaded.capped))
    kept = np.mean([one == two for one, two in zip(before, after, strict=True)])
    assert 0.45 < kept <= 0.6, "0.6 have the member that both mixtures have"


def _members(mixture: Bundle, users: list[str]) -> list[str]:
    drawn = rendezvous([m.salt for m in mixture.members], mixture.weights, [f"{user}:e" for user in users])
    return [mixture.members[i].salt for i in drawn.tolist()]


def test_decisions_say_what_they_were_drawn_from(bundle: Bundle, tmp_path: Path) -> None:
    with server(bundle, tmp_path / "ledger.db") as client:

        def drawn(number: int) -> list[float]:
            assert client.post("/v1/decisions", json=request(number)).status_code == 200
            rows = client.service.ledger.rows("coupons", 0, 2**62)
            return next(decode_draw(row.members).weights for row in rows if row.request_id == f"r{number}")

        assert drawn(1) == pytest.approx([0.6, 0.4])
        assert client.post("/v1/admin/caps", json={"total": 1000}, headers=ADMIN).status_code == 200
        assert drawn(2) == pytest.approx([0.75, 0.25])
        assert client.post("/v1/admin/caps", json={"total": None}, headers=ADMIN).status_code == 200
        assert drawn(3) == pytest.approx([0.6, 0.4])


def test_an_arm_of_a_test_has_the_certified_mixture(bundle: Bundle, tmp_path: Path) -> None:
    """Its budget is planned for what that costs, and an arm that runs dry biases the lift."""
    config = ServeConfig.parse({"reserve": RESERVE, "caps": {"total": 5_000}})
    loaded = prepare_bundle(bundle.folder, config)
    served = load_experiment(trial(tmp_path, bundle.folder), loaded, config)
    deciders = [arm.decider for arm in served.arms if arm.kind == "bundle"]
    assert deciders
    for decider in deciders:
        assert decider is not None
        assert decider.weights.tolist() == pytest.approx(CERTIFIED)


def test_a_plan_begins_with_what_the_cap_holds(bundle: Bundle) -> None:
    loaded = prepare_bundle(bundle.folder, ServeConfig.parse({"reserve": RESERVE}))
    own = PolicyPool.of(loaded.capped.pool, 100, loaded.capped.weights).own
    np.testing.assert_allclose(own, CAPPED)
