from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from outlay.core.errors import LogError
from outlay.experiments.log import ExperimentColumns
from outlay.experiments.sums import DailySums, read_sums
from small_panels import experiment, opened, rows

COLUMNS = ExperimentColumns(
    user='"user"', arm="arm", day="day", segment=None, values={"active": "active", "cost": "cost"}, before={}
)
PAIRS = [
    ("active", "active"),
    ("active", "cost"),
    ("cost", "cost"),
    ("active", "active_before"),
    ("active_before", "active_before"),
]
OLD_NEW = np.array([0, 1, 0, 1, 0, 1])


def outcomes(days: int, seed: int = 0) -> NDArray[np.float64]:
    """Six users, three an arm."""
    return np.random.default_rng(seed).integers(0, 4, (6, days)).astype(float)


def read(
    log: pa.Table, columns: ExperimentColumns = COLUMNS, assigned: pa.Table | None = None, days: int = 7
) -> DailySums:
    run = opened(log)
    name = None
    if assigned is not None:
        name = "(VALUES " + ", ".join(
            f"('{u}', '{a}', {d})" for u, a, d in zip(*assigned.to_pydict().values(), strict=True)
        )
        name += ') AS assigned("user", arm, day)'
        run(f"CREATE TEMP TABLE given AS SELECT * FROM {name}")
        name = "given"
    return read_sums(run, "log", columns, experiment(days=days, decisions=(days,)), PAIRS, assigned=name)


@pytest.mark.parametrize("day", [1, 3, 7])
def test_moments_after_a_day_are_those_of_users_totals_until_then(day: int) -> None:
    x = outcomes(7)
    found = read(rows(x, OLD_NEW, np.arange(7))).until(day)
    for arm in (0, 1):
        totals = x[arm == OLD_NEW, :day].sum(axis=1)
        assert found[arm].users == 3
        assert found[arm].mean == pytest.approx([totals.mean(), 2 * totals.mean()])
        assert found[arm].covariance == pytest.approx(np.cov(totals, 2 * totals), nan_ok=True)
        assert found[arm].cubes == pytest.approx([(totals**3).mean(), 8 * (totals**3).mean()])


def test_days_without_rows_carry_the_total_over() -> None:
    x = outcomes(7) + 1
    log = rows(x, OLD_NEW, np.arange(7))
    kept = log.filter(pa.compute.field("day") != 4).filter(
        (pa.compute.field("user") != "u3") | (pa.compute.field("day") < 2)
    )
    x[:, 4] = 0
    x[3, 2:] = 0
    assert np.array_equal(
        read(kept).until(6)[1].mean, [x[1::2, :6].sum(axis=1).mean(), 2 * x[1::2, :6].sum(axis=1).mean()]
    )
    assert read(kept).until(6)[1].covariance == pytest.approx(
        np.cov(x[1::2, :6].sum(axis=1), 2 * x[1::2, :6].sum(axis=1))
    )


def test_users_count_from_their_first_row_in_an_arm_on() -> None:
    log = rows(outcomes(7), OLD_NEW, np.arange(7)).filter(
        (pa.compute.field("user") != "u0") | (pa.compute.field("day") >= 3)
    )
    found = read(log)
    assert [found.until(d)[0].users for d in (1, 3, 4, 7)] == [2, 2, 3, 3]
    assert found.days_per_user(7) == pytest.approx((5 * 7 + 4) / 6)


def test_rows_before_the_start_are_the_covariate() -> None:
    x = outcomes(10)
    found = read(rows(x, OLD_NEW, np.arange(-3, 7)))
    assert found.names == ("active", "cost", "active_before", "cost_before")
    part = found.until(7)[0]
    before, after = x[0::2, :3].sum(axis=1), x[0::2, 3:].sum(axis=1)
    assert part.mean[[0, 2]] == pytest.approx([after.mean(), before.mean()])
    assert part.covariance[0, 2] == pytest.approx(np.cov(after, before)[0, 1])
    assert part.covariance[2, 2] == pytest.approx(before.var(ddof=1))
    assert part.cubes[2] == pytest.approx((before**3).mean())
    assert np.isnan(part.covariance[1, 3])  # not asked for


def test_segments_add_up_to_everybody() -> None:
    log = rows(outcomes(7), OLD_NEW, np.arange(7))
    columns = ExperimentColumns(
        '"user"', "arm", "day", "CASE WHEN \"user\" < 'u3' THEN 'low' ELSE 'high' END", COLUMNS.values, {}
    )
    whole, parts = read(log), read(log, columns)
    assert parts.segments == ("high", "low")
    assert parts.until(7)[0].covariance == pytest.approx(whole.until(7)[0].covariance, nan_ok=True)
    assert parts.until(7, "low")[0].users == 2
    x = outcomes(7)
    assert parts.until(7, "low")[0].mean[0] == pytest.approx(x[[0, 2]].sum(axis=1).mean())


