"""Before a test starts: users' totals in a past log, for its power, and what to consider.

    x_i = Σ over the last w days of the log        y_i = Σ over the days before them        per user i, missing days 0

Rows that would make the means wrong are refused, as in the analysis.

A log shorter than the test is scaled up: the total of k days is taken as k/w times that of w days, so the variance
grows by (k/w)². Days of one user are at most perfectly correlated, so this errs on the safe side.
"""

from __future__ import annotations

import datetime
import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from outlay.core.actions import ActionNames, Given
from outlay.core.campaign import DAYS_OF, Campaign
from outlay.core.errors import LogError
from outlay.core.wording import counted, money
from outlay.experiments.design import EQUAL, WEEK, Arm, Experiment
from outlay.experiments.lift import LEAST_CLUSTERS, MOST_SKEWED, skewness
from outlay.experiments.log import LARGEST, canonical_sql
from outlay.experiments.moments import BEFORE, USERS, Metric, UserMoments
from outlay.experiments.power import ENOUGH, DesignEffect
from outlay.experiments.words import ExperimentNote, NoteKind, spans
from outlay.logs.reading import copies_or
from outlay.logs.roles import Log, open_log
from outlay.logs.source import Asker

ELIGIBLE_KEY, CLUSTER_KEY = "eligible", "cluster"
FEW_CLUSTERS = 30  # per arm: with fewer, power planned with the normal quantile is too large


@dataclass(frozen=True)
class PastLog:
    """Users' totals in a past log.

    Attributes:
        moments: of the totals over `days`; if `before` > 0, also of the days before, in columns `…_before`.
        clusters: the same of the totals of clusters, with a column `USERS`; None if arms are drawn by user.
        days: of the test, which the totals are for.
        window: units of the log's time that were added up; fewer than the test has if the log is too short.
        before: those of the covariate; 0 if the log has none.
        log_days: those of the log, from the first to the last.
        actions: in the log, ascending.
        spent: money of a user over `days` if each of them were always given: at every choice what it cost in the log
            when it was given, and beside it what rows without a choice cost; NaN where it never was given.
        names: what they are called.
        notes: what is doubtful about the log.
        scale: what totals over `window` are multiplied by to be those of the test.
        unit: what a unit of the log's time is called; None where each user has one row, the user's whole total.
    """

    moments: UserMoments
    days: int
    window: int
    before: int
    log_days: int
    actions: tuple[Given, ...]
    spent: tuple[float, ...]
    notes: tuple[ExperimentNote, ...]
    names: ActionNames
    clusters: UserMoments | None = None
    scale: float = 1.0
    unit: str | None = "day"


def known_metrics(campaign: Campaign) -> dict[str, Metric]:
    """The metrics that can be planned for, by name, over the columns of `measure_past`.

    The reward and every budget's cost by their names; `cost`, the cost of the budget that is money; `redemption`, days
    on which money was paid; `cost_per_…`, money per unit of reward.
    """
    money, reward = f"cost{campaign.money}", campaign.reward_label
    ratio = f"cost_per_{reward}"
    named = [Metric("cost", money), Metric("redemption", "redeemed"), Metric(ratio, money, "reward")]
    named += [Metric(budget.name, f"cost{j}") for j, budget in enumerate(campaign.budgets)]
    return {metric.name: metric for metric in [*named, Metric(reward, "reward")]}


