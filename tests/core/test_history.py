from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.core.history import History, PastRows

ALL = ("mean", "sum", "count", "decayed", "last", "since", "lags")
ONE = ALL[:-1]  # those that are one feature of a column
NAN = np.nan


def history(days: int = 4, **changes: object) -> History:
    settings = {"columns": ("action", "reward"), "summaries": ALL, "none": 1.0, "complete": False} | changes
    return History(days=days, **settings)  # type: ignore[arg-type]


def rows(*listed: tuple[int, int, float, float]) -> PastRows:
    """Rows (user, time, action, reward), in any order."""
    user, time, action, reward = zip(*listed, strict=True)
    return PastRows.sorted(np.array(user), np.array(time), np.array([action, reward], np.float32).T)


def features(past: PastRows, user: int, time: int, by: History) -> dict[str, float]:
    found = by.summarise(past, np.array([user]), np.array([time]))
    return dict(zip(by.names, found[0].tolist(), strict=True))


def test_summaries_by_hand() -> None:
    """User 7 on day 10, 4 days back: days 6, 8 and 9; day 5 is too far, day 10 is today, user 8 is somebody else.

    decayed: half-life of 1 day, so days 9, 8 and 6 weigh 1, 1/2 and 1/8.
    """
    past = rows((7, 5, 9, 9), (7, 6, 3, 1), (7, 8, 1, 0.5), (7, 9, 1, 0), (7, 10, 8, 8), (8, 9, 5, 5))
    found = features(past, 7, 10, history())
    assert found["history_days"] == 3
    assert found["reward_sum_4d"] == 1.5
    assert found["reward_mean_4d"] == 0.5
    assert found["reward_count_4d"] == 2
    assert found["reward_decayed_4d"] == pytest.approx((0.5 * 0.5 + 1 / 8) / (1 + 0.5 + 1 / 8))
    assert (found["reward_last_4d"], found["reward_since_4d"]) == (0, 2)
    assert (found["action_last_4d"], found["action_since_4d"], found["action_count_4d"]) == (1, 4, 1)
    assert [found[f"reward_lag{lag}"] for lag in (1, 2, 4)] == [0, 0.5, 1]
    assert np.isnan(found["reward_lag3"])


@pytest.mark.parametrize("summary", ONE)
def test_a_single_summary_is_that_of_a_history_of_its_days(summary: str) -> None:
    rng = np.random.default_rng(3)
    users, times = np.repeat(np.arange(30), 12), np.tile(np.arange(12), 30)
    here = rng.random(360) < 0.6
    values = rng.integers(0, 3, (360, 2)).astype(np.float32)
    values[rng.random((360, 2)) < 0.1] = NAN
    past = PastRows(users[here], times[here], values[here])
    wanted = ((summary, "reward", 9), (summary, "action", 2), (summary, "reward", 3))
    by = history(9, summaries=(summary,), single=wanted)
    found = by.summarise(past, np.arange(30), np.full(30, 11))
    assert by.names == ("history_days", f"reward_{summary}_9d", f"action_{summary}_2d", f"reward_{summary}_3d")
    for place, (_, column, days) in enumerate(wanted, 1):
        alone = history(days, columns=(column,), summaries=(summary,))
        only = PastRows(past.user, past.time, past.values[:, [("action", "reward").index(column)]])
        np.testing.assert_array_equal(found[:, place], alone.summarise(only, np.arange(30), np.full(30, 11))[:, 1])


def test_nothing_is_known_of_a_user_without_a_past() -> None:
    found = features(rows((7, 5, 9, 9)), 3, 10, history())
    assert found.pop("history_days") == 0
    assert np.isnan(list(found.values())).all()
    empty = PastRows(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 2), np.float32))
    assert features(empty, 3, 10, history())["history_days"] == 0


def test_a_column_that_never_differed_from_nothing_is_longer_ago_than_the_window() -> None:
    assert features(rows((7, 9, 1, 0)), 7, 10, history())["reward_since_4d"] == 5


def test_unknown_values_are_left_out() -> None:
    found = features(rows((7, 8, 1, 3), (7, 9, 1, NAN)), 7, 10, history())
    assert (found["history_days"], found["reward_mean_4d"], found["reward_last_4d"]) == (2, 3, 3)


