"""Arms that are drawn by city: errors are those of the cities, and an A/A test is hardly ever significant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from outlay.core.errors import LogError
from outlay.experiments.design import Experiment
from outlay.experiments.lift import LEAST_CLUSTERS, Lift, Withheld, lift
from outlay.experiments.moments import USERS, Metric, UserMoments, moments_of
from outlay.experiments.results import Analysis
from outlay.experiments.split import entries
from outlay.experiments.words import NoteKind
from outlay.jobs.analyze_experiment import analyze_experiment
from outlay.jobs.assign_users import assign_users
from small_panels import experiment, panel, written

RUNS, OUTCOMES = 8, ("active", "opened", "clicked", "bought")  # 32 A/A tests


def by_city(experiment: Experiment) -> Experiment:
    return experiment.model_copy(update={"meta": experiment.meta.model_copy(update={"cluster": "city"})})


def cities(seed: int, *, count: int = 40, days: int = 7, before: int = 0, effect: float = 0.35) -> pa.Table:
    """Cities of uneven sizes, each with a chance of its own; arms drawn by city, and nothing done in either."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 60, count)
    city = np.repeat(np.arange(count), sizes)
    drawn, _ = entries(by_city(experiment()), [f"c{seed}-{c}" for c in range(count)])
    day = np.tile(np.arange(-before, days), len(city))
    user = np.repeat(np.arange(len(city)), before + days)

    def drawn_outcome() -> NDArray[np.float64]:
        chance = 0.4 + effect * rng.normal(size=count)[city] * 0.4 + 0.1 * rng.normal(size=len(city))
        return (rng.random(len(user)) < chance.clip(0.02, 0.98)[user]).astype(float)

    outcomes = {name: drawn_outcome() for name in OUTCOMES}
    return pa.table(
        {
            "user": np.char.add("u", user.astype(str)),
            "day": day,
            "arm": pa.array(np.array(["old", "new"])[drawn[city[user]]], mask=day < 0),
            "city": np.char.add(f"c{seed}-", city[user].astype(str)),
            "cost": 2 * outcomes["active"],
            **outcomes,
        }
    )


def active(result: Analysis, metric: str = "active") -> Lift:
    found = next(each for each in result.comparisons[0].lifts if each.metric == metric)
    assert isinstance(found, Lift)
    return found


@pytest.mark.slow
def test_an_a_a_test_by_city_is_false_about_as_often_as_it_may_and_by_user_much_more_often(tmp_path: Path) -> None:
    """Outcomes of cities that have nothing to do with one another: each is a test of its own."""
    week = experiment(days=7, decisions=(7,))
    week = week.model_copy(update={"meta": week.meta.model_copy(update={"guardrails": OUTCOMES[1:]})})
    false: dict[str, list[bool]] = {"cluster": [], "user": []}
    for seed in range(RUNS):
        log = written(cities(seed), tmp_path)
        for unit, about in (("cluster", by_city(week)), ("user", week)):
            found = analyze_experiment(log, about)
            false[unit] += [active(found, metric).p_value < 0.05 for metric in OUTCOMES]
    assert len(false["cluster"]) == 32
    assert np.mean(false["cluster"]) <= 0.07 + 0.04  # and a standard error of 32 tests
    assert np.mean(false["user"]) > 0.3


@pytest.mark.parametrize(
    ("count", "uneven", "least", "most"),
    [(LEAST_CLUSTERS, False, 0.05, 0.072), (20, False, 0.045, 0.067), (LEAST_CLUSTERS, True, 0.085, 0.115)],
)
def test_as_few_clusters_as_an_arm_may_have_err_a_little_too_often(
    count: int, uneven: bool, least: float, most: float
) -> None:
    """Of 20,000 A/A tests 6.1% with 10 cities of 5 to 59 users an arm, 5.7% with 20; of log-normal sizes 9.9%."""
    rng = np.random.default_rng(0)

    def arm() -> UserMoments:
        users = np.ceil(np.exp(rng.normal(3, 1, count))) if uneven else rng.integers(5, 60, count).astype(float)
        chance = np.clip(0.4 + 0.15 * rng.normal(size=count), 0.02, 0.98)
        active = rng.binomial(users.astype(int), chance).astype(np.float64)
        return moments_of({"active": active, USERS: users}, clustered=True)

    found = (lift(Metric("active", "active", USERS), arm(), arm(), 0.95) for _ in range(3_000))
    false = np.mean([each.p_value < 0.05 for each in found if isinstance(each, Lift)])
    assert least < false < most


