"""The log as a policy sees it that reads single past days, where the log's own features have none.

    seen = with_lags(data, 7)                               # to learn from: every single value of the last 7 days
    seen = looking_back(data, LagFields.of(data.schema, bundle.campaign, bundle.schema))   # as a bundle reads it
    codes, numbers = seen.features(rows)

The view is the same log: rows, splits and outcomes are those of DATA. `lags` (`core/history.py`) stand after the other
numbers of a row, and its campaign has them under `[log.history]`, so a bundle that is trained on it has them too, and
scoring and serving know what to compute. Distinct states are left out, because lags tell rows apart that are in one.
The past of a row is found by the links when it is needed; nothing of size N × days is ever made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outlay.core.campaign import MOST_LAGS, Campaign, HistorySection
from outlay.core.errors import CampaignError
from outlay.core.history import LAGS, History, PastRows
from outlay.core.schema import Numeric, Schema, scale_of
from outlay.core.transitions import Transitions

SCALED_ROWS = 100_000  # rows that give the scale of the lags, spread over the log


@dataclass(frozen=True)
class LagFields:
    """Numeric fields of past days that follow the fields of a log.

    Attributes:
        history: what they are, with `lags` as the only summary.
        fields: how they are scaled: the last of `history.names`.
    """

    history: History
    fields: tuple[Numeric, ...]

    @classmethod
    def of(cls, logged: Schema, campaign: Campaign, schema: Schema) -> LagFields | None:
        """The fields of a bundle that a log does not have; None where it has them all.

        Args:
            logged: the fields of the log.
            campaign: that of the bundle.
            schema: the fields of the bundle.
        """
        history, further = History.of(campaign), schema.numeric[len(logged.numeric) :]
        if history is None or not further or history.features:
            return None
        single = replace(history, summaries=(LAGS,), single=())
        same = single.names[-len(further) :] == tuple(field.name for field in further)
        return cls(single, further) if same else None

    def values(self, past: PastRows, user: NDArray[np.int64], time: NDArray[np.int64]) -> NDArray[np.float32]:
        """`[B, F]` as `History.summarise` gives them; NaN where unknown."""
        return self.history.summarise(past, user, time)[:, -len(self.fields) :]

    def numbers(self, past: PastRows, user: NDArray[np.int64], time: NDArray[np.int64]) -> NDArray[np.float32]:
        """`[B, 2·F]` scaled values and whether they are missing."""
        found = np.ascontiguousarray(self.values(past, user, time).T)
        table = pa.table({field.name: column for field, column in zip(self.fields, found, strict=True)})
        return Schema((), self.fields).encode(table).numbers


def logged_values(data: Transitions, columns: tuple[str, ...], rows: Any) -> NDArray[np.float32]:
    """`[B, C]` the action, reward or costs that DATA holds of some rows, named as in `History.columns`."""
    names = ("reward", *(budget.name for budget in data.campaign.budgets))
    outcome, action = data.outcome[rows], data.actions[data.action[rows]]
    values = np.empty((len(action), len(columns)), np.float32)
    for c, column in enumerate(columns):
        values[:, c] = action if column == "action" else outcome[:, names.index(column)]
    return values


@dataclass(frozen=True)
class _Lags:
    """The numbers of rows of a log, found by its links; `previous [N]` is the user's row before, −1 for none."""

    data: Transitions
    lags: LagFields
    previous: NDArray[Any]

    def __call__(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """`[B, 2·F]` for rows `[B]`."""
        return self.lags.numbers(*self.past(rows))

    def past(self, rows: NDArray[Any]) -> tuple[PastRows, NDArray[np.int64], NDArray[np.int64]]:
        """The rows before each row, and the rows as users of their own and their times."""
        history = self.lags.history
        before = np.empty((len(rows), history.days), np.int64)
        at = np.asarray(rows, np.int64)
        for place in reversed(range(history.days)):  # so that each row's past ascends
            # Without the mask, row −1 would be taken for the last row of the log.
            before[:, place] = at = np.where(at >= 0, self.previous[at], -1)
        each, place_of = np.nonzero(before >= 0)
        before = before[each, place_of]
        past = PastRows(each, self.data.day[before].astype(np.int64), logged_values(self.data, history.columns, before))
        return past, np.arange(len(rows)), self.data.day[rows].astype(np.int64)


def looking_back(data: Transitions, lags: LagFields | None) -> Transitions:
    """The log with these fields after its own; without any, the log."""
    if lags is None:
        return data
    linked = np.flatnonzero(data.next_row[:] >= 0)
    previous = np.full(len(data), -1, data.next_row.dtype)
    previous[data.next_row[linked]] = linked
    schema = replace(data.schema, numeric=(*data.schema.numeric, *lags.fields))
    return replace(data, schema=schema, further=_Lags(data, lags, previous), state=None, states=None)


def with_lags(data: Transitions, days: int) -> Transitions:
    """The log with every single value of the users' past days among its features; itself, where it has them.

    Args:
        data: the log.
        days: time units looked back, where `[log.history]` does not say it.

    Raises:
        CampaignError: if `[log.history]` summarises columns that DATA does not keep, or more days than are read one by
            one; or a feature of the log has the name of a lag.
    """
    own = History.of(data.campaign)
    if own is not None and own.lags:
        return data
    campaign = _campaign_with_lags(data.campaign, own, days)
    history = History.of(campaign)
    assert history is not None
    names = [name for name in history.names if name not in (own.names if own else ())]
    if twice := set(names) & set(data.schema.names):
        raise CampaignError(
            f"lists {min(twice)!r}, which is the name of a past value.",
            file=data.campaign.path,
            where="log.features",
            way_out="Rename that feature, or leave it out.",
        )
    unscaled = LagFields(
        replace(history, summaries=(LAGS,), single=()), tuple(Numeric(name, 0.0, 1.0) for name in names)
    )
    rows = np.unique(np.linspace(0, len(data) - 1, min(len(data), SCALED_ROWS)).astype(np.int64))
    further = looking_back(data, unscaled).further
    assert isinstance(further, _Lags)
    found = unscaled.values(*further.past(rows))
    known = np.where(np.isfinite(found), found, 0.0).astype(np.float64)
    moments = np.isfinite(found).sum(0), known.sum(0), (known * known).sum(0)
    fields = tuple(Numeric(name, *scale_of(*each)) for name, *each in zip(names, *moments, strict=True))
    return replace(looking_back(data, replace(unscaled, fields=fields)), campaign=campaign)


def _campaign_with_lags(campaign: Campaign, history: History | None, days: int) -> Campaign:
    """The campaign with `lags` among its summaries. Raises CampaignError as `with_lags`."""
    section = campaign.log.history
    if section is None or history is None:
        section = HistorySection(days=days, summaries=(LAGS,))
    elif section.days > MOST_LAGS or history.features:
        found = (
            f"looks back {section.days} days; at most {MOST_LAGS} can be read one by one"
            if not history.features
            else f"summarises {history.features[0]!r}, which DATA does not keep as it was logged"
        )
        raise CampaignError(
            f"{found}.",
            file=campaign.path,
            where="log.history",
            way_out=f'Add "{LAGS}" to its summaries, with days = {MOST_LAGS} or fewer, and prepare the log again.',
        )
    else:
        section = section.model_copy(update={"summaries": (*section.summaries, LAGS), "recorded": False})
    return campaign.model_copy(update={"log": campaign.log.model_copy(update={"history": section})})