def test_a_user_belongs_to_the_segment_of_the_first_row() -> None:
    columns = ExperimentColumns(
        '"user"', "arm", "day", "CASE WHEN day = 0 THEN 'fresh' ELSE 'known' END", COLUMNS.values, {}
    )
    assert read(rows(outcomes(7), OLD_NEW, np.arange(7)), columns).segments == ("fresh",)


def test_a_row_may_be_a_user() -> None:
    x, before = outcomes(1), outcomes(1, seed=1)
    log = rows(x, OLD_NEW, np.arange(1)).append_column("earlier", pa.array(before[:, 0]))
    columns = ExperimentColumns('"user"', "arm", None, None, COLUMNS.values, {"active": "earlier"})
    part = read(log, columns).until(7)[1]
    assert part.mean[[0, 2]] == pytest.approx([x[1::2].mean(), before[1::2].mean()])
    assert part.covariance[0, 2] == pytest.approx(np.cov(x[1::2, 0], before[1::2, 0])[0, 1])


def test_the_assigned_count_with_zeros_where_they_left_no_row() -> None:
    x = outcomes(7)
    log = rows(x, OLD_NEW, np.arange(7)).filter(pa.compute.field("user") != "u2")
    assigned = pa.table({"user": [f"u{i}" for i in range(6)], "arm": ["old", "new"] * 3, "day": [0] * 6})
    found = read(log, assigned=assigned)
    totals = np.array([x[0].sum(), 0.0, x[4].sum()])
    assert found.until(7)[0].users == 3
    assert found.until(7)[0].mean[0] == pytest.approx(totals.mean())
    assert found.until(7)[0].covariance[0, 0] == pytest.approx(totals.var(ddof=1))
    assert found.seen[:, 0].sum() == 2
    assert read(log.filter(pa.compute.field("user") != "u1"), assigned=assigned.slice(0, 1)).until(7)[1].users == 0


