"""The yardstick without states: the best mixture of constant actions under the limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.transitions import CERTIFY, SELECT
from outlay.estimators.certificate import expected_se, margins
from outlay.estimators.units import coordinates, objective
from outlay.jobs.measure import Measure
from outlay.ops.intervals import std_error
from outlay.ops.mixture_lp import solve_mixture


def best_constants(at: Measure, campaign: Campaign) -> tuple[list[int], NDArray[np.float64]] | None:
    """Action indices and their weights, chosen on *select* users with the margin that a mixture is chosen with.

    None where a constant action is not allowed everywhere, or nothing can be measured.
    """
    data = at.data
    if data.eligible is not None:
        return None
    needed = [int(goal.partition("@")[2])] if "@" in (goal := objective(campaign)) else []
    fits = replace(at, split=SELECT).constants(range(data.num_actions), needed)
    parts = [coordinates(fitted, campaign) for fitted in fits]
    usable = [a for a, (x, _, _) in enumerate(parts) if np.isfinite(x).all()]
    if not usable:
        return None
    users = (len(fits[0].influence), len(data.users_of(CERTIFY)))
    train = campaign.train
    cautious = []
    for a in usable:
        error = std_error(parts[a][1])[1:]
        extra = margins(error, expected_se(error, *users), confidence=train.confidence, margin=train.margin)
        cautious.append(parts[a][0] + np.append(0.0, extra))
    limits = parts[0][2]
    weights = solve_mixture(np.array(cautious), limits, np.where(limits == 0, 1.0, np.abs(limits))).weights
    return [a for a, weight in zip(usable, weights, strict=True) if weight > 0], weights[weights > 0]


def in_words(at: Measure, chosen: list[int], weights: NDArray[np.float64]) -> str:
    """`1.5 for 40% of users, 2 for 60% of users`."""
    actions = at.data.actions
    return ", ".join(f"{actions[a]:g} for {w:.0%} of users" for a, w in zip(chosen, weights, strict=True))
