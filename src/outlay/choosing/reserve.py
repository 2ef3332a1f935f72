"""What has to be set aside when an action is given: the money budget's `reserve`, or the largest cost seen for it."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outlay.core.campaign import Budget, Campaign
from outlay.core.errors import CampaignError
from outlay.core.transitions import Transitions
from outlay.logs.source import lock


def reserves(data: Transitions, campaign: Campaign) -> NDArray[np.float64]:
    """`[K]` in money.

    Raises:
        CampaignError: if the expression cannot be told from the action alone.
    """
    budget = campaign.budgets[campaign.money]
    if budget.reserve is not None:
        return _evaluated(budget, campaign, data.actions)
    largest = np.zeros(data.num_actions, np.float32)
    np.maximum.at(largest, np.asarray(data.action, np.intp), data.outcome[:, 1 + campaign.money])
    # As the log writes them, not as float32 holds them: 0.1 is not 0.100000001, of which a server sets aside 0.11.
    return np.array([float(str(amount)) for amount in largest])


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
        return None if budget.reserve is None else _evaluated(budget, campaign, data.actions)
    except CampaignError:
        return None


def _evaluated(budget: Budget, campaign: Campaign, actions: NDArray[np.float64]) -> NDArray[np.float64]:
    """`[K]` the reserve of each action, an SQL expression over the action column."""
    expression = budget.reserve
    connection = duckdb.connect()
    connection.register("actions", pa.table({campaign.action_label: actions}))
    lock(connection)
    try:
        (column,) = connection.execute(f"select ({expression})::double from actions").fetchnumpy().values()
    except duckdb.Error as error:
        raise CampaignError(
            f"{expression!r} cannot be evaluated for an action alone: {str(error).splitlines()[0]}",
            file=campaign.path,
            where=f"budget {budget.name}, reserve",
            way_out=f"Let it depend on {campaign.action_label} only, or leave it out.",
        ) from None
    return np.asarray(column, np.float64)
