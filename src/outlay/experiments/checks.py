"""Can a test be trusted? Sample ratios, missing days and users, who assigned the arms, what is ripe, what lasts.

**Sample ratio.** Do the arms have the users that were drawn: in all, by the day on which they came, and by segment? For
the whole, a mismatch says that something is wrong; for a day or a segment it also says where to look: a release on one
day, an app that loses the rows of one kind of users. Each of the three may err once in 1,000 tests.

**Missing rows.** A day without a row counts as a day on which nothing was done. For one user that is right; if nobody
has a row, the day was not recorded or not exported. If no row has an outcome of 0 and many days have no row, the log
keeps rows only where something was done. Then users who never did anything are missing, and the others count only from
the first day on which they did, both of which depend on the arm: a lift of 10% shrank to 6.4%. A list of assigned
users repairs that.

**Assignment.** A sample of users is drawn again. If the arms are the file's, a user's first row in an arm may not be
from before the ramp let the user in; and if nearly all users come a day too early or a day late, the log's days are
wrong. If the arms are not the file's, another system has assigned them, which is allowed and noted.

**Ripe days.** With d the longest of `[log.delays]` in the campaign file and T the last day of which outcomes were
collected (`log.as_of`, or the log's last day), a day t of the test is ripe if t + d ≤ T, as a row of a log is
(`logs/events.py`). Days that are not ripe count in no metric, so no decision is made on them.

**Does the effect last?** The first week against the whole weeks after it, and decisions that contradict each other.

    early_u = Σ_{d<7} y_ud / (7 − e_u)       later_u = Σ_{7≤d<D} y_ud / (D − 7)       of users who came on a day e_u < 7
    change  = (L_arm − L_control) − (E_arm − E_control)                               E, L: means of early_u, later_u
            = mean of (later_u − early_u) in the arm, less that in the control
    on the logarithm: ln(L_arm / L_control) − ln(E_arm / E_control), which moves as later_u / L − early_u / E

Both compare the arms by what changed within each user, so a user's days may depend on one another. The effect counts as
changed only if it has changed on both scales (an intersection–union test, which keeps its level): if everybody becomes
more active, a lasting +10% grows in days; if everybody becomes less active, it shrinks.

Source: Fabijan et al. 2019 (sample ratio mismatch), with Bonferroni over days and over segments; Berger 1982
(intersection–union tests); the rest is ours.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, LogError
from outlay.core.wording import days as told_days
from outlay.core.wording import number, percent
from outlay.experiments import words
from outlay.experiments.design import WEEK, Experiment
from outlay.experiments.lift import Lift, lift, sample_ratio
from outlay.experiments.log import ExperimentColumns, Run
from outlay.experiments.moments import FIRST_WEEK, SINCE, Metric, UserMoments
from outlay.experiments.results import Change, LateOutcomes, PlannedDecision, RatioCheck
from outlay.experiments.split import OUTSIDE, entries
from outlay.experiments.sums import UNSEEN, DailySums
from outlay.experiments.words import ExperimentNote, NoteKind, spans

Counts = NDArray[np.int64]

ASSIGNED, LOGGED = "assigned", "in the log"
RAREST = 1_000_000  # tests: what is rarer than once in as many is "not by chance"
MOST_PARTS = 3  # days, and segments, that are named for an arm: the worst

THIN = 0.5  # of the rows of the median day: with fewer, the last day was probably exported before it ended

SAMPLE = 20_000  # users that are drawn again, about
OURS = 0.99  # share of them in the file's arm from which on the file has assigned them
SHIFTED = 0.9  # share of the early users who are early by one day from which on the days are shifted
ENOUGH = 30  # users who came the day after, and none on the day: if days were right, a chance of 1 in 2^30
QUESTION = "Are days counted from 1, or in another time zone?"


def sample_ratios(sums: DailySums, experiment: Experiment, day: int) -> list[RatioCheck]:
    """For every arm the checks of all users; of days and segments only those that failed, the worst first.

    Assigned users and users in the log are checked separately if not all of them have rows.
    """
    days = slice(0, day if sums.daily else 1)
    users, seen = sums.users[days], sums.seen[days]
    same = np.array_equal(users.sum(axis=(0, 2)), seen.sum(axis=(0, 2)))
    whole = {LOGGED: seen} if same else {ASSIGNED: users, LOGGED: seen}
    came = [f"who came on {experiment.date(d)}" for d in range(len(users))]
    by_day = list(zip(came, users.sum(axis=2), strict=True))
    by_segment = [
        (f"in the segment {name!r}", seen[..., i].sum(axis=0)) for i, name in enumerate(sums.segments) if name != UNSEEN
    ]
    checks: list[RatioCheck] = []
    for place in range(1, len(experiment.arms)):
        for of, counts in whole.items():
            checks += _ratio_checks(experiment, place, of, [("", counts.sum(axis=(0, 2)))])
        for of, parts in ((LOGGED if same else ASSIGNED, by_day), (LOGGED, by_segment)):
            failed = [check for check in _ratio_checks(experiment, place, of, parts) if not check.passed]
            checks += sorted(failed, key=lambda check: check.p_value)[:MOST_PARTS]
    return checks


def _ratio_checks(
    experiment: Experiment, place: int, of: str, parts: Sequence[tuple[str, Counts]]
) -> Iterator[RatioCheck]:
    """The arm at `place` in every part (`[A]` users by arm) that has users; none if one part is the whole."""
    arm, control = experiment.arms[place], experiment.control
    counted = [(part, int(n[0]), int(n[place])) for part, n in parts if n[0] + n[place] > 0]
    if len(counted) == 1 and counted[0][0]:
        return
    planned = arm.share / control.share
    for part, old, new in counted:
        yield RatioCheck(
            arm.name, of, part, old, new, planned, min(1.0, len(counted) * sample_ratio(old, new, planned))
        )


def ratio_reasons(checks: Sequence[RatioCheck], experiment: Experiment, place: int) -> list[ExperimentNote]:
    """Why the arm at `place` gets no verdict, by the checks that failed; empty if none did."""
    arm, control = experiment.arms[place], experiment.control
    units = "users" if experiment.meta.cluster is None else "clusters"
    failed = [check for check in checks if check.arm == arm.name and not check.passed]
    whole = [
        f"{check.treatment:,} {units} of “{arm.name}” and {check.control:,} of “{control.name}” are {check.of}, "
        f"although shares of {arm.share:g} and {control.share:g} were planned ({_chance(check.p_value)})"
        for check in failed
        if not check.part
    ]
    parts = ", ".join(
        f"{check.part} ({check.treatment:,} of “{arm.name}”, {check.control:,} of “{control.name}”; "
        f"{_chance(check.p_value)})"
        for check in failed
        if check.part
    )
    if whole:
        above_all = f", above all among {units} {parts}" if parts else ""
        return [NoteKind.SAMPLE_RATIO(found=" and ".join(whole), parts=above_all)]
    return [NoteKind.RATIO_OF_PARTS(units=units, parts=parts)] if parts else []


def _chance(p_value: float) -> str:
    often = 1 / max(p_value, 1e-300)
    return f"chance does this in 1 of {often:,.0f} tests" if often < RAREST else "not by chance"


def log_reasons(sums: DailySums, experiment: Experiment, day: int) -> list[ExperimentNote]:
    """Why the log allows no verdict after `day` days."""
    sums, reasons = sums.people or sums, []
    if days := _unrecorded(sums, experiment, day):
        reasons.append(NoteKind.DAYS_WITHOUT_ROWS(days=days))
    if sums.daily and _outcomes_only(sums, experiment, day):
        share = percent(_filled(sums, day))
        reasons.append(NoteKind.ONLY_OUTCOMES(metric=experiment.meta.metric, share=share))
    return reasons


def log_notes(sums: DailySums, experiment: Experiment, day: int, money: str | None) -> list[ExperimentNote]:
    """What a reader should know about the log.

    Args:
        sums: of the log.
        experiment: the test.
        day: of the look, 1 … the planned days.
        money: the metric that is money, if the log has one.
    """
    sums, notes = sums.people or sums, []
    if days := _unrecorded(sums, experiment, day):
        notes.append(NoteKind.UNRECORDED(days=days))
    *before, last = sums.rows[:day]
    if sums.daily and before and 0 < last < THIN * median(before):
        date = str(experiment.date(day - 1))
        notes.append(NoteKind.THIN_LAST_DAY(date=date, rows=last, median=median(before)))
    if not sums.daily and _outcomes_only(sums, experiment, day):
        notes.append(NoteKind.NO_ZEROS(metric=experiment.meta.metric))
    if money is not None and sums.least[money] < 0:
        notes.append(NoteKind.NEGATIVE_MONEY(money=money, least=sums.least[money]))
    return notes


def _unrecorded(sums: DailySums, experiment: Experiment, day: int) -> str:
    """The days up to the look on which the log has no row, in words; may be empty."""
    empty = [d for d, rows in enumerate(sums.rows[:day]) if sums.daily and rows == 0]
    return spans(empty, lambda d: str(experiment.date(d)))


def _outcomes_only(sums: DailySums, experiment: Experiment, day: int) -> bool:
    """Whether rows without an outcome, and users who have no others, seem to be left out of the log.

    A list of assigned users puts that right.
    """
    least = sums.least.get(experiment.meta.metric, 0.0)
    return not sums.listed and least > 0 and (not sums.daily or _filled(sums, day) < 1)


def _filled(sums: DailySums, day: int) -> float:
    """The share of days with a row, over users and their days in the test."""
    inside = sums.users[:day].sum(axis=(1, 2)).cumsum()
    return float(sums.shown[:day].sum() / max(inside.sum(), 1))


def check_assignment(run: Run, experiment: Experiment) -> list[ExperimentNote]:
    """Compare a sample of users with the arms that the file draws; return notes about who assigned them.

    Reads the view `test_rows` that `read_sums` made.

    Raises:
        LogError: if the file has assigned the users, and some have outcomes from before the ramp let them in, or all
            have none on the day on which it did.
    """
    rows = run('SELECT approx_count_distinct("user") FROM test_rows')[0][0]
    sample = run(
        'SELECT "user", any_value(arm), min(day), min(day) FILTER (NOT marker) FROM test_rows '
        f'WHERE hash("user") % {max(1, rows // SAMPLE)} = 0 GROUP BY "user"'
    )
    if not sample:
        return []
    users, arms, first, came = zip(*sample, strict=True)
    names = [arm.name for arm in experiment.arms]
    drawn, since = entries(experiment, users)
    ours = [d != OUTSIDE and names[d] == arm for d, arm in zip(drawn, arms, strict=True)]
    wrong = len(users) - sum(ours)
    if wrong > (1 - OURS) * len(users):
        return [NoteKind.OTHER_SYSTEM(percent=number(100 * sum(ours) / len(users), 1))]
    own = np.flatnonzero(ours)
    _refuse_early(len(users), [(users[k], first[k], int(since[k])) for k in own])
    _refuse_late([came[k] - since[k] for k in own if came[k] is not None])
    return [NoteKind.FEW_MOVED(count=wrong, sample=len(users), user=users[ours.index(False)])] if wrong else []


def _refuse_early(count: int, own: Sequence[tuple[str, int, int]]) -> None:
    """Check that no user of the sample, with the first day and the day of entry, came before the ramp let them in."""
    early = [each for each in own if each[1] < each[2]]
    if not early:
        return
    user, day, entry = early[0]
    shifted = sum(first == since - 1 for _, first, since in early) >= SHIFTED * len(early)
    raise LogError(
        f"{len(early):,} of {count:,} users in a sample have outcomes from before they were assigned, for example "
        f"user {user!r} on day {day}, whom the ramp lets in on day {entry}"
        f"{f'; nearly all are a day early. {QUESTION}' if shifted else '.'}",
        where="day" if shifted else "arm",
        way_out=_shift("+") if shifted else "Leave the arm empty in rows from before a user was let in.",
    )


def _refuse_late(late: Sequence[int]) -> None:
    """Check that some users of the sample have a row on the day on which the ramp let them in: `late` by 0 days."""
    if 0 not in late and late.count(1) >= ENOUGH:
        raise LogError(
            f"none of {len(late):,} users in a sample has a row on the day on which the ramp lets them in, and "
            f"{late.count(1):,} have their first row on the day after. {QUESTION}",
            where="day",
            way_out=f"{_shift('-')} If nothing happens on such a day, give the users rows of 0.",
        )


def _shift(sign: str) -> str:
    return f'If so, shift them: --column "day=day {sign} 1".'


def late_outcomes(run: Run, columns: ExperimentColumns, experiment: Experiment, campaign: Campaign) -> LateOutcomes:
    """What of a test is ripe.

    Args:
        run: of the DuckDB connection with the view `log_kept`.
        columns: SQL over it.
        experiment: the test.
        campaign: with `[log.delays]` or `log.as_of`.

    Raises:
        CampaignError: if `log.as_of` is no date, or is needed and missing.
        LogError: if no day of the test is ripe.
    """
    meta, delay = experiment.meta, campaign.log.longest_delay
    last, rows = _last_day(run, columns, experiment, campaign), 0
    if columns.day is not None:
        [(rows,)] = run(
            f"SELECT count(*) FROM (SELECT {columns.day} AS day FROM log_kept) "
            f"WHERE day >= 0 AND day < {meta.days} AND day > {last - delay}"
        )
    found = LateOutcomes(delay, meta.start, meta.days, last + 1, int(rows))
    if found.ripe < 1:
        until = experiment.date(last)
        raise LogError(
            f"no day of the test is ripe: outcomes come up to {told_days(delay)} later (log.delays) and were "
            f"collected until {until}.",
            where="log.delays",
            way_out=f"Wait until they have been collected until {found.due(1)} at least.",
        )
    return found


def _last_day(run: Run, columns: ExperimentColumns, experiment: Experiment, campaign: Campaign) -> int:
    """T, counted from the start of the test."""
    as_of, file = campaign.log.as_of, campaign.path
    if isinstance(as_of, datetime.date):
        return (as_of - experiment.meta.start).days
    if as_of is not None:
        way_out = "Leave it out in a copy of the file: then it is the log's last day."
        raise CampaignError(f"is a number, {as_of}; a test has dates.", file=file, where="log.as_of", way_out=way_out)
    if columns.day is None:
        raise CampaignError(
            "is missing, and each row of the log is a whole user: until when were outcomes collected?",
            file=file,
            where="log.as_of",
            way_out="Give the date.",
        )
    [(last,)] = run(f"SELECT max(day) FROM (SELECT {columns.day} AS day FROM log_kept)")
    return -1 if last is None else int(last)


def change_since(sums: DailySums, metric: str, day: int, place: int, confidence: float) -> Change | None:
    """The effect of the arm at `place` in the first week and since; None before two whole weeks are over.

    Args:
        sums: of a log with days.
        metric: of the verdict.
        day: of the look.
        place: of the arm.
        confidence: of the intervals, at a single look.
    """
    last = day // WEEK * WEEK
    if last < 2 * WEEK or metric + SINCE not in sums.names or sums.people is not None:
        return None
    parts = sums.first_week_and_since(metric, last)
    control, arm = parts[0], parts[place]
    early, later = (lift(Metric(metric, metric + when), control, arm, confidence) for when in (FIRST_WEEK, SINCE))
    if not isinstance(early, Lift) or not isinstance(later, Lift):
        return None
    cautious = early.cautious or later.cautious
    z = (later.absolute.value - early.absolute.value) / _error(control, arm, [np.ones(2)] * 2, cautious)
    if early.relative is not None and later.relative is not None:
        on_the_logarithm = math.log1p(later.relative.value) - math.log1p(early.relative.value)
        relative_z = on_the_logarithm / _error(control, arm, [1 / control.mean, 1 / arm.mean], cautious)
        z = min(abs(z), abs(relative_z)) * math.copysign(1, z) if z * relative_z > 0 else 0.0
    return Change(last, control.users + arm.users, early, later, z, float(2 * ndtr(-abs(z))), 1 - confidence)


def _error(control: UserMoments, arm: UserMoments, scales: Sequence[NDArray[np.float64]], cautious: bool) -> float:
    """Standard error of the arm's mean of later − early less the control's, each period times its scale `[2]`.

    If `cautious`, both arms are given the pooled variance, if that is larger (`lift.py`).
    """
    sizes = control.users, arm.users
    signed = [np.array([-1.0, 1.0]) * scale for scale in scales]
    spread = [float(w @ part.covariance @ w) for w, part in zip(signed, (control, arm), strict=True)]
    own = math.sqrt(sum(s / n for s, n in zip(spread, sizes, strict=True)))
    common = math.sqrt(np.average(spread, weights=sizes) * sum(1 / n for n in sizes))
    return max(own, common) if cautious else own


def contradictions(metric: str, decisions: Sequence[PlannedDecision], change: Change | None) -> list[ExperimentNote]:
    """Why a crossed bound should not be acted upon: what it showed did not last. Empty if it did.

    Args:
        metric: of the verdict.
        decisions: the planned ones so far.
        change: the effect in the first week and since.
    """
    first = next((decision for decision in decisions if decision.side), None)
    if first is None:
        return []
    side = first.side
    crossed: dict[str, str | int] = {"metric": metric, "size": words.size(first), "day": first.day}
    against = next((d for d in decisions if d.side == -side), None)
    if against is not None:
        return [NoteKind.OPPOSITE(**crossed, later_size=words.size(against), later=against.day)]
    last = decisions[-1]
    if last.z * side < 0:
        return [NoteKind.TURNED(**crossed, later_size=words.size(last), later=last.day)]
    if change is not None and change.side == -side and change.since.absolute.side != side:
        return [NoteKind.FADED(**crossed, by_week=words.by_week(change))]
    return []
