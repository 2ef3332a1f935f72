"""A test that is live stays as it is, on every server; only its coverage grows, and only on days to come."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from small_servers import RESERVE, request, server
from small_trials import RAMP, Days, trial

from outlay.bundles.decide import Bundle
from outlay.core.errors import OutlayError
from outlay.experiments.design import Experiment, experiment_text
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.loaded_bundle import prepare_bundle
from outlay.serve.experiment import follow_ramp, load_experiment
from outlay.serve.ledger.ledger import Ledger
from outlay.serve.ledger.sqlite import SqliteLedger
from outlay.serve.shared_settings import agree_settings
from telling import missing

Start = Callable[..., list[str]]
GROWN = [*RAMP[:1], {"day": 2, "coverage": 0.8}, {"day": 4, "coverage": 1.0}]
OTHER_ARMS = [
    {"name": "other", "kind": "constant", "action": 1.5, "share": 0.5, "budget": 10.0},
    {"name": "old", "kind": "holdout", "share": 0.5},
]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    yield ledger
    ledger.close()


@pytest.fixture
def start(bundle: Bundle, ledger: Ledger) -> Start:
    """Begins to serve a test on a day of it; what the operator is told."""

    def begin(experiment: Experiment | None, day: float = 0.0, **settings: Any) -> list[str]:
        config = ServeConfig.parse({"reserve": RESERVE, "caps": {"total": 5_000, "policy": 2_000}, **settings})
        loaded = prepare_bundle(bundle.folder, config)
        served = None if experiment is None else load_experiment(experiment, loaded, config)
        return agree_settings(ledger, loaded, config, served, Days(day))

    return begin


def states(ledger: Ledger) -> list[str]:
    return [note.key for note in ledger.notes("coupons", "experiment")]


def test_the_file_is_noted_once_with_all_its_content(
    start: Start, ledger: Ledger, bundle: Bundle, tmp_path: Path
) -> None:
    experiment = trial(tmp_path, bundle.folder)
    words = ["the test 'spring' (old, new, even, nobody) is on day 0 of 7, with a coverage of 0.2."]
    assert start(experiment) == words
    assert start(experiment) == words
    [note] = ledger.notes("coupons", "experiment")
    assert note.key == "spring"
    found = Experiment.parse(json.loads(note.content))
    assert (found.seal(), found.meta.seal, found.ramp) == (experiment.seal(), experiment.seal(), experiment.ramp)
    assert dict(ledger.totals("coupons").caps.arms) == {
        "old": 100_000,
        "new": 100_000,
        "even": 100_000,
        "policy": 200_000,
    }


def test_a_live_test_may_not_change(start: Start, ledger: Ledger, bundle: Bundle, tmp_path: Path) -> None:
    start(trial(tmp_path, bundle.folder))
    for change in ({"salt": "autumn"}, {"days": 14}):
        with pytest.raises(OutlayError, match=r"spring\.toml: .*\bcoverage\b"):
            start(trial(tmp_path, bundle.folder, **change))
    with pytest.raises(OutlayError, match=r"coverage on day 2 .*0\.6 to 0\.2"):
        start(trial(tmp_path, bundle.folder, [RAMP[0], RAMP[2]]))
    assert states(ledger) == ["spring"]


def test_coverage_grows_on_days_to_come_only(start: Start, ledger: Ledger, bundle: Bundle, tmp_path: Path) -> None:
    start(trial(tmp_path, bundle.folder))
    grown = trial(tmp_path, bundle.folder, GROWN)
    with pytest.raises(OutlayError, match=r"coverage on day 2 .*0\.8, .*0\.6"):
        start(grown, 2.0)
    start(grown, 1.9)
    assert states(ledger) == ["spring", "spring:1"]
    start(grown, 5.0)
    with pytest.raises(OutlayError, match=r"coverage on day 2 .*0\.8 to 0\.6"):
        start(trial(tmp_path, bundle.folder))
    start(trial(tmp_path, bundle.folder, GROWN), 40.0)


def test_coverage_that_a_slow_clock_notes_is_the_last_all_the_same(
    start: Start, ledger: Ledger, bundle: Bundle, tmp_path: Path
) -> None:
    """The machine that grows it is behind the one that has begun the test."""
    start(trial(tmp_path, bundle.folder), 1.0)
    grown = trial(tmp_path, bundle.folder, GROWN)
    start(grown, 0.9)
    notes = ledger.notes("coupons", "experiment")
    assert [note.key for note in notes] == ["spring:1", "spring"]
    loaded = prepare_bundle(bundle.folder, ServeConfig.parse({"reserve": RESERVE}))
    before = load_experiment(trial(tmp_path, bundle.folder), loaded, ServeConfig.parse({"reserve": RESERVE}))
    assert follow_ramp(ledger, before).experiment.ramp == grown.ramp


def test_a_server_that_runs_follows_the_coverage(bundle: Bundle, tmp_path: Path) -> None:
    clock, path = Days(1.0), tmp_path / "ledger.db"
    before, grown = trial(tmp_path, bundle.folder), trial(tmp_path, bundle.folder, GROWN)
    with (
        server(bundle, path, clock=clock, experiment=before) as one,
        server(bundle, path, clock=clock, experiment=grown) as two,
    ):
        one.service.maintain()
        clock.at = 2.5
        arms = []
        for name, client in (("one", one), ("two", two)):
            asked = [request(i, request_id=f"{name}-{i}") for i in range(400)]
            answer = client.post("/v1/decisions", json={"requests": asked}).json()
            arms.append([each["arm"] for each in answer["decisions"]])
    assert arms[0] == arms[1]
    inside = sum(arm != "policy" for arm in arms[0]) / 400
    assert abs(inside - 0.8 * 0.8) < 4 * (0.64 * 0.36 / 400) ** 0.5


def test_the_arm_budget_of_an_earlier_test_is_not_used_again(
    start: Start, ledger: Ledger, bundle: Bundle, tmp_path: Path
) -> None:
    start(trial(tmp_path, bundle.folder))
    with pytest.raises(OutlayError, match=r"arm 'old': .*budget .*'spring'"):
        start(trial(tmp_path, bundle.folder, arms=OTHER_ARMS, name="autumn", start="2026-04-06"), 35.0)
    fresh = [OTHER_ARMS[0], OTHER_ARMS[1] | {"name": "b"}]
    start(trial(tmp_path, bundle.folder, arms=fresh, name="autumn", start="2026-04-06"), 35.0)
    assert ledger.totals("coupons").caps.arms["other"] == 1_000


def test_the_operator_is_told_where_the_test_stands(start: Start, bundle: Bundle, tmp_path: Path) -> None:
    experiment = trial(tmp_path, bundle.folder)
    assert not missing(start(experiment, -3.0)[0], "spring", "begins", "2026-03-02")
    assert not missing(start(experiment, 7.0)[0], "spring", "is over")
    assert not missing(start(None, 3.0)[0], "'spring'", "not served")
    assert start(None, 7.0) == []


def test_budgets_beyond_the_total_cap_do_not_start(
    start: Start, ledger: Ledger, bundle: Bundle, tmp_path: Path
) -> None:
    with pytest.raises(OutlayError, match=r"total cap: is 2,000 yuan, .*3,000 yuan"):
        start(trial(tmp_path, bundle.folder), caps={"total": 2_000})
    assert ledger.campaigns() == []


def test_a_cap_that_was_lowered_below_the_budgets_of_a_live_test_is_told(
    start: Start, ledger: Ledger, bundle: Bundle, tmp_path: Path
) -> None:
    start(trial(tmp_path, bundle.folder))
    ledger.set_caps("coupons", replace(ledger.totals("coupons").caps, total=200_000))
    *_, words = start(trial(tmp_path, bundle.folder), caps={"total": 2_000})
    assert not missing(words, "arms", "3,000 yuan", "total cap", "2,000 yuan")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"caps": {"total": 5_000, "policy": 2_000}}, False),
        ({"caps": {"total": 5_000}}, True),
        ({"caps": {"total": 4_999, "policy": 2_000}}, True),
        ({"caps": {"total": 5_000, "policy": 2_000}, "random": {"share": 0.1}}, True),
        ({"caps": {"total": 5_000, "policy": 1_900}, "random": {"share": 0.1, "cap": 100}}, False),
        ({"caps": {}}, False),  # which is told anyway
    ],
)
def test_money_of_the_arms_that_others_may_spend_is_told(
    start: Start, bundle: Bundle, tmp_path: Path, settings: dict[str, Any], *, told: bool
) -> None:
    experiment = trial(tmp_path, bundle.folder)
    words = [line for line in start(experiment, **settings) if "users outside the test may use up" in line]
    assert len(words) == told
    assert not [line for line in start(experiment, 7.0, **settings) if "users outside the test may" in line]


def test_what_was_spent_before_leaves_less_to_the_arms(
    start: Start, ledger: Ledger, bundle: Bundle, tmp_path: Path
) -> None:
    """By a test before, that is: what the users outside have spent counts to their own cap."""
    old = [OTHER_ARMS[0] | {"name": "a"}, OTHER_ARMS[1] | {"name": "b"}]
    first = trial(tmp_path, bundle.folder, [{"day": 0, "coverage": 1.0}], old, name="first", start="2026-01-05")
    caps = {"total": 5_000, "policy": 2_000}
    with server(bundle, tmp_path / "ledger.db", clock=Days(-56), experiment=first, caps=caps) as client:
        asked = [request(i, eligible=[1.5]) for i in range(20)]
        assert client.post("/v1/decisions", json={"requests": asked}).status_code == 200
        assert client.service.ledger.totals("coupons").arms["a"].reserved > 0
    assert not missing(start(trial(tmp_path, bundle.folder))[-1], "users outside the test")


def test_a_file_that_was_changed_by_hand_is_refused_before_anything(bundle: Bundle, tmp_path: Path) -> None:
    experiment = trial(tmp_path, bundle.folder)
    file = tmp_path / "spring.toml"
    file.write_text(experiment_text(experiment).replace("1.5", "3.0"))
    with pytest.raises(OutlayError, match=r"the ramp .*changed"):
        Experiment.load(file)