def test_an_outcome_that_is_missing_is_refused_where_a_user_is_in_the_test() -> None:
    """u0 on day 3 and u2 on day 1: active is missing, the cost is there."""
    log = rows(outcomes(10), OLD_NEW, np.arange(-3, 7))
    gone = np.isin(np.arange(60), [6, 24])
    lost = log.set_column(3, "active", pa.array(log["active"].to_numpy(), mask=gone))
    with pytest.raises(LogError, match=r"column 'active': .*2 rows .*active=coalesce\(active, 0\)"):
        read(lost)
    outside = pa.array(log["arm"].to_pylist(), mask=np.isin(np.arange(60) // 10, [0, 2]))
    read(lost.set_column(2, "arm", outside))
    assigned = pa.table({"user": [f"u{i}" for i in range(6)], "arm": ["old", "new"] * 3, "day": [0] * 6})
    with pytest.raises(LogError, match="is missing in 2 rows"):
        read(lost.set_column(2, "arm", outside), assigned=assigned)


def test_an_outcome_that_is_missing_before_the_start_counts_as_none() -> None:
    x = outcomes(10)
    log = rows(x, OLD_NEW, np.arange(-3, 7))
    gone = np.isin(np.arange(60), [1, 20, 21, 22])  # u0 on one day, u2 on all three
    part = read(log.set_column(3, "active", pa.array(log["active"].to_numpy(), mask=gone))).until(7)[0]
    x[0, 1] = 0
    x[2, :3] = 0
    assert part.covariance[0, 2] == pytest.approx(np.cov(x[0::2, 3:].sum(axis=1), x[0::2, :3].sum(axis=1))[0, 1])


def test_numbers_with_little_spread_are_a_constant() -> None:
    found = read(rows(np.full((6, 7), 0.1), OLD_NEW, np.arange(7))).until(7)
    assert found[0].covariance[0, 0] == 0


def test_a_user_in_two_arms_is_refused() -> None:
    log = rows(outcomes(7), OLD_NEW, np.arange(7))
    arm = log["arm"].to_pylist()
    arm[3] = "new"
    with pytest.raises(LogError, match=r"\b1 users .*two arms, .*'u0' in 'new' and 'old'"):
        read(log.set_column(2, "arm", pa.array(arm)))
    assigned = pa.table({"user": ["u0", "u1"], "arm": ["new", "new"], "day": [0, 0]})
    with pytest.raises(LogError, match=r"\b1 users .*another arm .*'u0': 'old' .*'new'"):
        read(log, assigned=assigned)


@pytest.mark.parametrize(("row", "day"), [(2, 2), (-5, -2)])
def test_two_rows_of_a_day_are_refused_before_the_start_as_well(row: int, day: int) -> None:
    log = rows(outcomes(14), OLD_NEW, np.arange(-7, 7))
    with pytest.raises(LogError, match=rf"1 users .*more than one row, .*'u0' on day {day}"):
        read(pa.concat_tables([log, log.slice(7 + day, 1)]))
    stranger = (
        log.slice(7 + day, 1).set_column(0, "user", pa.array(["x"])).set_column(2, "arm", pa.nulls(1, pa.string()))
    )
    read(pa.concat_tables([log, stranger, stranger]))


def test_days_on_which_nobody_has_a_row_are_known() -> None:
    """A row outside the test tells that the day was recorded."""
    log = rows(outcomes(7), OLD_NEW, np.arange(7))
    kept = log.filter(pa.array(~np.isin(log["day"].to_numpy(), [2, 5])))
    assert read(kept).rows == (6, 6, 0, 6, 6, 0, 6)
    stranger = log.slice(2, 1).set_column(2, "arm", pa.nulls(1, pa.string()))
    assert read(pa.concat_tables([kept, stranger])).rows == (6, 6, 1, 6, 6, 0, 6)
    assert read(log.filter(pa.compute.field("day") < 4)).rows == (6, 6, 6, 6, 0, 0, 0)


def test_an_arm_from_the_day_before_is_a_question_and_from_long_before_is_none() -> None:
    log = rows(outcomes(10), OLD_NEW, np.arange(-3, 7))
    given = ["old", "new"] * 3
    named = pa.array([given[k // 10] if k % 10 >= 2 else None for k in range(60)])
    with pytest.raises(LogError, match=r"\b6 rows .*before the test began.*time zone"):
        read(log.set_column(2, "arm", named))
    always = pa.array([given[k // 10] for k in range(60)])
    assert read(log.set_column(2, "arm", always)).until(7)[0].users == 3


def test_users_who_are_alike_on_every_day_are_known_whenever_they_came() -> None:
    """All act on all days and cost 2, but for one user on day 4; u0 comes on day 3. Who has no row did not act."""
    log = rows(np.ones((6, 7)), OLD_NEW, np.arange(7)).filter(
        (pa.compute.field("user") != "u0") | (pa.compute.field("day") >= 3)
    )
    costs = log["cost"].to_numpy().copy()
    costs[(log["day"].to_numpy() == 4) & (np.array(log["user"].to_pylist()) == "u2")] = 3
    log = log.set_column(4, "cost", pa.array(costs))
    found = read(log)
    assert [part.alike for part in found.until(7)] == [("active",), ("active", "cost")]
    assert found.until(4)[0].alike == ("active", "cost")
    assert found.until(7)[0].covariance[0, 0] > 0  # of the days of entry alone
    gap = log.filter((pa.compute.field("user") != "u3") | (pa.compute.field("day") != 5))
    assert [part.alike for part in read(gap).until(7)] == [("active",), ()]
    assert read(gap).until(5)[1].alike == ("active", "cost")
    assert found.least == {"active": 1.0, "cost": 2.0}


@pytest.mark.parametrize(("given", "when"), [(4, "on day 4"), (9, "after the test")])
def test_outcomes_before_assignment_are_refused(given: int, when: str) -> None:
    log = rows(outcomes(7), OLD_NEW, np.arange(7))
    assigned = pa.table({"user": ["u0", "u1"], "arm": ["old", "new"], "day": [given, 0]})
    with pytest.raises(LogError, match=rf"before .*assigned, .*'u0' on day 0, .*{when}"):
        read(log, assigned=assigned)


def test_an_arm_that_the_experiment_does_not_have_is_refused() -> None:
    log = rows(outcomes(7), OLD_NEW, np.arange(7))
    with pytest.raises(LogError, match=r"'others', .*not an arm"):
        read(log.set_column(2, "arm", pa.array(["others"] * 42)))


def test_a_log_without_a_day_of_the_test_is_refused() -> None:
    with pytest.raises(LogError, match="no row of the test"):
        read(rows(outcomes(7), OLD_NEW, np.arange(-7, 0)))


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -1e300])
def test_numbers_that_are_none_are_refused(odd: float) -> None:
    x = outcomes(7)
    x[1, 2] = odd
    with pytest.raises(LogError, match=r"active, cost: .*NaN, infinity .*1e\+60 .*\b1 rows"):
        read(rows(x, OLD_NEW, np.arange(7)))


def test_the_time_before_beside_a_user_must_be_numbers_too() -> None:
    earlier = pa.array([1.0, float("inf"), 2.0, None, 3.0, 4.0])
    log = rows(outcomes(1), OLD_NEW, np.arange(1)).append_column("earlier", earlier)
    columns = ExperimentColumns('"user"', "arm", None, None, COLUMNS.values, {"active": "earlier"})
    with pytest.raises(LogError, match="active_before: hold NaN, infinity"):
        read(log, columns)


def test_a_missing_user_is_refused() -> None:
    log = rows(outcomes(7), OLD_NEW, np.arange(7))
    with pytest.raises(LogError, match="missing in 42 rows"):
        read(log.set_column(0, "user", pa.nulls(42, pa.string())))
