"""Exports: sums equal to the ledger, a row per user and day, and files that prepare reads as they stand."""

from __future__ import annotations

import datetime
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from small_ledgers import new_url, tamper

import outlay
from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, OutlayError
from outlay.serve.config import ServeConfig
from outlay.serve.export.export import export_log
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.ledger import Note
from outlay.serve.ledger.sqlite import SqliteLedger
from small_exports import CAMPAIGN, DAY, FIRST, PLAIN, WAIT, Ledger, ServerLedger, export, on, rows_of
from telling import missing


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db")


@pytest.fixture
def active(tmp_path: Path) -> Ledger:
    """A ledger of the campaign that wants to know who was active and who visited."""
    return Ledger(tmp_path / "active.db", CAMPAIGN)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "next"


def filled(ledger: Ledger | ServerLedger, days: range = range(3), users: int = 40) -> None:
    """Users keep a member; some redeem, are active, visit; one in ten is in the slice."""
    for user in range(users):
        for day in days:
            some = (user * 7 + day * 3) % 5
            features = {"level": user % 3, "city": ("Ulm", "Lyon")[user % 2], "spend": user / 4}
            member = None if user % 10 == 9 else user % 2
            decision = ledger.decide(
                f"u{user}",
                day,
                member=member,
                index=(user + day) % 3 if member is None else None,
                random=0.1,
                reason="policy" if member is not None else "random",
                features=features,
            )
            if some < 3:
                ledger.came(decision, "active")
                ledger.came(decision, "redeemed")
            if some == 2:
                ledger.came(decision, "visit", 2.5)


