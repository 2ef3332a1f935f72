"""Summaries of each user's past days: features that `[log.history]` adds to the state.

    history = History.of(campaign)                    # None where the campaign file asks for none
    history.summarise(past, user, time)               # [B, F] float32, NaN where there is no past

The past of a user on a day are the user's rows of the `days` time units before that day; the day itself is never part
of it. With w = 2^(−(lag − 1) / (days / 4)) for a row `lag` time units ago, each column v of the past becomes

    mean      Σ v / n                      sum      Σ v
    decayed   Σ w v / Σ w                  count    number of rows with v ≠ 0
    last      v of the latest row          since    lag of the latest row with v ≠ 0; days + 1 if there is none
    lags      v of 1, 2, … `days` time units ago, a feature each; missing where there is no such row

`features = ["sum(spend) over 28 days", "since(action) over 7 days"]` lists single summaries, each with days of its own;
else every column is summarised in every way over the same days.

The value of a column with a delay of d time units (`[log.delays]`) is only known when lag > d. Before, it is unknown,
and left out, even if the log has its final value: on the day of the decision it could still have changed.

For the action, v ≠ 0 means that it differs from "no incentive" (`campaign.none`). `history_days` says how many rows
there are. Values enter as float32, are added latest first in float64, and leave as float32: preparing, scoring and
serving call this one function, so they get the same bits.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.machine import processors

ROWS = "history_days"  # the feature that counts the past rows
LAGS: Literal["lags"] = "lags"  # the summary that is every single value
HALF_LIVES = 4  # in the days looked back
CELLS = 125_000  # values of past days that are summarised at a time: about what stays near the processor


class PastRows(NamedTuple):
    """Rows of the past, ordered by user and time, at most one per user and time.

    Attributes:
        user: `[M]` int64, ascending.
        time: `[M]` int64, ascending within a user.
        values: `[M, C]` float32, the columns of `History.columns`; NaN where unknown.
    """

    user: NDArray[np.int64]
    time: NDArray[np.int64]
    values: NDArray[np.float32]

    @classmethod
    def sorted(cls, user: NDArray[Any], time: NDArray[Any], values: NDArray[np.float32]) -> PastRows:
        """Order rows by user and time."""
        user, time = np.asarray(user, np.int64), np.asarray(time, np.int64)
        step = np.diff(user)
        if not np.all((step > 0) | ((step == 0) & (np.diff(time) > 0))):
            order = np.lexsort((time, user))
            user, time, values = user[order], time[order], values[order]
        return cls(user, time, values)

    def before(self, user: NDArray[np.int64], time: NDArray[np.int64]) -> NDArray[np.int64]:
        """`[B]` how many rows stand before the day `time` of `user`; those of the user are the last among them."""
        if not len(self.time):
            return np.zeros(len(user), np.int64)
        least = int(self.time.min())
        span = int(self.time.max()) - least + 2
        keys = self.user * span + (self.time - least)
        return np.searchsorted(keys, user * span + np.clip(time - least, 0, span - 1))


@dataclass(frozen=True)
class History:
    """What is summarised, and how.

    Attributes:
        days: time units looked back at most.
        single: (summary, column, days) of each feature; empty: each of `summaries` of each column.
        columns: `action`, `reward`, names of budgets (their costs), or columns and SQL expressions of the log.
        summaries: of each column, in this order; `lags` come after all others.
        none: the action that means "no incentive".
        complete: whether a day without a row counts as a day without an incentive, reward and cost.
        features: those of `columns` that are neither the action nor an outcome; unknown on a day without a row.
        delays: `[C]` time units after its own in which the value of a column can still change; empty: none can.
    """

    days: int
    columns: tuple[str, ...]
    summaries: tuple[str, ...]
    none: float
    complete: bool
    features: tuple[str, ...] = ()
    delays: tuple[int, ...] = ()
    single: tuple[tuple[str, str, int], ...] = ()

    @classmethod
    def of(cls, campaign: Campaign) -> History | None:
        """The summaries that a campaign file asks for, or None."""
        section = campaign.log.history
        if section is None:
            return None
        own = ("action", "reward", *(budget.name for budget in campaign.budgets))
        delays = campaign.log.delays
        known = own if campaign.names.amounts else own[1:]  # names of actions are nothing to add up
        columns = section.columns or tuple(column for column in known if delays.get(column, 0) < section.days)
        none, complete = campaign.none or 0.0, bool(campaign.log.complete)
        features = tuple(column for column in columns if column not in own)
        late = tuple(delays.get(column, 0) for column in columns) if delays else ()
        return cls(section.days, columns, section.summaries, none, complete, features, late, section.single)

    @property
    def names(self) -> tuple[str, ...]:
        """`[F]` names of the features."""
        told = (f"{column}_{summary}_{days}d" for summary, column, days in self._scalar)
        return (ROWS, *told, *(name for names in self.lags for name in names))

    @property
    def lags(self) -> tuple[tuple[str, ...], ...]:
        """`[days][C]` names of the features that are values of single past days, of yesterday first; or none."""
        if LAGS not in self.summaries:
            return ()
        return tuple(tuple(f"{column}_lag{lag}" for column in self.columns) for lag in range(1, self.days + 1))

    @property
    def _scalar(self) -> tuple[tuple[str, str, int], ...]:
        """The summaries that are one feature each: (summary, column, days)."""
        grid = ((s, c, self.days) for c in self.columns for s in self.summaries if s != LAGS)
        return self.single or tuple(grid)

    def summarise(self, past: PastRows, user: NDArray[Any], time: NDArray[Any]) -> NDArray[np.float32]:
        """`[B, F]` the features of users on days; NaN where a user has no past.

        Args:
            past: rows of these users, at least those of the `days` before; later ones are left out.
            user: `[B]` as in `past`.
            time: `[B]`.
        """
        user, time = np.asarray(user, np.int64), np.asarray(time, np.int64)
        position = past.before(user, time)
        step = max(1, CELLS // (self.days * len(self.columns)))
        starts = range(0, max(len(user), 1), step)
        parts = [slice(start, start + step) for start in starts]

        def summarised(each: slice) -> NDArray[np.float32]:
            return self._summarised(past, user[each], time[each], position[each])

        if len(parts) == 1:  # a few users, as in a server: threads would cost more than they save
            return summarised(parts[0])
        with ThreadPoolExecutor(processors()) as pool:  # most of the time goes into arrays, during which others run
            return np.concatenate(list(pool.map(summarised, parts)))

    def _summarised(
        self, past: PastRows, user: NDArray[np.int64], time: NDArray[np.int64], position: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """`[B, F]` the same for few users; `position` is where the day of each would stand in `past`."""
        at = position - np.arange(1, self.days + 1)[:, None]  # [L, B], latest first; sums over L are then along memory
        inside, lag, value = at >= 0, np.zeros_like(at), np.full((*at.shape, len(self.columns)), np.nan)
        if len(past.user):
            at = np.maximum(at, 0)
            inside &= (past.user[at] == user) & (past.time[at] >= time - self.days)
            lag = np.where(inside, time - past.time[at], 0)
            value = past.values[at].astype(np.float64)
        known = inside[:, :, None] & ~np.isnan(value)
        if self.delays:
            known &= lag[:, :, None] > np.array(self.delays)
        value = np.where(known, value, 0.0)
        parts = [inside.sum(axis=0)[:, None]]
        if self._scalar:
            parts.append(self._told(known, value, lag))
        if LAGS in self.summaries:
            single = np.full((len(user), self.days, len(self.columns)), np.nan)
            place, row = np.nonzero(inside)
            single[row, lag[place, row] - 1] = np.where(known, value, np.nan)[place, row]
            parts.append(single.reshape(len(user), -1))
        return np.hstack(parts).astype(np.float32)

    def _told(
        self, known: NDArray[np.bool_], value: NDArray[np.float64], lag: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """`[B, F]` the summaries that are one feature each.

        Args:
            known: `[L, B, C]` which values are known.
            value: `[L, B, C]`; 0 where unknown.
            lag: `[L, B]` days ago.
        """
        told = self._scalar
        spans: dict[int, dict[str, NDArray[np.float64]]] = {}
        for days in dict.fromkeys(days for _, _, days in told):
            near = known if days == self.days else known & (lag <= days)[:, :, None]
            spans[days] = self._summaries(near, value if days == self.days else np.where(near, value, 0.0), lag, days)
        return np.stack([spans[days][summary][:, self.columns.index(column)] for summary, column, days in told], axis=1)

    def _summaries(
        self, known: NDArray[np.bool_], value: NDArray[np.float64], lag: NDArray[np.int64], days: int
    ) -> dict[str, NDArray[np.float64]]:
        """Name → `[B, C]` every summary of every column, over so many days; NaN where nothing is known."""
        nothing = np.array([self.none if column == "action" else 0.0 for column in self.columns], np.float32)
        decay = 2.0 ** (-(np.arange(self.days + 1) - 1) * HALF_LIVES / days)
        weight = np.where(known, decay[lag][:, :, None], 0.0)
        different = known & (value != nothing)
        present, nonzero = known.sum(axis=0), different.sum(axis=0)
        total, weights = _added(value), _added(weight)
        latest = np.take_along_axis(value, known.argmax(axis=0)[None], axis=0)[0]
        since = np.where(nonzero > 0, lag[different.argmax(axis=0), np.arange(lag.shape[1])[:, None]], days + 1)
        with np.errstate(invalid="ignore"):
            found = {
                "mean": total / present,
                "sum": total,
                "decayed": _added(weight * value) / weights,
                "count": nonzero,
                "last": latest,
                "since": since,
            }
        return {name: np.where(present > 0, each, np.nan) for name, each in found.items()}

    def completed(self, past: PastRows, until: int) -> PastRows:
        """Rows for the days without one, up to the day before `until`, where such days are information.

        Args:
            past: every row that the users have, or at least those of the last `days` time units before `until` and
                one earlier row of each user who has any.
            until: the latest day that will be asked about.
        """
        if not self.complete or not len(past.user):
            return past
        starts = np.flatnonzero(np.diff(past.user, prepend=past.user[0] - 1))
        ends = np.append(starts[1:], len(past.user)) - 1
        begin = past.time[starts]
        lengths = np.maximum(until, past.time[ends] + 1) - begin
        offset = np.cumsum(lengths) - lengths
        time = np.arange(lengths.sum()) - np.repeat(offset - begin, lengths)
        values = np.tile(np.array([self._absent(column) for column in self.columns], np.float32), (len(time), 1))
        each = np.repeat(np.arange(len(starts)), ends - starts + 1)
        values[offset[each] + past.time - begin[each]] = past.values
        return PastRows(np.repeat(past.user[starts], lengths), time, values)

    def _absent(self, column: str) -> float:
        """The value of a column on a day without a row."""
        if column in self.features:
            return np.nan
        return self.none if column == "action" else 0.0


def _added(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """`[B, C]` sums over the first axis of `[L, B, C]`, one after the other from the first; never −0."""
    sums: NDArray[np.float64] = np.add.accumulate(values, axis=0)[-1] + 0.0
    return sums
