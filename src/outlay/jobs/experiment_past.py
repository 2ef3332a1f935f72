"""What a past log says about users' totals, for planning a test: means, variances and the days before.

    x_i = Σ over the last w days of the log        y_i = Σ over the days before them        per user i, absent days 0

A log shorter than the test is scaled up: k days are taken as k/w times the total of w days, so the variance grows by
(k/w)². Days of one user are at most perfectly correlated, so this errs on the safe side.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from outlay.core.campaign import Campaign
from outlay.core.errors import LogError
from outlay.experiments.moments import BEFORE, Metric, Moments
from outlay.logs.roles import Log, open_log

ELIGIBLE_KEY = "eligible"


@dataclass(frozen=True)
class Past:
    """Users' totals in a past log.

    Attributes:
        moments: of the totals over `days`; with `before` > 0 also of the days before, in columns `…_before`.
        days: that the totals are for, those of the test.
        window: days of the log that were added up; fewer than `days` where the log is too short.
        before: days of the covariate; 0 where the log has none.
        log_days: of the log, from its first to its last.
    """

    moments: Moments
    days: int
    window: int
    before: int
    log_days: int


def known_metrics(campaign: Campaign) -> dict[str, Metric]:
    """What can be planned for, by name: columns are those of `measure_past`.

    The reward and every budget's cost by their names; `cost`, of the budget that is money; `redemption`, days on which
    money was paid; `cost_per_…`, money for one unit of reward.
    """
    money, reward = f"cost{campaign.money}", campaign.reward_label
    ratio = f"cost_per_{reward}"
    named = [Metric("cost", money), Metric("redemption", "redeemed"), Metric(ratio, money, "reward")]
    named += [Metric(budget.name, f"cost{j}") for j, budget in enumerate(campaign.budgets)]
    return {metric.name: metric for metric in [*named, Metric(reward, "reward")]}


def measure_past(campaign: Campaign, days: int, *, eligible: str | None = None, threads: int | None = None) -> Past:
    """Add up the log by user.

    Args:
        campaign: its log.
        days: of the test.
        eligible: SQL condition on a user's first row; None takes everyone.
        threads: of DuckDB.

    Raises:
        CampaignError, LogError: if the log cannot be read, `eligible` makes no sense, or fewer than two users are left.
    """
    with (
        tempfile.TemporaryDirectory(prefix="outlay-") as folder,
        open_log(campaign, Path(folder), threads=threads) as log,
    ):
        users = _eligible_users(log, eligible)
        [(first, last)] = log.source.run('SELECT min("time"), max("time") FROM roles')
        log_days = last - first + 1
        window = min(days, log_days)
        before = min(days, log_days - window)
        moments = _moments(log, users, start=last - window + 1, before=before, scale=days / window)
    if moments.users < 2:
        found = f"{moments.users} user{'' if moments.users == 1 else 's'} in its last {window} days"
        raise LogError(f"{found}{' who may be in the test' if eligible else ''}; a plan needs more.",
                       file=campaign.source, where=ELIGIBLE_KEY if eligible else None,
                       way_out="Give a log of the users you will test on.")  # fmt: skip
    return Past(moments, days=days, window=window, before=before, log_days=log_days)


def _eligible_users(log: Log, eligible: str | None) -> str:
    """SQL condition on `roles` for users who may be in the test."""
    known = '"user" IS NOT NULL AND "time" IS NOT NULL'
    if eligible is None:
        return known
    source = replace(log.source, asked_by=None)  # the campaign file did not ask for this column
    term = source.term(ELIGIBLE_KEY, eligible)
    source.run(
        f'CREATE TABLE may AS SELECT "user" FROM roles WHERE {known} GROUP BY "user" HAVING arg_min(row, "time") IN '
        f"(SELECT __row FROM log_numbered WHERE CAST({term.sql} AS BOOLEAN))"
    )
    return f'{known} AND "user" IN (SELECT "user" FROM may)'


def _moments(log: Log, users: str, *, start: int, before: int, scale: float) -> Moments:
    base = {"reward": "reward", "redeemed": f"CAST(cost{log.campaign.money} > 0 AS DOUBLE)"}
    base |= {name: name for name in log.costs}
    spans = {"": f'"time" >= {start}', BEFORE: f'"time" < {start} AND "time" >= {start - before}'}
    columns = {
        name + ending: f"coalesce(sum({sql}) FILTER ({span}), 0)"
        for ending, span in spans.items()
        if before or not ending
        for name, sql in base.items()
    }
    names = list(columns)
    sums = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    numbers = [f"avg({name})" for name in names]
    numbers += [f"covar_samp({a}, {b})" for i, a in enumerate(names) for b in names[i:]]
    [(count, *found)] = log.source.run(
        f"SELECT count(*), {', '.join(numbers)} FROM "
        f'(SELECT {sums} FROM roles WHERE {users} GROUP BY "user" HAVING max("time") >= {start})'
    )
    d = len(names)
    values = np.array([np.nan if value is None else value for value in found], np.float64)
    covariance = np.zeros((d, d))
    covariance[np.triu_indices(d)] = values[d:]
    covariance += np.triu(covariance, 1).T
    longer = np.where([name.endswith(BEFORE) for name in names], 1.0, scale)
    return Moments(int(count), tuple(names), values[:d] * longer, covariance * np.outer(longer, longer))