def same(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    """Equal but for the last bits of sums of logarithms."""
    short = [[row | {"propensity": float(f"{row['propensity']:.12g}")} for row in each] for each in (rows, others)]
    return short[0] == short[1]


def campaign_in(out: Path) -> Campaign:
    return Campaign.load(out / "campaign.toml")


def test_sums_are_the_ledgers_to_the_last_minor_unit(active: Ledger, out: Path) -> None:
    filled(active)
    active.decide("u1", 1, forced="day_cap", hour=18)
    active.came(active.decide("u2", 2, hour=18), "redeemed", 1.25)
    found = export(active, out)
    manifest = json.loads((out / "manifest.json").read_text())
    for day, tally in active.totals("coupons").days.items():
        rows = [row for row in rows_of(out) if row["day"] == datetime.date(1970, 1, 1) + datetime.timedelta(day)]
        sums = [sum(row[name] for row in rows) for name in ("decisions", "offers", "held_minor", "paid_minor")]
        assert sums == [tally.decisions, tally.offers, tally.reserved, tally.settled]
        assert sum(row["paid"] for row in rows) == pytest.approx(tally.settled / 100)
        told = manifest["days"][rows[0]["day"].isoformat()]
        assert [told[name] for name in ("decisions", "offers", "held", "paid")] == sums
        assert told["rows"] == len(rows) == 40
    assert manifest["totals"]["paid"] == active.totals("coupons").total.settled
    assert len(found.days) == 3
    assert {path.name for path in out.iterdir()} == {"campaign.toml", "further", "log", "manifest.json"}


def test_prepare_reads_it_as_it_stands(active: Ledger, out: Path, tmp_path: Path) -> None:
    filled(active)
    active.decide("u1", 1, forced="paused", hour=18)
    export(active, out)
    assert not outlay.check(out / "campaign.toml").blocks
    data = outlay.prepare(out / "campaign.toml", tmp_path / "data")
    assert len(data) == 120
    rows = rows_of(out)
    assert data.outcome[:, 0].sum() == sum(row["active"] for row in rows)
    assert data.outcome[:, 1].sum() == sum(row["visit"] for row in rows)
    assert data.outcome[:, 2].sum() == pytest.approx(sum(row["paid"] for row in rows))
    assert data.propensity is not None
    assert sorted(data.propensity.tolist()) == pytest.approx(sorted(row["propensity"] for row in rows), rel=1e-6)
    assert data.segments == ("high", "low")


def test_the_campaign_is_the_bundles_with_the_ledgers_roles(active: Ledger, out: Path) -> None:
    filled(active)
    export(active, out)
    campaign = campaign_in(out)
    log = campaign.log
    assert (log.user, log.time, log.action) == ("user_id", "day", "coupon")
    assert (log.propensity, log.forced, log.eligible, log.where) == ("propensity", "forced", None, None)
    assert log.reward == "active"
    assert log.actions == (0.0, 1.5, 3.0)
    assert [budget.cost for budget in campaign.budgets] == ["coalesce(visit, 0)", "paid"]
    assert campaign.budgets[1].reserve == "coupon"
    assert log.features.names == ("level", "city", "spend")
    assert campaign.meta.discount == 0.8


@pytest.mark.parametrize(("offers", "value", "kept"), [(1, 3.0, True), (2, 3.0, False), (1, 3.5, True), (2, 1.0, True)])
def test_a_reserve_of_one_offer_is_not_that_of_a_day_with_two(
    active: Ledger, out: Path, offers: int, value: float, kept: bool
) -> None:
    """A row sums its user's day. What a single offer contradicts stays, so that check tells it."""
    for number in range(offers):
        active.came(active.decide("a", 0, hour=10 + number), "redeemed", value)
    active.decide("b", 0)
    warnings = export(active, out).warnings()
    assert campaign_in(out).budgets[1].reserve == ("coupon" if kept else None)
    assert any(not missing(words, 'reserve = "coupon"', "campaign.toml") for words in warnings) != kept
    levels = [f.level for f in outlay.check(out / "campaign.toml").findings if "is not the largest cost" in f.message]
    assert levels == (["error"] if value > 3 else [])


def test_exporting_day_by_day_is_exporting_at_once(ledger: Ledger, out: Path, tmp_path: Path) -> None:
    for day in range(4):
        filled(ledger, range(day, day + 1))
        if day:
            found = export(ledger, out, today=day + WAIT)  # all but the last day are closed
            assert list(found.days) == [FIRST + day - 1]
    export(ledger, out, today=4 + WAIT)
    export(ledger, tmp_path / "at-once", today=4 + WAIT)
    assert same(rows_of(out), rows_of(tmp_path / "at-once"))
    assert len({row["propensity"] for row in rows_of(out)}) > 6  # they do look back


def test_histories_multiply_to_what_the_draw_says(ledger: Ledger, out: Path) -> None:
    for day in range(3):
        ledger.decide("a", day, member=0, random=0.1)
    export(ledger, out)
    rows = rows_of(out)
    product = 1.0
    for day, row in enumerate(rows, 1):
        product *= row["propensity"]
        assert product == pytest.approx(0.9 * 0.6 + 0.1 / 3**day)
        assert row["marginal"] == pytest.approx(0.9 * 0.6 + 0.1 / 3)
    assert rows[0]["member_actions"] == [3.0, 1.5]
    assert rows[0]["member_weights"] == [0.6, 0.4]


def test_the_row_of_a_day_is_the_first_choice_and_carries_the_day(ledger: Ledger, out: Path) -> None:
    ledger.decide("a", 0, forced="paused", hour=8)
    first = ledger.decide("a", 0, member=0, actions=(1, 2), hour=9)
    second = ledger.decide("a", 0, member=0, actions=(2, 2), hour=10)
    ledger.came(first, "redeemed", 1.0)
    ledger.came(second, "redeemed", 2.5)
    ledger.came(second, "active")
    ledger.decide("b", 0, forced="day_cap", hour=8)
    ledger.decide("b", 0, forced="total_cap", hour=9)
    ledger.decide("b", 1)
    export(ledger, out)
    row, forced, _ = rows_of(out)
    assert (row["decision_id"], row["coupon"], row["forced"]) == (first, 1.5, False)
    assert (row["decisions"], row["offers"], row["reserved_minor"], row["paid_minor"]) == (3, 2, 450, 350)
    assert (row["active"], row["redeemed"], row["paid"]) == (1, 3.5, 3.5)
    assert (forced["reason"], forced["decisions"], forced["propensity"]) == ("day_cap", 2, 1.0)
    others = [row for row in rows_of(out, "further") if row["user_id"] == "a"]
    assert [row["reason"] for row in others] == ["paused", "policy"]
    assert [row["paid_minor"] for row in others] == [0, 250]
    assert others[1]["propensity"] == 1.0  # both members would, and none is in a slice
    assert not any("repeat" in finding.message for finding in outlay.check(out / "campaign.toml").findings)


def test_who_is_told_no_is_a_forced_row_with_certainty(ledger: Ledger, out: Path) -> None:
    for reason in ("paused", "not_eligible", "user_limit", "day_cap", "arm_cap", "total_cap", "missing_features"):
        ledger.decide(reason, 0, forced=reason)
    ledger.decide("nothing was drawn", 0, forced="model_error", members="{}")
    ledger.decide("free", 0)
    export(ledger, out)
    rows = {row["user_id"]: row for row in rows_of(out)}
    free = rows.pop("free")
    assert (free["forced"], free["propensity"]) == (False, 0.6)
    assert all((row["forced"], row["propensity"], row["coupon"]) == (True, 1.0, 0.0) for row in rows.values())


def test_where_the_money_leaves_one_answer_there_is_no_choice(tmp_path: Path, out: Path) -> None:
    """Without this, who wants nothing is left as a choice after the cap, and all others are not."""
    ledger = Ledger(tmp_path / "ledger.db", caps=Caps(total=1_000))
    for user in range(300):
        member = user % 2
        ledger.decide(f"u{user}", user % 3, member=member, actions=(2, 0), weights=(0.5, 0.5))
    export(ledger, out)
    rows = rows_of(out)
    free = [row for row in rows if not row["forced"]]
    assert Counter(row["reason"] for row in rows) == {"policy": 153, "total_cap": 147}
    assert Counter(row["coupon"] for row in free) == {3.0: 3, 0.0: 2}
    assert {row["propensity"] for row in free} == {0.5}


def test_what_a_free_offer_may_be_told_no_by_is_in_the_propensities(tmp_path: Path, out: Path) -> None:
    """It fits where there is no money left, and not where its user has had all the offers of the day."""
    caps = Caps(total=0, user_day_offers=1)
    ledger = Ledger(tmp_path / "ledger.db", caps=caps, reserve=[0.0, 0.0, 3.0])
    for _ in range(2):
        ledger.decide("a", 0, member=0, actions=(1, 0), amount=0)
    ledger.decide("b", 0, member=0, actions=(2, 1))
    export(ledger, out)
    told = [(row["user_id"], row["reason"], row["member_fits"], row["offers"]) for row in rows_of(out)]
    assert told == [("a", "policy", [True, True], 1), ("b", "total_cap", [False, True], 0)]
    (again,) = rows_of(out, "further")
    assert (again["reason"], again["member_fits"], again["offers"]) == ("user_limit", [False, True], 0)


def test_outcomes_are_sums_of_values_and_what_came_late_is_told(ledger: Ledger, out: Path) -> None:
    decision = ledger.decide("a", 0)
    ledger.came(decision, "order", 2.0)
    ledger.came(decision, "order", 0.5)
    ledger.came(decision, "order")
    ledger.came(decision, "active")
    ledger.came(decision, "redeemed", 2.0)
    ledger.came(decision, "redeemed", 3.0)  # a second time: refused
    closes = (FIRST + WAIT + 1) * DAY
    ledger.came(decision, "order", 7.0, received=closes - 1)
    ledger.came(decision, "order", 9.0, received=closes)
    ledger.decide("b", 0)
    found = export(ledger, out)
    row, other = rows_of(out)
    assert (row["order"], row["active"], row["redeemed"], row["paid"]) == (10.5, 1, 2.0, 2.0)
    assert (other["order"], other["active"], other["redeemed"]) == (0, 0, 0)
    assert found.days[FIRST].late == 1


def test_the_true_cost_is_told_where_more_was_paid_than_was_reserved(ledger: Ledger, out: Path) -> None:
    ledger.came(ledger.decide("a", 0), "redeemed", 4.5)  # 3 were reserved
    ledger.came(ledger.decide("b", 0), "redeemed", 3.0)
    found = export(ledger, out)
    assert sorted((row["paid"], row["redeemed"], row["paid_minor"]) for row in rows_of(out)) == [
        (3.0, 3.0, 300),
        (4.5, 4.5, 450),
    ]
    assert (found.days[FIRST].paid, found.days[FIRST].excess) == (750, 150)
    (words,) = found.warnings()
    assert not missing(words, "1.5 yuan", "reservations")


def test_a_kind_that_comes_later_is_nought_before(ledger: Ledger, out: Path) -> None:
    filled(ledger, range(1))
    export(ledger, out, today=1 + WAIT)
    ledger.came(ledger.decide("u0", 1, features={"level": "vip", "city": "Ulm", "spend": None}), "order", 4.0)
    ledger.came(ledger.decide("u1", 1, features={"level": 2, "city": "Ulm", "spend": 1}), "active")
    export(ledger, out, today=2 + WAIT)
    rows = rows_of(out)
    assert [row["order"] for row in rows if row["day"].day == 1] == [0.0] * 40
    assert sum(row["order"] for row in rows) == 4.0
    assert {row["level"] for row in rows} == {"0", "1", "2", "vip"}  # numbers that became text
    schemas = [pq.read_schema(path) for path in sorted((out / "log").glob("*/*.parquet"))]
    assert schemas[0].names == schemas[1].names
    assert schemas[0].types == schemas[1].types
    assert pq.read_table(next(iter((out / "log").glob("*/*.parquet"))))["spend"].type == "double"


def test_a_numeric_feature_takes_truth_and_no_other_text(ledger: Ledger, out: Path) -> None:
    """A request may say true where a number is wanted; and what is numeric now was text in an earlier bundle."""
    earlier = {"categorical": ["level", "city", "spend"], "numeric": []}
    ledger.introduce("b0", features=earlier, ts=-1)
    ledger.decide("a", 0, features={"level": 1, "city": "Ulm", "spend": True})
    ledger.decide("b", 0, features={"level": 1, "city": "Ulm", "spend": "gold"}, bundle="b0")
    ledger.decide("c", 0, features={"level": 1, "city": "Ulm", "spend": 2.5})
    export(ledger, out)
    assert [row["spend"] for row in rows_of(out)] == [1.0, None, 2.5]


def test_a_text_of_exported_days_that_becomes_a_number_is_missing_there(ledger: Ledger, out: Path) -> None:
    ledger.decide("a", 0, features={"level": "gold", "city": "7", "spend": 1})
    export(ledger, out, today=1 + WAIT)
    ledger.introduce("b2", features={"categorical": [], "numeric": ["level", "city"]})
    ledger.decide("b", 1, features={"level": 1.5, "city": 8, "spend": 1}, bundle="b2")
    export(ledger, out)
    assert [(row["level"], row["city"]) for row in rows_of(out)] == [(None, 7.0), (1.5, 8.0)]


def test_a_whole_number_that_no_float_holds_stays_as_it_is(ledger: Ledger, out: Path) -> None:
    for day, level in enumerate((2**53 + 1, 1.5, -(2**63))):
        ledger.decide("a", day, features={"level": level, "city": "Ulm", "spend": 1})
    export(ledger, out)
    assert [row["level"] for row in rows_of(out)] == ["9007199254740993", "1.5", "-9223372036854775808"]


def test_numbers_that_become_text_are_written_canonically(ledger: Ledger, out: Path) -> None:
    ledger.decide("a", 0, features={"level": 3.0, "city": True, "spend": 1e-7})
    ledger.decide("b", 0, features={"level": 0.1, "city": False, "spend": "NA"})
    export(ledger, out, today=1 + WAIT)
    assert [(row["level"], row["city"], row["spend"]) for row in rows_of(out)] == [
        (3.0, True, 1e-7),
        (0.1, False, None),
    ]
    ledger.decide("c", 1, features={"level": "x", "city": 1, "spend": 2})
    export(ledger, out)
    assert [(row["level"], row["city"]) for row in rows_of(out)] == [("3", "true"), ("0.1", "false"), ("x", "1")]


def test_an_outcome_that_may_come_and_never_came_is_nought_and_told(active: Ledger, out: Path) -> None:
    """What the campaign is made of may come, and what serve.toml names. The days that are written get the columns."""
    active.decide("a", 0)
    found = export(active, out)
    words = "no outcome of the kind {!r} was reported for these days: its column is 0 in every row."
    assert found.warnings() == [words.format(kind) for kind in ("active", "visit")]
    assert [(row["active"], row["visit"]) for row in rows_of(out)] == [(0, 0)]
    settings = ServeConfig.parse({"wait_days": WAIT, "outcomes": ["order"]}).model_dump_json()
    active.note("coupons", Note(kind="settings", key="1", ts=1, content=settings))
    found = export(active, out)
    assert (found.days, found.warnings()) == ({}, [])
    active.decide("a", 1)
    active.came(active.decide("b", 1), "visit")
    export(active, out)
    assert [(row["active"], row["visit"], row["order"]) for row in rows_of(out)] == [(0, 0, 0), (0, 0, 0), (0, 1, 0)]
    assert campaign_in(out).log.reward == "active"


def test_kinds_that_differ_only_by_case_are_refused_with_a_way_out_that_works(active: Ledger, out: Path) -> None:
    first, second = active.decide("a", 0), active.decide("b", 0)
    active.came(first, "active")
    active.came(second, "Active")
    with pytest.raises(OutlayError, match=r"kinds 'active' and 'Active'") as caught:
        export(active, out)
    found = re.search(r"\((UPDATE .*), or the other way round", caught.value.way_out or "")
    assert found
    tamper(active.url, found[1].replace("'Active' WHERE kind = 'active'", "'active' WHERE kind = 'Active'"))
    export(active, out.parent / "new")
    assert [row["active"] for row in rows_of(out.parent / "new")] == [1, 1]


def test_days_are_exported_when_their_wait_is_over(ledger: Ledger, out: Path) -> None:
    for day in range(3):
        ledger.decide("a", day)
        ledger.decide("b", day, member=1)
    with pytest.raises(OutlayError, match=r"2026-01-01, .*Export in 1 days"):
        export(ledger, out, today=WAIT)
    assert not out.exists()
    assert list(export(ledger, out, today=2 + WAIT).days) == [FIRST, FIRST + 1]
    assert export(ledger, out, today=2 + WAIT).days == {}
    until = datetime.date(2026, 1, 2)
    assert export(ledger, out, until=until).days == {}
    assert list(export(ledger, out).days) == [FIRST + 2]
    with pytest.raises(OutlayError, match="no decisions until 2025-12-31"):
        export(ledger, out, until=datetime.date(2025, 12, 31))


def test_open_days_are_written_anew_when_they_have_changed(ledger: Ledger, out: Path, tmp_path: Path) -> None:
    filled(ledger, range(2))
    assert len(export(ledger, out, today=1, all_days=True).days) == 2
    ledger.decide("u3", 0, hour=23)  # before all of the second day
    filled(ledger, range(2, 3))
    assert len(export(ledger, out).days) == 3
    export(ledger, tmp_path / "at-once")
    assert same(rows_of(out), rows_of(tmp_path / "at-once"))


def test_money_that_moves_later_is_in_the_next_export(ledger: Ledger, out: Path) -> None:
    filled(ledger)
    decision = ledger.decide("late", 1, member=0)
    ledger.release("coupons", (FIRST + 9) * DAY)
    export(ledger, out)
    ledger.came(decision, "redeemed", received=(FIRST + 9) * DAY)
    found = export(ledger, out)
    assert list(found.days) == [FIRST + 1]
    [row] = [row for row in rows_of(out) if row["user_id"] == "late"]
    assert (row["paid_minor"], row["redeemed"]) == (300, 0)  # the money is told, the outcome came too late
    assert found.days[FIRST + 1].late == 1


def test_lists_of_allowed_actions_stand_in_the_log(ledger: Ledger, out: Path) -> None:
    filled(ledger)
    ledger.decide("some", 0, actions=(1, 2), allowed=[1, 2], random=0.2)
    ledger.decide("one", 0, actions=(2, 2), allowed=[2])
    export(ledger, out)
    assert campaign_in(out).log.eligible == "eligible"
    rows = {row["user_id"]: row for row in rows_of(out)}
    assert rows["some"]["eligible"] == [1.5, 3.0]
    assert rows["some"]["propensity"] == pytest.approx(0.8 * 0.6 + 0.2 / 2)
    assert (rows["one"]["forced"], rows["one"]["propensity"]) == (True, 1.0)
    assert rows["u0"]["eligible"] is None
    assert not outlay.check(out / "campaign.toml").blocks


def test_where_nothing_was_left_to_chance_propensities_are_not_named(ledger: Ledger, out: Path) -> None:
    for user in range(50):
        ledger.decide(f"u{user}", 0, actions=(user % 3, user % 3), weights=(0.5, 0.5))
        ledger.came(ledger.decide(f"u{user}", 1, actions=(user % 3, user % 3)), "visit")
        ledger.came(ledger.decide(f"u{user}", 2, actions=(user % 3, user % 3)), "active")
    export(ledger, out)
    assert campaign_in(out).log.propensity is None
    assert not outlay.check(out / "campaign.toml").blocks


def test_days_without_a_request_are_days_on_which_nothing_came(ledger: Ledger, out: Path, tmp_path: Path) -> None:
    filled(ledger)
    for day in (0, 2):
        ledger.came(ledger.decide("now and then", day), "active")
    export(ledger, out)
    assert campaign_in(out).log.complete is True
    assert campaign_in(out).meta.none == 0.0
    assert len(outlay.prepare(out / "campaign.toml", tmp_path / "data")) == 40 * 3 + 3


def test_names_that_are_taken_get_an_underscore(tmp_path: Path, out: Path) -> None:
    features = {"categorical": ["paid", "dt", "Propensity"], "numeric": ["day"]}
    log = PLAIN["log"] | {"features": features, "user": "lower(uid)", "time": "date"}
    campaign = PLAIN | {"log": log}
    ledger = Ledger(tmp_path / "ledger.db", campaign, features=features)
    for user in range(20):
        told = {"paid": user % 2, "dt": "x", "Propensity": user % 3, "day": user}
        ledger.came(ledger.decide(f"u{user}", 0, member=user % 2, features=told), "active")
    export(ledger, out)
    names = pq.read_schema(next(iter((out / "log").glob("*/*.parquet")))).names
    assert names[:8] == ["paid", "dt_", "Propensity", "day", "user", "date", "coupon", "propensity_"]
    assert campaign_in(out).log.propensity == "propensity_"
    assert campaign_in(out).budgets[0].cost == "paid_"
    outlay.prepare(out / "campaign.toml", tmp_path / "data")


def test_an_expression_without_its_columns_says_so_and_can_be_mended(tmp_path: Path, out: Path) -> None:
    log = CAMPAIGN["log"] | {"reward": "orders.total > 0"}  # type: ignore[operator]
    ledger = Ledger(tmp_path / "ledger.db", CAMPAIGN | {"log": log})
    filled(ledger)
    with pytest.raises(CampaignError, match=r"log\.reward: 'orders\.total > 0' .*active, redeemed"):
        export(ledger, out)
    assert len(rows_of(out)) == 120
    file = out / "campaign.toml"
    file.write_text(file.read_text().replace('"orders.total > 0"', '"visit > 0"'))
    found = export(ledger, out)
    assert found.edited
    assert campaign_in(out).log.reward == "visit > 0"
    outlay.prepare(file, tmp_path / "data")


def test_histories_that_contradict_themselves_are_told(ledger: Ledger, out: Path) -> None:
    ledger.decide("torn", 0, member=0)
    second = ledger.decide("torn", 1, member=1)
    found = export(ledger, out)
    assert [row["propensity"] for row in rows_of(out)] == pytest.approx([0.6, 0.4])
    [words] = found.warnings()
    assert not missing(words, "1 decisions", "contradict", second)


def test_members_keep_their_users_when_another_bundle_comes(ledger: Ledger, out: Path) -> None:
    """The second bundle has the same policies in another order, and the third one of them and a new one."""
    ledger.introduce("b2", members=[{"salt": "b"}, {"salt": "a"}])
    ledger.introduce("b3", members=[{"salt": "b"}, {"salt": "new"}])
    for day, (bundle, actions, weights, member) in enumerate(
        [
            ("b1", (2, 1), (0.6, 0.4), 0),
            ("b2", (1, 2), (0.4, 0.6), 1),  # the same draw: a again
            ("b2", (2, 2), (0.4, 0.6), 0),
            ("b3", (2, 1), (0.4, 0.6), 1),  # who had a gets the new one: P(E_b / .4 > E_new / .6 | E_a / .6 < E_b / .4)
        ]
    ):
        ledger.decide("u", day, bundle=bundle, actions=actions, weights=weights, member=member)
    found = export(ledger, out)
    assert found.restarts.histories == 0
    both = 1 / (1 + 0.6 / 0.4 + 0.6 / 0.4)  # b loses to neither with this chance; 0.6 − 0.4 + both: b loses to both
    assert [row["propensity"] for row in rows_of(out)] == pytest.approx(
        [0.6, 1, 1, (1 - 0.4 - 0.4 + both) / 0.6], abs=2e-3
    )


@pytest.mark.slow
def test_a_ledger_in_postgresql_is_exported_alike(ledger: Ledger, out: Path, tmp_path: Path) -> None:
    other = ServerLedger(new_url("postgres", tmp_path))
    try:
        for each in (ledger, other):
            filled(each, range(2), users=12)
        export(ledger, out)
        export(other, tmp_path / "other")
    finally:
        other.close()
    own = {"decision_id", "request_id", "ts"}
    rows = [[{k: v for k, v in row.items() if k not in own} for row in rows_of(o)] for o in (out, tmp_path / "other")]
    assert same(*rows)


def no_ledger(ledger: Ledger, out: Path) -> None:
    export_log("sqlite:///nowhere.db", out)


def no_url(ledger: Ledger, out: Path) -> None:
    export_log(str(ledger.path), out)


def no_decisions(ledger: Ledger, out: Path) -> None:
    export(ledger, out)


def no_campaign(ledger: Ledger, out: Path) -> None:
    export(ledger, out, campaign="vouchers")


def two_campaigns(ledger: Ledger, out: Path) -> None:
    ledger.set_caps("vouchers", Caps())
    export(ledger, out)


def no_notes(ledger: Ledger, out: Path) -> None:
    ledger.set_caps("vouchers", Caps())
    export(ledger, out, campaign="vouchers")


def unknown_bundle(ledger: Ledger, out: Path) -> None:
    ledger.decide("a", 0, bundle="b2")
    export(ledger, out)


def foreign_folder(ledger: Ledger, out: Path) -> None:
    out.mkdir()
    (out / "mine.txt").touch()
    ledger.decide("a", 0)
    export(ledger, out)


def other_kind_of_folder(ledger: Ledger, out: Path) -> None:
    outlay.simulate("habit", out, users=10)
    ledger.decide("a", 0)
    export(ledger, out)


def other_ledger(ledger: Ledger, out: Path) -> None:
    filled(ledger)
    export(ledger, out)
    other = Ledger(ledger.path.with_name("other.db"))
    filled(other, users=2)
    export(other, out)


def other_campaign(ledger: Ledger, out: Path) -> None:
    filled(ledger)
    export(ledger, out)
    other = Ledger(ledger.path.with_name("other.db"), name="vouchers")
    other.decide("a", 0)
    export(other, out)


def impossible_action(ledger: Ledger, out: Path) -> None:
    ledger.decide("a", 0, actions=(1, 1), index=2)
    export(ledger, out)


def tampered(ledger: Ledger, out: Path) -> None:
    ledger.decide("a", 0)
    tamper(ledger.url, "update decision set held = 200")
    export(ledger, out)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (no_ledger, "nowhere.db, LEDGER: … no such ledger"),
        (no_url, "Give sqlite:///ledger.db"),
        (no_decisions, "LEDGER: there are no decisions."),
        (no_campaign, "--name: … no campaign 'vouchers' … 'coupons'"),
        (two_campaigns, "--name: … 2 campaigns: 'coupons', 'vouchers'"),
        (no_notes, "no record … campaign 'vouchers'"),
        (unknown_bundle, "bundle b2 … no record"),
        (foreign_folder, "outlay did not write it"),
        (other_kind_of_folder, "CAMPAIGN folder … EXPORT folder"),
        (other_ledger, "40 decisions of 2026-01-01 … ledger has 2 … another ledger"),
        (other_campaign, "campaign 'coupons' … 'vouchers'"),
        (impossible_action, "gave 3 … its draw"),
        (
            tampered,
            "1 decisions, 1 offers, 300 minor units … 0 paid … 2026-01-01 … its rows have 1 decisions",
        ),
    ],
)
def test_what_is_wrong_is_said(ledger: Ledger, out: Path, spoil: Any, words: str) -> None:
    with pytest.raises(OutlayError) as error:
        spoil(ledger, out)
    assert not missing(str(error.value), words)
    assert not (out / ".work").exists()