def measure_past(
    campaign: Campaign,
    days: int,
    *,
    eligible: str | None = None,
    cluster: str | None = None,
    threads: int | None = None,
) -> PastLog:
    """Add up the log by user.

    Args:
        campaign: with the log.
        days: of the test.
        eligible: SQL condition on a user's first row; None takes everyone.
        cluster: column or SQL of the cluster that arms are drawn by; None: by user.
        threads: of DuckDB.

    Raises:
        CampaignError, LogError: if the log cannot be read, `eligible` or `cluster` is not valid, a number is missing or
            infinite, a user has two rows for a day or two clusters, or fewer than two users are left.
    """
    with (
        tempfile.TemporaryDirectory(prefix="outlay-") as folder,
        open_log(campaign, Path(folder), threads=threads) as log,
    ):
        users = _eligible_users(log, eligible)
        [(first, last)] = log.source.run('SELECT min("time"), max("time") FROM roles')
        log_days = last - first + 1
        once, wanted = bool(log.campaign.log.once), log.campaign.units(days)
        window = log_days if once else min(math.ceil(wanted), log_days)
        before = 0 if once else min(math.ceil(wanted), log_days - window)
        start = last - window + 1
        _refuse_wrong_rows(log, f'{users} AND "time" >= {start - before}')
        scale = 1.0 if once else wanted / window
        moments = _moments(log, users, start=start, before=before, scale=scale)
        clusters = None
        if cluster is not None:
            _make_members(log, users, cluster)
            clusters = _moments(log, users, start=start, before=before, scale=scale, clustered=True)
        notes = _log_notes(log, start - before, last)
        actions = log.source.run("SELECT DISTINCT action FROM roles WHERE action IS NOT NULL ORDER BY action")
        spent = _spent(log, f'{users} AND "time" >= {start}', [action for (action,) in actions])
    if moments.users < 2:
        found = f"{moments.users} user{'' if moments.users == 1 else 's'} in its last {window} days"
        raise LogError(
            f"{found}{' who may be in the test' if eligible else ''}; a plan needs at least 2.",
            file=campaign.source,
            where=ELIGIBLE_KEY if eligible else None,
            way_out="Give a log of the users that will be in the test.",
        )
    given = tuple(log.campaign.given(float(action)) for (action,) in actions)
    unit = None if once else log.campaign.unit
    return PastLog(
        moments=moments,
        days=days,
        window=window,
        before=before,
        log_days=log_days,
        actions=given,
        spent=tuple(scale * total / moments.users for total in spent),
        notes=tuple(notes),
        names=log.campaign.names,
        clusters=clusters,
        scale=scale,
        unit=unit,
    )


def _spent(log: Log, kept: str, actions: Sequence[float]) -> list[float]:
    """Money of the rows that are added up if each action were given at every choice; NaN where it never was."""
    cost = f"cost{log.campaign.money}"
    [(choices, other)] = log.source.run(
        f"SELECT count(*) FILTER ({log.choice}), coalesce(sum({cost}) FILTER (NOT ({log.choice})), 0) FROM roles "
        f"WHERE {kept}"
    )
    found = log.source.run(f"SELECT action, avg({cost}) FROM roles WHERE {kept} AND {log.choice} GROUP BY action")
    each = dict(found)
    return [other + choices * each.get(action, math.nan) for action in actions]


def _eligible_users(log: Log, eligible: str | None) -> str:
    """SQL condition on `roles`: users who may be in the test."""
    known = '"user" IS NOT NULL AND "time" IS NOT NULL'
    if eligible is None:
        return known
    source = replace(log.source, asker=Asker())  # the campaign file did not ask for this column
    term = source.term(ELIGIBLE_KEY, eligible)
    source.run(
        f'CREATE TABLE may AS SELECT "user" FROM roles WHERE {known} GROUP BY "user" HAVING arg_min(row, "time") IN '
        f"(SELECT __row FROM log_numbered WHERE CAST({term.sql} AS BOOLEAN))"
    )
    return f'{known} AND "user" IN (SELECT "user" FROM may)'


def _make_members(log: Log, users: str, cluster: str) -> None:
    """Make the table `members` of users and their clusters."""
    source = replace(log.source, asker=Asker())
    sql = canonical_sql(source.term(CLUSTER_KEY, cluster))
    source.run(
        f'CREATE TABLE members AS SELECT "user", min(drawn_by) AS cluster, max(drawn_by) AS other, '
        f"count(*) - count(drawn_by) AS missing FROM (SELECT __row AS row, {sql} AS drawn_by FROM log_numbered) "
        f'JOIN roles USING (row) WHERE {users} GROUP BY "user"'
    )
    wrong = source.run(
        'SELECT "user", missing, cluster, other, count(*) OVER () FROM members WHERE missing > 0 OR cluster <> other '
        "LIMIT 1"
    )
    if wrong:
        user, missing, one, other, count = wrong[0]
        found = "has rows without one" if missing else f"is in {one} and {other}"
        raise LogError(
            f"{count:,} users are not in one cluster, for example user {user!r}, who {found}.",
            file=log.campaign.source,
            where=CLUSTER_KEY,
            way_out="Give an expression that never changes for a user.",
        )


