"""Features that are only known after the decision are refused; none that was known before, whatever follows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outlay
from campaign_files import campaign_file
from outlay.core.errors import CampaignError, LogError
from outlay.evaluating.log_check import CheckReport
from outlay.jobs.check import check
from telling import missing

DAYS = 5
COUPONS = np.array([1.0, 2.0, 3.0])
CATEGORICAL = ["yesterday", "coupon_before", "city", "weekday", "level"]
NUMERIC = ["habit", "spent_yesterday", "noise"]
BEFORE = CATEGORICAL + NUMERIC

pytestmark = pytest.mark.usefixtures("untested_state")


def log(assignment: str, *, users: int = 4000, seed: int = 0, habit: float = 3.0) -> dict[str, Any]:
    """A row per user and day. `habit` is how strongly people do as they did yesterday.

    `assignment` is how coupons were drawn: `random`; `targeted` at features; `kept` for all days once drawn; `barred`,
    where the highest is never given to level 0, and nothing says so but the propensities.
    """
    rng = np.random.default_rng(seed)
    level, city = rng.integers(0, 3, users), rng.integers(0, 30, users)
    before, active, spent = np.zeros(users), rng.random(users) < 0.5, np.zeros(users)
    mean, kept = rng.random(users), rng.integers(0, 3, users)
    parts: list[dict[str, Any]] = []
    for day in range(DAYS):
        known = {
            "user_id": np.arange(users),
            "day": np.full(users, day),
            "yesterday": active.astype(int),
            "coupon_before": before,
            "city": city,
            "weekday": np.full(users, day % 7),
            "level": level,
            "habit": mean,
            "spent_yesterday": spent,
            "noise": rng.normal(size=users),
        }
        chance = np.full((users, 3), 1 / 3)
        if assignment == "targeted":
            want = np.stack([2.5 * active, np.zeros(users), 2 * mean + (city % 3)], axis=1)
            chance = 0.04 + 0.88 * np.exp(want) / np.exp(want).sum(axis=1, keepdims=True)
        elif assignment == "barred":
            chance = np.where(level[:, None] == 0, [0.6, 0.4, 0.0], [0.2, 0.3, 0.5])
        drawn = (chance.cumsum(axis=1) < rng.random((users, 1))).sum(axis=1)
        coupon = kept if assignment == "kept" else np.minimum(drawn, 2)
        pull = -1.6 - habit / 2 + habit * active + 0.8 * coupon + 0.4 * level
        active = rng.random(users) < 1 / (1 + np.exp(-pull))
        spent = active * rng.lognormal(1, 1, users)
        mean = 0.7 * mean + 0.3 * active
        before = COUPONS[coupon]
        parts.append(
            known
            | {
                "coupon": before,
                "p": chance[np.arange(users), coupon],
                "active": active.astype(int),
                "spent": spent,
                "again": active.astype(int),
                "basket": spent + rng.normal(0, 0.01, users) * active,
                "clicked": (rng.random(users) < 0.2 + 0.1 * coupon).astype(int),
                "minutes": rng.gamma(2, 1, users) * (1 + 0.3 * coupon),
                "offer": before,
            }
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def told(
    folder: Path, columns: dict[str, Any], *, more: tuple[str, ...] = (), stated: bool = True, **settings: Any
) -> CheckReport:
    """What `check` says with these features beside those known before."""
    numeric = [*NUMERIC, *(name for name in more if name in ("basket", "minutes", "spent"))]
    categorical = [*CATEGORICAL, *(name for name in more if name not in numeric)]
    return check(
        campaign_file(
            folder,
            columns,
            log='propensity = "p"' if stated else "",
            categorical=str(categorical),
            numeric=str(numeric),
            **settings,
        )
    )


def blocked(report: CheckReport) -> dict[str, str]:
    return {
        f.name: f.message
        for f in report.findings
        if f.level == "error" and f.key == "log.features" and f.name is not None
    }


@pytest.mark.parametrize(
    "assignment", ["random", *(pytest.param(name, marks=pytest.mark.slow) for name in ("targeted", "kept", "barred"))]
)
def test_what_was_known_before_is_never_refused(tmp_path: Path, assignment: str) -> None:
    for seed, habit in ((0, 0.0), (1, 9.0)):  # 9: all but one in a hundred do as they did yesterday
        report = told(tmp_path, log(assignment, seed=seed, habit=habit))
        assert not report.blocks, (habit, [f.message for f in report.findings])


@pytest.mark.parametrize("assignment", ["random", "targeted", "kept", "barred"])
def test_what_the_days_own_action_moves_is_refused(tmp_path: Path, assignment: str) -> None:
    report = told(tmp_path, log(assignment, users=12000, habit=1.0), more=("clicked", "minutes", "offer"))
    found = blocked(report)
    assert set(found) == {"clicked", "minutes", "offer"}
    for words in found.values():
        assert not missing(words, "moved", "own action")
    assert report.blocks


@pytest.mark.parametrize("stated", [True, False], ids=["stated", "no propensities"])
@pytest.mark.parametrize("habit", [0.0, 9.0])
def test_what_determines_the_reward_is_refused_and_yesterday_is_not(tmp_path: Path, habit: float, stated: bool) -> None:
    report = told(tmp_path, log("random", habit=habit, users=2000), more=("again", "basket"), stated=stated)
    found = blocked(report)
    assert set(found) == {"again", "basket"}
    if not stated:
        assert "determines the reward" in found["again"]


@pytest.mark.parametrize("habit", [0.0, 9.0])
def test_what_tells_tomorrow_is_refused(tmp_path: Path, habit: float) -> None:
    """`clicked` of a row is `active` of the user's next."""
    columns, users = log("random", habit=habit, users=2000), 2000
    columns["clicked"] = np.append(columns["active"][users:], np.zeros(users, int))
    found = blocked(told(tmp_path, columns, more=("clicked",), stated=False))
    assert set(found) == {"clicked"}
    assert "determines the reward of the user's next row" in found["clicked"]


