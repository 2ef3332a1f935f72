"""What has to be set aside when an action is given: the money budget's `reserve`, or the largest cost seen for it.

What `reserve` states may not be less than a row has cost (`check_stated`); and where it states nothing, an action that
never cost anything has no price (`unpriced_of`). The rules are in `core/reserves.py`.
"""

from __future__ import annotations

from contextlib import closing
from functools import lru_cache

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outlay.core.actions import Given, all_named
from outlay.core.campaign import Budget, Campaign
from outlay.core.errors import CampaignError
from outlay.core.reserves import TOO_LOW, WAY_OUT, too_low, unpriced, unpriced_words
from outlay.core.transitions import Transitions
from outlay.logs.source import lock


def reserves(data: Transitions, campaign: Campaign) -> NDArray[np.float64]:
    """`[K]` in money.

    Raises:
        CampaignError: if the expression cannot be told from the action alone.
    """
    budget = campaign.budgets[campaign.money]
    if budget.stated:
        return _stated(budget, campaign, data.actions)
    return largest_costs(data, campaign)


def largest_costs(data: Transitions, campaign: Campaign) -> NDArray[np.float64]:
    """`[K]` the largest cost of a row with each action, in money; 0 where none cost anything."""
    largest = np.zeros(data.num_actions, np.float32)
    np.maximum.at(largest, np.asarray(data.action, np.intp), data.outcome[:, 1 + campaign.money])
    # As the log writes them, not as float32 holds them: 0.1 is not 0.100000001, of which a server sets aside 0.11.
    return np.array([float(str(amount)) for amount in largest])


def check_stated(data: Transitions, campaign: Campaign) -> None:
    """Raise CampaignError if less is stated for an action than a row of the log has cost with it."""
    budget, amounts = campaign.budgets[campaign.money], stated_reserves(data, campaign, campaign.money)
    if amounts is None:
        return
    low = too_low(
        data.actions.tolist(), amounts.tolist(), largest_costs(data, campaign).tolist(), _none(campaign), campaign.names
    )
    if low is not None:
        raise CampaignError(low.words, file=campaign.path, where=f"budget {budget.name}.reserve", way_out=TOO_LOW)


def unpriced_of(data: Transitions, campaign: Campaign) -> list[Given]:
    """Return the actions for which nothing would be set aside, since nothing says what they cost."""
    if campaign.budgets[campaign.money].stated:
        return []
    free = unpriced(data.actions.tolist(), largest_costs(data, campaign).tolist(), _none(campaign))
    return [campaign.given(action) for action in free]


def usable_reserves(data: Transitions, campaign: Campaign) -> NDArray[np.float64]:
    """`[K]` in money, for what has to hold on the worst day. Raises CampaignError as `reserves`, or if it could not."""
    check_stated(data, campaign)
    if free := unpriced_of(data, campaign):
        where = f"budget {campaign.budgets[campaign.money].name}.reserve"
        raise CampaignError(unpriced_words(free), file=campaign.path, where=where, way_out=WAY_OUT)
    return reserves(data, campaign)


def known_reserves(data: Transitions, campaign: Campaign) -> NDArray[np.float64] | None:
    """The same for a bundle; None where the expression asks for more than the action: then serve.toml has to say it."""
    try:
        return reserves(data, campaign)
    except CampaignError:
        return None


def stated_reserves(data: Transitions, campaign: Campaign, place: int) -> NDArray[np.float64] | None:
    """`[K]` what a budget states as the largest cost of each action; None where it does not, or not by action alone."""
    budget = campaign.budgets[place]
    try:
        return _stated(budget, campaign, data.actions) if budget.stated else None
    except CampaignError:
        return None


def _stated(budget: Budget, campaign: Campaign, actions: NDArray[np.float64]) -> NDArray[np.float64]:
    """`[K]` the reserve of each action, an SQL expression over the action column; or what a table says it costs."""
    expression = budget.cost if budget.reserve is None else budget.reserve
    given = [campaign.given(action) for action in actions.tolist()]
    if isinstance(expression, dict):
        table = campaign.names.numbered(expression)
        return np.array([table.get(action, 0.0) for action in actions.tolist()])
    edges = (
        campaign.log.bins if isinstance(campaign.log.bins, tuple) else ()
    )  # a bin costs what its largest amount does
    largest = [next((edge for edge in edges if edge > each != campaign.none), each) for each in actions.tolist()]
    column = [campaign.names.logged(each) for each in largest]
    given_as = pa.array(column)
    try:
        rows = _evaluated(expression, campaign.action_label, given_as.type, tuple(given_as.to_pylist()))
    except duckdb.Error as error:
        raise CampaignError(
            f"{expression!r} cannot be evaluated for an action alone: {str(error).splitlines()[0]}",
            file=campaign.path,
            where=f"budget {budget.name}, reserve",
            way_out=f"Let it depend on {campaign.action_label} only, or leave it out.",
        ) from None
    amounts = np.array(rows, np.float64)[:, 0]  # NULL is NaN
    if len(amounts) != len(actions) or not np.isfinite(amounts).all():
        raise CampaignError(
            f"{expression!r} has no value for one of the actions {all_named(given)}.",
            file=campaign.path,
            where=f"budget {budget.name}, reserve",
            way_out="Let it give an amount for every action.",
        )
    return amounts


@lru_cache(maxsize=64)  # each fold and budget asks again, and opening a connection takes 27 ms
def _evaluated(expression: str, label: str, kind: pa.DataType, column: tuple[object, ...]) -> tuple[object, ...]:
    """The value of an expression for each action, given as a column of this type. Raises duckdb.Error."""
    with closing(duckdb.connect()) as connection:
        connection.register("actions", pa.table({label: pa.array(column, kind)}))
        lock(connection)
        return tuple(connection.execute(f"select ({expression})::double from actions").fetchall())


def _none(campaign: Campaign) -> float:
    return campaign.none or 0.0