def _refuse_wrong_rows(log: Log, kept: str) -> None:
    """Check the rows that are added up."""
    campaign = log.campaign
    asked = {"reward": ("log.reward", "reward", campaign.log.reward)}
    asked |= {
        f"cost{j}": (f"budget {b.name}.cost", "cost", b.cost if isinstance(b.cost, str) else "")
        for j, b in enumerate(campaign.budgets)
    }
    counts = log.source.run(
        "SELECT "
        + ", ".join(f"count(*) - count({x}), count(*) FILTER (NOT abs({x}) <= {LARGEST})" for x in asked)
        + f" FROM roles WHERE {kept}"
    )[0]
    for (where, key, text), lost, odd in zip(asked.values(), counts[::2], counts[1::2], strict=True):
        if lost:
            raise LogError(
                f"{text!r} is missing in {lost:,} rows.",
                file=campaign.source,
                where=where,
                way_out="A number that was lost is not 0. If nothing happened in these rows, write "
                f'{key} = "coalesce({text}, 0)" in {campaign.path}.',
            )
        if odd:
            raise LogError(
                f"{text!r} holds infinity or numbers beyond {LARGEST:g} in {odd:,} rows.",
                file=campaign.source,
                where=where,
                way_out="Fix them, or leave these rows out with log.where.",
            )
    twice = log.source.run(
        f'SELECT "user", count(*) OVER () FROM roles WHERE {kept} GROUP BY "user" '
        'HAVING count(*) > list_unique(list("time")) LIMIT 1'
    )
    if twice:
        way_out = "Sum them into a row per user and day, or filter with log.where."
        copied, way_out = copies_or(log.source.run, "log_kept", way_out)
        found = f"{counted(twice[0][1], 'user', 'have')} two rows on a day, for example user {twice[0][0]!r}.{copied}"
        raise LogError(found, file=campaign.source, where="log.user, log.time", way_out=way_out)


def _log_notes(log: Log, first: int, last: int) -> list[ExperimentNote]:
    """Note days without a row of any user, from the first day to the last, and money below 0."""
    empty = log.source.run(
        f'SELECT day FROM range({first}, {last + 1}) AS days(day) ANTI JOIN roles ON "time" = day ORDER BY day'
    )
    notes = []
    if empty and not log.campaign.log.once:
        dated = log.dates or log.counted is not None
        told = (lambda day: str(log.when(day))) if dated else (lambda day: f"{log.campaign.unit} {day}")
        notes.append(NoteKind.PAST_UNRECORDED(days=spans([int(day) for (day,) in empty], told)))
    [(least,)] = log.source.run(f'SELECT min(cost{log.campaign.money}) FROM roles WHERE "time" >= {first}')
    if least is not None and least < 0:
        money = log.campaign.budgets[log.campaign.money].name
        notes.append(NoteKind.NEGATIVE_MONEY(money=money, least=float(least)))
    return notes


def _moments(log: Log, users: str, *, start: int, before: int, scale: float, clustered: bool = False) -> UserMoments:
    """Return the moments of the totals of users, or of their clusters (table `members`)."""
    base = {"reward": "reward", "redeemed": f"CAST(cost{log.campaign.money} > 0 AS DOUBLE)"}
    base |= {name: name for name in log.costs}
    spans = {"": f'"time" >= {start}', BEFORE: f'"time" < {start} AND "time" >= {start - before}'}
    columns = {
        name + ending: f"coalesce(sum({sql}) FILTER ({span}), 0)"
        for ending, span in spans.items()
        if before or not ending
        for name, sql in base.items()
    }
    if clustered:
        columns[USERS] = "1.0"
        if before:
            columns[USERS + BEFORE] = f"CAST(bool_or({spans[BEFORE]}) AS DOUBLE)"
    names = list(columns)
    sums = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    numbers = [f"avg({name})" for name in names] + [f"avg({name} * {name} * {name})" for name in names]
    numbers += [f"covar_samp({a}, {b})" for i, a in enumerate(names) for b in names[i:]]
    totals = f'SELECT "user", {sums} FROM roles WHERE {users} GROUP BY "user" HAVING max("time") >= {start}'
    if clustered:
        added = ", ".join(f"sum({name}) AS {name}" for name in names)
        totals = f'SELECT {added} FROM ({totals}) JOIN members USING ("user") GROUP BY cluster'
    [(count, *found)] = log.source.run(f"SELECT count(*), {', '.join(numbers)} FROM ({totals})")
    d = len(names)
    values = np.array([np.nan if value is None else value for value in found], np.float64)
    covariance = np.zeros((d, d))
    covariance[np.triu_indices(d)] = values[2 * d :]
    covariance += np.triu(covariance, 1).T
    longer = np.where([name.endswith(BEFORE) or name == USERS for name in names], 1.0, scale)
    return UserMoments(
        int(count),
        tuple(names),
        values[:d] * longer,
        covariance * np.outer(longer, longer),
        values[d : 2 * d] * longer**3,
        clustered=clustered,
    )


