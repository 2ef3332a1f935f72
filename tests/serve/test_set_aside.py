"""What is set aside for each action: a bundle that would let a cap be passed is not served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_servers import ADMIN, RESERVE, request, server
from small_trials import Days, trial

from outlay.bundles.decide import Bundle
from outlay.bundles.manifest import unseal
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.core.errors import OutlayError
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.loaded_bundle import prepare_bundle
from outlay.serve.experiment import load_experiment
from small_bundles import CAMPAIGN
from telling import missing

FREE = {"0": 0.0, "1.5": 0.0, "3": 3.0}
UNPRICED = ("no row", "actions 1.5 and 3", "no cap", "State the most", "campaign file", "[reserve]", "serve.toml")
NEVER_COST = {"reserve": [0.0, 0.0, 0.0], "largest_costs": [0.0, 0.0, 0.0]}


@pytest.fixture
def make(tmp_path: Path, make_spec: Callable[..., BundleSpec]) -> Callable[..., Path]:
    """Writes a bundle whose campaign file states `stated` as the reserve."""

    def make(name: str = "bundle", stated: str | None = None, **changes: Any) -> Path:
        (budget,) = CAMPAIGN.budgets
        campaign = CAMPAIGN.model_copy(update={"budgets": (budget.model_copy(update={"reserve": stated}),)})
        write_bundle(tmp_path / name, replace(make_spec(campaign), **changes))
        return tmp_path / name

    return make


def refused(folder: Path, **settings: Any) -> str:
    with pytest.raises(OutlayError) as error:
        prepare_bundle(folder, ServeConfig.parse(settings))
    return str(error.value)


def test_actions_that_never_cost_anything_need_a_price(make: Callable[..., Path]) -> None:
    assert not missing(refused(make(**NEVER_COST)), f"{make(**NEVER_COST)}:", *UNPRICED)
    one = refused(make(reserve=[0.0, 0.0, 3.0], largest_costs=[0.0, 0.0, 3.0]))
    assert not missing(one, "no row", "the action 1.5")
    assert "the action 3" not in one
    assert "the action 1.5" in refused(make(reserve=[0.0, 0.0, 3.0])), "also of a bundle of an older version"


def test_none_needs_no_price_whatever_its_value(make: Callable[..., Path]) -> None:
    meta = CAMPAIGN.meta.model_copy(update={"none": 1.5})
    (budget,) = CAMPAIGN.budgets
    campaign = CAMPAIGN.model_copy(update={"meta": meta})
    assert "with the action 0, and" in refused(make(campaign=campaign, reserve=[0.0, 0.0, 3.0]))
    free = campaign.model_copy(update={"budgets": (budget.model_copy(update={"reserve": "0"}),)})
    folder = make(campaign=free, reserve=[0.0, 0.0, 0.0], largest_costs=[0.0, 9.0, 0.0])
    assert prepare_bundle(folder, ServeConfig()).amount(1) == 0


@pytest.mark.parametrize("stated", ["0 * coupon", None])
def test_what_is_stated_to_be_free_is_free(make: Callable[..., Path], stated: str | None) -> None:
    settings: dict[str, Any] = {} if stated else {"reserve": dict.fromkeys(RESERVE, 0.0)}
    assert prepare_bundle(make(stated=stated, **NEVER_COST), ServeConfig.parse(settings)).amounts == (0, 0, 0)


def test_a_reserve_below_what_the_log_has_cost_is_not_believed(make: Callable[..., Path]) -> None:
    largest = [0.0, 1.5, 3.0]
    half = make(stated="coupon * 0.5", reserve=[0.0, 0.75, 1.5], largest_costs=largest)
    assert not missing(refused(half), "reserve", "0.75 for the action 1.5", "cost 1.5", "State the most")
    assert prepare_bundle(half, ServeConfig.parse({"reserve": RESERVE})).amounts == (0, 150, 300)
    told = refused(half, reserve=RESERVE | {"3": 2.99})
    assert not missing(told, "reserve", "2.99 for the action 3", "cost 3")
    by_rounding = make(stated="coupon", reserve=[0.0, 0.1 + 0.2, 3.0], largest_costs=[0.0, 0.30000001, 3.0])
    assert prepare_bundle(by_rounding, ServeConfig()).amounts == (0, 31, 300)


def test_a_bundle_may_not_know_what_its_log_has_cost(make: Callable[..., Path]) -> None:
    folder = make(stated="coupon * 0.5", reserve=[0.0, 0.75, 1.5])
    assert unseal(folder).largest_costs is None
    assert prepare_bundle(folder, ServeConfig()).amounts == (0, 75, 150)


def test_neither_a_swap_nor_an_arm_brings_it_into_service(
    bundle: Bundle, make: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make(**NEVER_COST)
    with server(make("good", reserve=[0.0, 1.5, 3.0]), tmp_path / "ledger.db", reserve=None) as client:
        old = client.service.state.loaded.bundle.id
        found = client.post("/v1/admin/bundle", json={"path": str(folder)}, headers=ADMIN)
        assert found.status_code == 422
        assert not missing(found.json()["error"], str(folder), *UNPRICED, f"Bundle {old} stays in service.")
        assert client.service.state.loaded.bundle.id == old
        with pytest.raises(OutlayError, match=r"no row .*with the actions"):
            load_experiment(trial(tmp_path, folder), client.service.state.loaded, client.service.state.config)


@pytest.mark.parametrize(
    ("limits", "given"),
    [
        ({"user": {"decisions_per_day": 1}}, [True, False, False]),
        ({"user": {"decisions": 2}}, [True, True, False]),
        ({"caps": {"total": 0.0, "day": 0.0}, "user": {"amount": 0.0}}, [True, True, True]),
        ({"values": {"at_most": 1.0}}, [False, False, False]),
    ],
)
def test_a_free_offer_is_counted_by_every_limit_on_offers(
    bundle: Bundle, tmp_path: Path, limits: dict[str, Any], given: list[bool]
) -> None:
    """13 coupons to one user, under one a day, because they reserved nothing."""
    with server(bundle, tmp_path / "ledger.db", reserve=FREE, clock=Days(), **limits) as client:
        asked = [request(number, user_id="ann", eligible=[1.5]) for number in range(3)]
        found = [client.post("/v1/decisions", json=each).json() for each in asked]
        assert [each["action"] > 0 for each in found] == given
        assert [each["state"] for each in found] == ["reserved" if each else "none" for each in given]
        totals = client.service.ledger.totals("coupons").total
        assert (totals.offers, totals.reserved, totals.decisions) == (sum(given), 0, 3)
        client.post("/v1/admin/pause", headers=ADMIN)
        late = client.post("/v1/decisions", json=request(9, user_id="bob", eligible=[1.5])).json()
        assert (late["action"], late["reason"]) == (0.0, "paused")
        assert client.service.ledger.check() == []