def test_a_full_disk_leaves_whole_days_and_the_next_run_goes_on(
    ledger: Ledger, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(ledger, range(2))
    export(ledger, out, today=2 + WAIT)
    before = rows_of(out)
    filled(ledger, range(2, 4))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("outlay.serve.export.folder.new_file", full)
        with pytest.raises(OutlayError, match=r"\(\[Errno 28\] No space left.*files are kept"):
            export(ledger, out)
    assert rows_of(out) == before
    assert len(export(ledger, out).days) == 2
    assert len(rows_of(out)) == 160


def test_a_killed_first_export_does_not_lock_its_folder(
    ledger: Ledger, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(ledger)

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("outlay.serve.export.export.write_propensities", killed)
        with pytest.raises(KeyboardInterrupt):
            export(ledger, out)
    assert len(export(ledger, out).days) == 3


def test_days_are_those_of_the_servers_zone(tmp_path: Path, out: Path) -> None:
    """In Auckland the day begins at 11 o'clock UTC of the day before."""
    ledger = Ledger(tmp_path / "ledger.db")
    settings = '{"wait_days": 2, "timezone": "Pacific/Auckland"}'
    tamper(ledger.url, f"update note set content = '{settings}' where kind = 'settings'")
    for user, hour in (("a", 11 - 24), ("b", 10)):
        ledger.decide(user, 0, hour=hour)
    export(ledger, out)
    assert [row["day"].isoformat() for row in rows_of(out)] == ["2026-01-01", "2026-01-01"]


def test_the_kept_settings_of_the_time_say_what_was_possible(ledger: Ledger, out: Path) -> None:
    """A limit on values that came later changes nothing for the days before."""
    later = ServeConfig.parse({"wait_days": WAIT, "values": {"at_most": 2.0}}).model_dump_json()
    ledger.note("coupons", Note(kind="settings", key="1", ts=(FIRST + 1) * DAY, content=later))
    ledger.decide("a", 0, member=0)
    ledger.decide("a", 1, member=0, forced="value_limit")
    ledger.decide("a", 2, member=0, actions=(1, 2))
    ledger.decide("b", 1, member=1)
    export(ledger, out)
    told = [(row["member_fits"], row["propensity"]) for row in rows_of(out)]
    assert told[:3] == [([True, True], 0.6), ([False, True], 1.0), ([True, False], 1.0)]
    assert told[3] == ([False, True], 1.0)  # of the two, only this one could be given


def test_progress_goes_from_nothing_to_the_end(ledger: Ledger, out: Path) -> None:
    filled(ledger)
    told: list[float] = []
    export(ledger, out, progress=lambda share, _words: told.append(share))
    assert told == sorted(told)
    assert told[0] <= 0.3
    assert 0.95 <= told[-1] <= 1


def test_it_is_exported_while_servers_write(ledger: Ledger, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Money of a closed day moves between the reading of its rows and of its counter: the day is read again."""
    filled(ledger)
    decision = ledger.decide("late", 0)
    rows = SqliteLedger.rows
    moved: list[bool] = []

    def moving(self: SqliteLedger, *arguments: Any) -> Any:
        yield from rows(self, *arguments)
        if not moved:
            moved.append(True)
            ledger.came(decision, "redeemed", 2.0)

    monkeypatch.setattr(SqliteLedger, "rows", moving)
    found = export(ledger, out)
    assert found.days[FIRST].paid == ledger.totals("coupons").days[FIRST].settled


def test_outcomes_of_an_open_day_are_not_lost_when_it_closes(ledger: Ledger, out: Path) -> None:
    """They move no money, so no counter tells of them."""
    decision = ledger.decide("a", 0)
    export(ledger, out, today=0, all_days=True)
    ledger.came(decision, "active")
    assert list(export(ledger, out).days) == [FIRST]
    assert rows_of(out)[0]["active"] == 1
    assert export(ledger, out).days == {}


def test_an_open_day_is_exported_while_decisions_are_made(
    ledger: Ledger, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(ledger, range(1))
    rows = SqliteLedger.rows

    def busy(self: SqliteLedger, *arguments: Any) -> Any:
        yield from rows(self, *arguments)
        ledger.decide("more", 0)

    with monkeypatch.context() as patch:
        patch.setattr(SqliteLedger, "rows", busy)
        assert export(ledger, out, today=0, all_days=True).days[FIRST].decisions == 42
    assert export(ledger, out).days[FIRST].decisions == 43


def test_a_day_that_is_gone_is_missed(ledger: Ledger, out: Path) -> None:
    filled(ledger, range(1))
    export(ledger, out)
    next((out / "log").glob("*/*.parquet")).unlink()
    filled(ledger, range(1, 2))
    with pytest.raises(OutlayError, match=r"part-0.parquet: is missing\. Restore it"):
        export(ledger, out)


def test_a_clock_in_the_past_closes_nothing(ledger: Ledger, out: Path) -> None:
    ledger.decide("a", 0)
    with pytest.raises(OutlayError, match="no day is closed"):
        export_log(ledger.url, out, clock=on(-5))


def test_an_export_begun_by_an_older_version_gets_the_columns_that_it_lacks(ledger: Ledger, out: Path) -> None:
    filled(ledger)
    export(ledger, out, today=1 + WAIT)
    manifest = json.loads((out / "manifest.json").read_text())
    del manifest["layout"]["names"]["arm_cluster"]
    (out / "manifest.json").write_text(json.dumps(manifest))
    [file] = (out / "log").glob("*/*.parquet")
    pq.write_table(pq.read_table(file, partitioning=None).drop(["arm_cluster"]), file)
    export(ledger, out, today=2 + WAIT)
    columns = {tuple(pq.read_schema(each).names) for each in out.glob("*/*/*.parquet")}
    assert len(columns) == 1
    assert "arm_cluster" in columns.pop()