def naive(past: PastRows, user: int, time: int, by: History) -> list[float]:
    """The same, row by row, as the formulas have it."""
    order = sorted(
        (t, i)
        for i, (u, t) in enumerate(zip(past.user, past.time, strict=True))
        if u == user and time - by.days <= t < time
    )[::-1]
    found, lags = [float(len(order))], np.full((by.days, len(by.columns)), NAN)
    for t, i in order:
        lags[time - t - 1] = past.values[i]
    for c, column in enumerate(by.columns):
        nothing = by.none if column == "action" else 0.0
        seen = [(time - t, float(past.values[i, c])) for t, i in order if not np.isnan(past.values[i, c])]
        if not seen:
            found += [NAN] * len(ONE)
            continue
        weights = [2.0 ** (-(lag - 1) * 4 / by.days) for lag, _ in seen]
        different = [lag for lag, v in seen if v != nothing]
        total = sum(v for _, v in seen)
        told = {
            "mean": total / len(seen),
            "sum": total,
            "count": len(different),
            "decayed": sum(w * v for w, (_, v) in zip(weights, seen, strict=True)) / sum(weights),
            "last": seen[0][1],
            "since": min(different, default=by.days + 1),
        }
        found += [told[name] for name in ONE]
    return [*found, *lags.ravel()]


@pytest.mark.parametrize("days", [1, 3, 14])
def test_summaries_of_many_users_are_those_of_each_row_alone(days: int) -> None:
    """With gaps and unknown values; and to the bit the same whichever other rows are asked about."""
    rng = np.random.default_rng(days)
    places = np.unique(rng.integers(0, [20, 40], (300, 2)), axis=0)
    values = np.where(rng.random((len(places), 2)) < 0.2, NAN, rng.integers(0, 4, (len(places), 2)) / 3)
    past = PastRows.sorted(places[:, 0], places[:, 1], values.astype(np.float32))
    by = history(days)
    user, time = rng.integers(0, 21, 200), rng.integers(0, 45, 200)
    found = by.summarise(past, user, time)
    np.testing.assert_allclose(found, [naive(past, *pair, by) for pair in zip(user, time, strict=True)], rtol=1e-6)
    alone = [by.summarise(past, user[i : i + 1], time[i : i + 1])[0] for i in range(len(user))]
    assert np.array_equal(found, np.array(alone), equal_nan=True)


def test_days_without_a_row_are_days_without_an_incentive_where_the_log_is_complete() -> None:
    by = history(complete=True, columns=("action", "reward", "basket"), features=("basket",))
    values: NDArray[np.float32] = np.array([[3, 1, 5], [2, 1, 6], [4, 1, 7]], np.float32)
    past = PastRows(np.array([1, 1, 2]), np.array([5, 8, 9]), values)
    full = by.completed(past, until=10)
    assert full.user.tolist() == [1] * 5 + [2]
    assert full.time.tolist() == [5, 6, 7, 8, 9, 9]
    assert full.values[:, 0].tolist() == [3, 1, 1, 2, 1, 4]
    assert full.values[:, 1].tolist() == [1, 0, 0, 1, 0, 1]
    assert np.array_equal(full.values[:, 2], [5, NAN, NAN, 6, NAN, 7], equal_nan=True)
    assert features(full, 1, 10, by)["reward_mean_4d"] == 0.25
    assert history().completed(past, until=10) is past


def test_a_value_that_could_still_change_is_unknown() -> None:
    """The reward is known after two days: on day 10 that of day 8 is not, that of day 7 is; actions always are."""
    past = rows((7, 7, 3, 2), (7, 8, 1, 0.5), (7, 9, 4, 5))
    found = features(past, 7, 10, history(delays=(0, 2)))
    assert (found["history_days"], found["reward_mean_4d"], found["reward_last_4d"]) == (3, 2, 2)
    assert (found["reward_since_4d"], found["action_last_4d"], found["action_sum_4d"]) == (3, 4, 8)
    assert np.isnan(features(past, 7, 9, history(delays=(0, 2)))["reward_sum_4d"])


@pytest.mark.parametrize("complete", [False, True])
def test_what_was_known_when_the_decision_was_made_is_what_the_finished_log_gives(complete: bool) -> None:
    """Values that change up to 3 days later give the same features before they do and after, to the bit."""
    rng = np.random.default_rng(1)
    places = np.unique(rng.integers(0, [20, 40], (300, 2)), axis=0)
    values = (rng.integers(0, 4, (len(places), 2)) / 3).astype(np.float32)
    by, undeclared = history(7, delays=(0, 3), complete=complete), history(7, complete=complete)
    final = PastRows.sorted(places[:, 0], places[:, 1], values)
    users = np.arange(21)

    def found(rows: PastRows, day: int, how: History) -> NDArray[np.float32]:
        return how.summarise(how.completed(rows, 40), users, np.full(21, day))

    for day in (12, 25, 39):
        known = np.where((final.time >= day - 3)[:, None], [1, 0], 1) * final.values  # as on the morning of the day
        then = PastRows(final.user, final.time, known.astype(np.float32))
        assert np.array_equal(found(then, day, by), found(final, day, by), equal_nan=True)
        assert not np.array_equal(found(then, day, undeclared), found(final, day, undeclared), equal_nan=True)