@dataclass(frozen=True)
class RampDay:
    """Users in the test from a day on: `users` of each arm, in expectation, in the order of the arms."""

    day: int
    date: datetime.date
    coverage: float
    users: tuple[int, ...]


def plan_notes(
    experiment: Experiment,
    campaign: Campaign,
    metrics: Sequence[Metric],
    past: PastLog,
    ramp: Sequence[RampDay],
    today: datetime.date,
) -> list[ExperimentNote]:
    """The notes on a plan.

    Args:
        experiment: the planned test.
        campaign: it belongs to.
        metrics: the verdict's, then the guardrails.
        past: what the past log says.
        ramp: users by day.
        today: a test that started earlier is live.
    """
    full = ramp[-1].users
    return [
        *_about_the_start(experiment, today),
        *_about_arms(experiment),
        *_about_money(experiment, campaign, past, full),
        *_about_days(experiment, past, ramp),
        *_about_metrics(experiment, metrics, past, full),
    ]


def cluster_notes(
    experiment: Experiment, campaign: Campaign, drawn: DesignEffect | None, shares: Sequence[float]
) -> list[ExperimentNote]:
    """Notes about clusters.

    Args:
        experiment: the planned test.
        campaign: it belongs to.
        drawn: what drawing clusters costs; None if arms are drawn by user.
        shares: of the past log's users in each arm.
    """
    if drawn is None:
        if campaign.log.cluster is None:
            return []
        return [NoteKind.CLUSTERS_ADVISED(cluster=campaign.log.cluster)]
    meta = experiment.meta
    notes = [NoteKind.CLUSTERED(cluster=str(meta.cluster), metric=meta.metric, **asdict(drawn))]
    least = min(round(share * drawn.clusters) for share in shares)
    if least < FEW_CLUSTERS:
        follows = "cannot be analyzed" if least < LEAST_CLUSTERS else "detects less than planned"
        figures = {"clusters": least, "few": FEW_CLUSTERS, "needed": LEAST_CLUSTERS}
        notes.append(NoteKind.FEW_CLUSTERS(consequence=follows, **figures))
    return notes


def _about_the_start(experiment: Experiment, today: datetime.date) -> list[ExperimentNote]:
    start = experiment.meta.start
    if start > today:
        return []
    when = "today" if start == today else f"on {start}, {(today - start).days} days ago"
    return [NoteKind.LIVE(when=when)]


def _about_arms(experiment: Experiment) -> list[ExperimentNote]:
    if all(arm.kind == "holdout" for arm in experiment.arms):
        return [NoteKind.NOTHING_GIVEN()]
    if experiment.control.kind == "holdout":
        return [NoteKind.CONTROL_GIVES_NOTHING(control=experiment.control.name)]
    return []


