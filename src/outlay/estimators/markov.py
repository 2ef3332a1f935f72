"""Is the state enough? A test of the Markov property on the rows of a log.

If the state says all that matters, then given a row's state and action the user's earlier days predict neither the
row's outcomes nor the next state. For every outcome y and every summary v of the days before (the last of them, and the
mean over all of them, of the action, whether an incentive was given, the reward and each cost):

    r_y, r_v    residuals of y and v on g(state, action) and the calendar day, found from other users, and the two g
                from different ones (`state_residuals.py`)
    S_u         Σ r_y r_v over the rows of user u
    z           Σ S_u / √(Σ S_u²)                      errors by user, since a user's rows are not independent
    ρ           Σ S_u / √(Σ r_y² Σ r_v²)               how much: a partial correlation

The next state enters by the outcomes of the next row. Where states are counted, g is a cell for each state and
action; otherwise columns of the state, bent, multiplied by one another and by the amount, and for y also a curve in
what they say. What g misses can look like memory, so dependence counts only if it is beyond chance *and* not
negligible.

The calendar day is taken out because a shock that all users share is not memory.

When a user joined is tried as well, as the first day and as whether it was the log's first, each also times the amount.
Means over a user's days take what users did who have been in the log for long for what others would do who joined late
(`sequential.py`), which is right only if, given the state, it does not matter when somebody joined.

Source: Shi, Wan, Song, Lu and Leng (2020) for testing the Markov property of a decision process; Frisch and Waugh
(1933) for residuals; the summaries and the limits: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.panel import Index, Panel
from outlay.estimators.row_features import Block, before
from outlay.estimators.state_residuals import off_state_unseen
from outlay.ops.intervals import BY_CHANCE

Array = NDArray[np.float64]
NEGLIGIBLE = 0.02  # partial correlation: what g misses of a state of 20 features can look like up to 0.018
MOST_ROWS = 150_000  # tested: standard errors of ρ are then 0.003
FEWEST_USERS = 100  # with a day before: below, errors by user are not to be trusted
ADD_HISTORY = (
    "Add [log.history] to the campaign file, which makes summaries of each user's past days part of the state, and "
    "prepare and train again. outlay check tells whether any number of days is enough, and how many"
)
ADD_JOINING = (
    "Add to [log.features] what tells users who joined late from others, such as the days since they joined, and "
    "prepare and train again"
)
JOINED = "joined"  # as a lag
LONGER_HISTORY = (
    "Look back further, or summarise more columns, under [log.history]; where the log is too short for that, give a "
    "longer log, or features that tell users apart"
)


@dataclass(frozen=True, slots=True)
class PastDependence:
    """How the past of a row still predicts what the state and the action should say alone.

    Attributes:
        outcome: what is predicted: `reward`, a budget, or `next reward` for that of the next row.
        past: by what: `action`, `incentive` (whether one was given), `reward` or a budget; of when a user joined:
            `day` or `late`, each also `… by action`.
        lag: `last day`, `all days before` or `joined`.
        correlation: ρ.
        std_error: of ρ, by cluster.
    """

    outcome: str
    past: str
    lag: str
    correlation: float
    std_error: float

    @property
    def z(self) -> float:
        """ρ in standard errors."""
        return self.correlation / self.std_error if self.std_error > 0 else 0.0

    @property
    def matters(self) -> bool:
        """Return whether it is beyond chance and not negligible."""
        return abs(self.z) > BY_CHANCE and abs(self.correlation) > NEGLIGIBLE

    @property
    def source(self) -> str:
        """What predicts, in words."""
        if self.lag == JOINED:
            return "when a user joined"
        return f"{self.past} on the {'day' if self.lag == 'last day' else 'days'} before"

    @property
    def size(self) -> dict[str, float]:
        """ρ and its error, as figures of a reason."""
        return {"correlation": float(self.correlation), "error": float(self.std_error)}


def strongest_first(found: Sequence[PastDependence]) -> tuple[PastDependence, ...]:
    """Return dependences in order: those that matter, then the others, each by |z|."""
    return tuple(sorted(found, key=lambda each: (not each.matters, -abs(each.z))))


@dataclass(frozen=True, slots=True)
class MarkovCheck:
    """Whether the state is enough.

    Attributes:
        finding: `ENOUGH`, `SHORT`, each with the strongest dependence, or `NOT_TESTED`.
        way_out: what to do where it is not enough.
        dependences: all that were tested, those that matter first; empty where users have too few days.
        ok: whether nothing speaks against it; None where it could not be tested.
        words: what was found, without a full stop.
    """

    finding: Reason
    way_out: str
    dependences: tuple[PastDependence, ...]
    ok: bool | None = field(init=False)
    words: str = field(init=False)

    def __post_init__(self) -> None:
        tested = self.finding.kind not in (ReasonKind.NOT_TESTED, ReasonKind.ONE_ROW)
        object.__setattr__(self, "ok", self.finding.kind is ReasonKind.ENOUGH if tested else None)
        object.__setattr__(self, "words", self.finding.words)

    @classmethod
    def of(cls, dependences: Sequence[PastDependence], history: bool, once: bool = False) -> MarkovCheck:
        """Judge what was found; `history`: the state has summaries of the past; `once`: each user has one row."""
        way_out = LONGER_HISTORY if history else ADD_HISTORY
        if not dependences:
            return cls(Reason(ReasonKind.ONE_ROW if once else ReasonKind.NOT_TESTED), way_out, ())
        ordered = strongest_first(dependences)
        worst = ordered[0]
        if not worst.matters:
            return cls(Reason(ReasonKind.ENOUGH, worst.size), way_out, ordered)
        what = worst.outcome.removeprefix("next ")
        what = f"the next day's {what}" if worst.outcome != what else what
        finding = Reason(ReasonKind.SHORT, {"source": worst.source, "outcome": what, **worst.size})
        return cls(finding, ADD_JOINING if worst.lag == JOINED else way_out, ordered)

    @property
    def refused(self) -> Reason | None:
        """Why nothing is certified, or None."""
        if self.ok is not False:
            return None
        return Reason(ReasonKind.STATE, {"found": self.finding, "way_out": self.way_out})


def markov_check(panel: Panel, time: NDArray[np.int64], columns: Sequence[Block] | None) -> MarkovCheck:
    """Test whether the days before predict outcomes and next state, given state and action.

    Args:
        panel: the rows.
        time: `[n]` calendar day of each row.
        columns: `[n, d]` blocks of columns of the state; the first is also multiplied by the amount. None where
            states are counted.
    """
    history = panel.data.campaign.log.history is not None
    rows = rows_with_a_past(panel)
    unit = panel.user if panel.clusters is None else panel.clusters.index[panel.user]
    names, past = past_of(panel)
    joined, when = joined_of(panel, time)
    names, past = [*names, *joined], np.hstack([past, when])
    goes_on = rows[panel.following[rows] >= 0]
    found: list[PastDependence] = []
    for prefix, at, told in (("", rows, rows), ("next ", goes_on, panel.following[goes_on])):
        if too_few(panel.user[at], unit[at]):
            continue
        r_y, r_v = off_state_unseen(panel, at, columns, [panel.outcome[told], past[at]], time[at], acted=True)
        found += dependences(r_y, r_v, unit[at], [prefix + name for name in panel.names], names)
    return MarkovCheck.of(found, history, bool(panel.data.campaign.log.once))


def too_few(user: Index, unit: Index) -> bool:
    """Whether nothing could be found in rows of these users, whose errors are by `unit`: |z| is at most √units."""
    return len(np.unique(user)) < FEWEST_USERS or len(np.unique(unit)) <= BY_CHANCE**2


def rows_with_a_past(panel: Panel) -> Index:
    """Rows with a choice and a day before, at most `MOST_ROWS`, of users spread evenly."""
    earlier = before(panel, np.ones((len(panel), 1)), total=True)[:, 0]
    rows = np.flatnonzero((earlier > 0) & ~panel.forced)
    if len(rows) > MOST_ROWS:
        users = np.unique(panel.user[rows])
        kept = users[np.linspace(0, len(users) - 1, int(len(users) * MOST_ROWS / len(rows))).astype(np.int64)]
        rows = rows[np.isin(panel.user[rows], kept)]
    return rows


def past_of(panel: Panel) -> tuple[list[tuple[str, str]], Array]:
    """What of the past is tried, as (what, lag), and its columns."""
    amount = panel.data.actions[panel.action]
    was = np.column_stack([amount, amount > panel.data.actions.min(), panel.outcome])
    what = ["action", "incentive", *panel.names]
    names = [(name, lag) for lag in ("all days before", "last day") for name in what]
    return names, before(panel, was)


def joined_of(panel: Panel, time: NDArray[np.int64]) -> tuple[list[tuple[str, str]], Array]:
    """When users joined, as (what, lag), and its columns; nothing where all did on the same day."""
    day = (time - panel.day).astype(np.float64)
    if len(day) == 0 or day.min() == day.max():
        return [], np.empty((len(panel), 0))
    amount = panel.data.actions[panel.action]
    when = np.column_stack([day, day > day.min()])
    when -= when.mean(axis=0)
    names = [(name, JOINED) for name in ("day", "late", "day by action", "late by action")]
    return names, np.hstack([when, when * (amount - amount.mean())[:, None]])


def dependences(
    r_y: Array, r_v: Array, unit: Index, outcomes: Sequence[str], past: Sequence[tuple[str, str]]
) -> list[PastDependence]:
    """ρ of every outcome `[r, q]` and summary of the past `[r, v]`, both residuals, with errors by `unit` `[r]`."""
    found = []
    _, unit = np.unique(unit, return_inverse=True)
    for j, outcome in enumerate(outcomes):
        for v, (name, lag) in enumerate(past):
            size = float(np.sqrt((r_y[:, j] ** 2).sum() * (r_v[:, v] ** 2).sum()))
            if size < 1e-9 * len(r_y):
                continue  # one of them is known from the state
            score = np.bincount(unit, r_y[:, j] * r_v[:, v])
            found.append(
                PastDependence(outcome, name, lag, float(score.sum() / size), float(np.sqrt((score**2).sum()) / size))
            )
    return found