def test_the_error_is_that_of_the_cities_totals(tmp_path: Path) -> None:
    log = cities(3)
    found = active(analyze_experiment(written(log, tmp_path), by_city(experiment(days=7, decisions=(7,)))))
    grouped = log.group_by(["city", "arm"]).aggregate([("active", "sum"), ("user", "count_distinct")])
    variances, counts = [], []
    for arm in ("old", "new"):
        part = grouped.filter(pc.equal(grouped["arm"], arm))
        y, n = (np.asarray(part[name], float) for name in ("active_sum", "user_count_distinct"))
        off = (y - y.sum() / n.sum() * n) / n.mean()
        variances.append(off.var(ddof=1) / len(off))
        counts.append(len(off))
    assert found.std_error == pytest.approx(np.sqrt(sum(variances)), rel=1e-9)
    welch = sum(variances) ** 2 / sum(v**2 / (n - 1) for v, n in zip(variances, counts, strict=True))
    assert found.freedom == pytest.approx(welch)
    users = active(analyze_experiment(written(log, tmp_path), experiment(days=7, decisions=(7,))))
    assert found.absolute.value == pytest.approx(users.absolute.value)
    assert abs(found.z) < abs(found.absolute.value / found.std_error)


def test_a_cluster_of_every_user_is_the_test_by_user(tmp_path: Path) -> None:
    log = panel(users=800, days=14, before=7, lift=0.2)
    alone = log.append_column("city", log["user"])
    one = active(analyze_experiment(written(log, tmp_path), experiment()))
    other = active(analyze_experiment(written(alone, tmp_path), by_city(experiment())))
    assert other.absolute.value == pytest.approx(one.absolute.value, rel=0.02)
    assert other.std_error == pytest.approx(one.std_error, rel=0.02)
    assert other.covariate


def test_the_days_before_help_where_cities_differ(tmp_path: Path) -> None:
    week = by_city(experiment(days=7, decisions=(7,)))
    plain = active(analyze_experiment(written(cities(5), tmp_path), week))
    cuped = active(analyze_experiment(written(cities(5, before=7), tmp_path), week))
    assert cuped.covariate
    assert cuped.std_error < 0.5 * plain.std_error


def test_a_list_of_assigned_users_brings_their_clusters(tmp_path: Path) -> None:
    week = by_city(experiment(days=7, decisions=(7,)))
    log = cities(8)
    pq.write_table(log, tmp_path / "users.parquet")
    result = assign_users(week, tmp_path / "users.parquet", tmp_path / "arms.parquet", day=6)
    arms = pq.read_table(tmp_path / "arms.parquet")
    assert result.users == len(arms)
    told = dict(zip(log["user"].to_pylist(), log["arm"].to_pylist(), strict=True))
    assert [told[user] for user in arms["user"].to_pylist()] == arms["arm"].to_pylist()
    one = active(analyze_experiment(written(log, tmp_path), week))
    bare = written(log.drop_columns(["arm", "city"]), tmp_path)
    other = active(analyze_experiment(bare, week, assigned=tmp_path / "arms.parquet"))
    assert other.absolute.value == pytest.approx(one.absolute.value)
    assert other.std_error == pytest.approx(one.std_error)


def test_wrong_clusters_are_refused(tmp_path: Path) -> None:
    week = by_city(experiment(days=7, decisions=(7,)))
    log = cities(9)
    moved = log.set_column(3, "city", pa.array(["x", *log["city"].to_pylist()[1:]]))
    with pytest.raises(LogError, match=r"more than one cluster, .*'u0'"):
        analyze_experiment(written(moved, tmp_path), week)
    pq.write_table(moved, tmp_path / "users.parquet")
    with pytest.raises(LogError, match=r"'u0' .*clusters c9-0 and x"):
        assign_users(week, tmp_path / "users.parquet", tmp_path / "arms.parquet", day=0)
    single = pa.array(["old" if int(u[1:]) % 2 else "new" for u in log["user"].to_pylist()])
    with pytest.raises(LogError, match="clusters are in two arms"):
        analyze_experiment(written(log.set_column(2, "arm", single), tmp_path), week)
    found = analyze_experiment(written(cities(9, count=12), tmp_path), week).comparisons[0].lifts[0]
    assert isinstance(found, Withheld)
    assert found.reason.kind is NoteKind.FEW_UNITS
    assert (found.reason.figures["units"], found.reason.figures["needed"]) == ("clusters", 10)