def test_a_reward_in_money_is_found_by_a_noisy_copy_of_it(tmp_path: Path) -> None:
    columns = log("random", habit=1.0, users=2000)
    columns["active"] = columns["spent"]
    found = blocked(told(tmp_path, columns, more=("basket",), stated=False))
    assert set(found) == {"basket"}
    assert "determines the reward" in found["basket"]


def test_one_row_a_user_has_no_day_before(tmp_path: Path) -> None:
    columns = log("random", users=6000)
    first = columns["day"] == 0
    columns = {name: values[first] for name, values in columns.items()}
    assert set(blocked(told(tmp_path, columns, more=("again",), discount=0.0))) == {"again"}


def test_prepare_refuses_it_unless_the_campaign_file_says_that_it_is_known_before(tmp_path: Path) -> None:
    columns = log("random", users=1000)
    path = campaign_file(tmp_path, columns, log='propensity = "p"', categorical='["yesterday", "again"]')
    with pytest.raises(LogError, match=r"known before the decision") as error:
        outlay.prepare(path, tmp_path / "data")
    assert 'known_before = ["again"]' in str(error.value)
    meant = path.read_text().replace("numeric = []", 'numeric = []\nknown_before = ["again"]')
    path.write_text(meant)
    assert not check(path).blocks
    outlay.prepare(path, tmp_path / "data")
    path.write_text(meant.replace('known_before = ["again"]', 'known_before = ["gain"]'))
    with pytest.raises(CampaignError, match=r"names 'gain', .*features"):
        check(path)


def test_no_feature_is_refused_where_the_action_had_no_choice(tmp_path: Path) -> None:
    """Forced rows say nothing about propensities: the feature that forces is not moved by the action."""
    columns = log("random", users=3000)
    rested = columns["yesterday"] == 1
    columns["coupon"] = np.where(rested, 1.0, columns["coupon"])
    columns["no_choice"] = rested
    path = campaign_file(
        tmp_path, columns, log='propensity = "p"\nforced = "no_choice"', categorical='["yesterday"]', numeric="[]"
    )
    assert not check(path).blocks