def _about_money(
    experiment: Experiment, campaign: Campaign, past: PastLog, full: Sequence[int]
) -> list[ExperimentNote]:
    notes: list[ExperimentNote] = []
    given = [_spent_under(arm, campaign, past) for arm in experiment.arms]  # per user
    per_user = {
        arm.name: arm.budget / arm.share
        for arm, total in zip(experiment.arms, given, strict=True)
        if arm.budget is not None and total > 0
    }
    if max(per_user.values(), default=0) > min(per_user.values(), default=0) * (1 + EQUAL):
        most, least = (pick(per_user, key=lambda name: per_user[name]) for pick in (max, min))
        notes.append(NoteKind.UNEQUAL_BUDGETS(most=most, least=least, times=per_user[most] / per_user[least]))
    short = []
    for arm, total, users in zip(experiment.arms, given, full, strict=True):
        spent = total / past.days
        needed = total * users if past.unit is None else spent * _user_days(experiment, users)
        if arm.budget is not None and arm.budget < needed * (1 - EQUAL):
            gone = "" if past.unit is None else f", gone {_gone(experiment, arm.budget / (spent * users))}"
            short.append(f"{arm.name!r} has {arm.budget:,.10g} of {money(needed)}{gone}")
    if short:
        kind = NoteKind.SHORT_BUDGETS_ONCE if past.unit is None else NoteKind.SHORT_BUDGETS
        notes.append(kind(unit=campaign.meta.unit, arms="; ".join(short)))
    return notes


def _spent_under(arm: Arm, campaign: Campaign, past: PastLog) -> float:
    """Money of a user over the test: of a constant action by what it cost in the log, else as much as in the log."""
    total = past.moments.average(f"cost{campaign.money}")
    if arm.action is None:
        return total
    own = dict(zip(past.actions, past.spent, strict=True)).get(arm.action, math.nan)
    return total if math.isnan(own) else own


def _about_days(experiment: Experiment, past: PastLog, ramp: Sequence[RampDay]) -> list[ExperimentNote]:
    notes: list[ExperimentNote] = []
    meta, growth = experiment.meta, experiment.last_growth
    if growth:
        notes.append(NoteKind.RAMP_ENDS(growth=growth, days=past.days))
    if meta.days - growth < WEEK:  # weekdays do not count equally
        notes.append(NoteKind.LATE_RAMP(full=meta.days - growth, days=meta.days, last=meta.days - WEEK))
    early = [day for day in meta.decisions if day <= growth]
    if early:
        part = experiment.coverage(early[-1] - 1) / experiment.coverage(growth)
        notes.append(NoteKind.EARLY_DECISION(day=early[-1], share=part))
    if past.unit is None:
        notes.append(NoteKind.ONE_ROW())
    elif past.unit not in DAYS_OF:
        notes.append(NoteKind.COUNTED(days=past.days, unit=past.unit))
    if past.scale > 1 and past.unit is not None:
        had = f"{past.unit} that the log has" if past.window == 1 else f"{past.window} {past.unit}s that the log has"
        notes.append(NoteKind.SCALED(days=past.days, times=past.scale, had=had))
        if past.log_days == 1:
            notes.append(NoteKind.SINGLE_DAY(unit=past.unit))
    if not past.before and past.unit is not None:
        notes.append(NoteKind.NO_DAYS_BEFORE())
    if min(ramp[-1].users) < ENOUGH:
        notes.append(NoteKind.ROUGH_POWER(users=min(ramp[-1].users), enough=ENOUGH))
    return notes


def _about_metrics(
    experiment: Experiment, metrics: Sequence[Metric], past: PastLog, full: Sequence[int]
) -> list[ExperimentNote]:
    notes = [
        NoteKind.CONSTANT_GUARDRAIL(metric=metric.name) for metric in metrics[1:] if past.moments.is_constant(metric)
    ]
    for arm, users in zip(experiment.arms[1:], full[1:], strict=True):
        sizes = full[0], users
        skewed = [m.name for m in metrics if min(sizes) > 0 and skewness(m, past.moments, sizes) > MOST_SKEWED]
        if skewed:
            named = " and ".join(skewed)
            notes.append(NoteKind.SKEWED(metrics=named, arm=arm.name, control=full[0], treatment=users))
    return notes


def _user_days(experiment: Experiment, full: int) -> float:
    """Days in the test, summed over the users of an arm that has `full` users at the end."""
    coverage = [experiment.coverage(day) for day in range(experiment.meta.days)]
    return full * sum(coverage) / coverage[-1]


def _gone(experiment: Experiment, days: float) -> str:
    """When money for `days` days of all users of an arm is gone: `after day 6`, the last that it covers."""
    coverage = [experiment.coverage(day) for day in range(experiment.meta.days)]
    used = 0.0
    for day, now in enumerate(coverage):
        used += now / coverage[-1]
        if used > days:
            return f"after day {day}" if day else "on the first day"
    return f"after day {experiment.meta.days}"
