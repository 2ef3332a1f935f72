"""The classic way: predict what each incentive brings within k days, then price the cost.

    π_λ(s) = argmax_a  ŷ_r(s, a) − λᵀ ŷ_c(s, a)         ŷ: k-day totals by a response model, λ ≥ 0

One network, and a policy for every λ. The λ are taken from the predictions themselves (the prices at which actions
change places), every policy is measured on the *select* users as it would be served, and the linear program mixes the
best of them under the campaign's limits. So the baseline is priced in every state and held to the same budget, in the
same unit, as the methods that look ahead.

A k-day label says what an incentive brings if the log's own policy goes on the day after: that is its limit.

Source: the paper's classic methods (WSDM'23, sections 2 and 6); the pricing in every state is ours.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.candidates import CandidatePolicy, RunContext
from outlay.choosing.choose import choose
from outlay.core.campaign import Campaign
from outlay.core.looking_back import with_lags
from outlay.core.progress import Progress, within
from outlay.core.transitions import LEARN, SELECT, Transitions
from outlay.learning.heads import critic_coordinates
from outlay.response.answers import Response, arrays
from outlay.response.labels import Calibration, calibrate, k_day_labels
from outlay.response.model import Kind, fit
from outlay.training.log_game import spread_rows
from outlay.training.record import Learned, TrainingFigures, course_of

POLICIES = 48  # about so many λ are tried; each is measured by a fitted evaluation
ROUNDING = 1e-6  # of the largest cost: actions whose costs differ by less cost the same
DAYS_BACK = 7  # that DIN reads, where [log.history] does not say it
SAMPLE_ROWS = 4_000  # on which prices are found and policies compared

Floats = NDArray[np.float64]


class FittedPolicies(NamedTuple):
    """A response model and its λ-policies, not yet measured.

    Attributes:
        context: what the policies share.
        model: of k-day labels.
        rows: of the *learn* users, which it was trained on.
        policies: with rising λ; the first has no price.
        seconds: of all this.
    """

    context: RunContext
    model: Response
    rows: int
    policies: list[CandidatePolicy]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TwoStageFigures(TrainingFigures):
    """What the manifest says of a response model.

    Attributes:
        response: which.
        label_days: that its labels look ahead.
        calibration: of each head, predicted against observed on select users.
    """

    response: Kind
    label_days: int
    calibration: dict[str, Calibration]

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        tables = [{"head": name, **_plain(asdict(table))} for name, table in self.calibration.items()]
        return {**super().to_dict(), "calibration": tables}


def learn(
    data: Transitions,
    campaign: Campaign,
    response: Kind,
    label_days: int,
    seed: int,
    folder: Path,
    report: Progress,
) -> Learned:
    """Fit a response model, and choose among its λ-policies.

    Raises:
        LogError: if no row has so many days of log after it.
        InfeasibleError: if no mixture of its policies keeps the limits.
    """
    began = time.perf_counter()
    fitted = fit_policies(data, campaign, response, label_days, seed, folder, within(report, 0, 0.7))
    context, model, seen = fitted.context, fitted.model, fitted.context.seen
    report(0.7, "calibration")
    calibration = _calibration(seen, model, label_days)
    report(0.75, "measuring its policies")
    chosen = choose(context, fitted.policies)
    multipliers = [policy.multiplier for policy in fitted.policies]
    figures = TwoStageFigures(
        steps=0,
        seconds=time.perf_counter() - began,
        parameters=model.num_parameters,
        multiplier_max=np.max(multipliers, axis=0).tolist(),
        multiplier_mean=np.mean(multipliers, axis=0).tolist(),
        candidates_measured_by="a fitted evaluation on the select users",
        response=response,
        label_days=label_days,
        calibration=calibration,
    )
    notes = [
        f"The response model predicts what follows within {label_days} day{'s' * (label_days > 1)} of an incentive if "
        "the log's own policy goes on after that day. It was trained on "
        f"{fitted.rows:,} rows that have {label_days} day{'s' * (label_days > 1)} of log."
    ]
    if seen is not data:
        notes.append(
            "DIN reads each user's past days, which are no part of the log's state, so its figures are those of "
            "decisions on the past days that the log's own policy left behind. List lags under [log.history] to make "
            "them a part of the state."
        )
    teacher = f"{response}, {label_days}-day labels"
    return Learned(context, chosen, course_of(chosen, campaign, model.num_parameters), figures, teacher, notes)


def fit_policies(
    data: Transitions, campaign: Campaign, response: Kind, label_days: int, seed: int, folder: Path, report: Progress
) -> FittedPolicies:
    """Fit a response model on *learn* users and price it. DIN reads every single value of the past days.

    Raises:
        LogError: if no row has so many days of log after it.
    """
    began = time.perf_counter()
    seen = with_lags(data, DAYS_BACK) if response == "din" else data
    rows, label = k_day_labels(seen, label_days, seen.rows_of(LEARN))
    model = fit(seen, rows, label, response=response, train=campaign.train, seed=seed, progress=report)
    sample = spread_rows(data.rows_of(LEARN))
    scale = critic_coordinates(campaign, data.outcome[sample], steady=data.steady).scale
    heads = ("reward", *(budget.name for budget in campaign.budgets))
    context = RunContext(data, campaign, scale, heads, None, seed, folder, None if seen is data else seen)
    return FittedPolicies(context, model, len(rows), _policies(context, model), time.perf_counter() - began)


def _policies(context: RunContext, model: Response) -> list[CandidatePolicy]:
    """The λ-policies that differ on a sample of rows, from no price to the highest that matters."""
    rng, rows = np.random.default_rng(context.seed), context.data.rows_of(LEARN)
    sample = np.sort(rng.choice(rows, min(SAMPLE_ROWS, len(rows)), replace=False))
    signs = np.array([float(budget.sign) for budget in context.campaign.budgets])
    predicted = model.predict(context.seen, sample)[:, :, : 1 + len(signs)].astype(np.float64)
    reward, costs = predicted[:, :, 0], signs * predicted[:, :, 1:]
    allowed = context.data.allowed(sample)
    network = arrays(model)
    found: dict[bytes, CandidatePolicy] = {}
    for number, multiplier in enumerate(prices(reward, costs / context.scale) / context.scale):
        value = np.where(allowed, reward - costs @ multiplier, -np.inf)
        weights = np.concatenate([[1.0], -multiplier * signs])
        name = f"λ {', '.join(f'{price:.3g}' for price in multiplier)}"
        found.setdefault(
            value.argmax(axis=1).tobytes(),
            CandidatePolicy(name, network, multiplier, weights, number=number, step=number),
        )
    return list(found.values())


def prices(reward: Floats, costs: Floats) -> Floats:
    """λ at which actions change places: 0, quantiles of (r_a − r_b) / (c_a − c_b), and one above them all.

    Args:
        reward: `[n, K]` predicted.
        costs: `[n, K, m]` predicted, in ≤ form and in comparable units.

    Returns:
        `[L, m]`; for several costs along directions from one to the other.
    """
    num_costs = costs.shape[2]
    shares = (0.0, 0.5, 1.0) if num_costs <= 2 else (0.0, 1.0)
    directions = [np.array(d) for d in itertools.product(shares, repeat=num_costs) if max(d) == 1]
    per_direction = max(5, POLICIES // max(1, len(directions)))
    found = [np.zeros((1, num_costs))]
    gain = reward[:, :, None] - reward[:, None, :]
    for direction in directions:
        cost = costs @ direction
        more = cost[:, :, None] - cost[:, None, :]
        dearer = more > ROUNDING * max(float(np.abs(cost).max()), 1e-300)
        slopes = gain[dearer] / more[dearer]
        slopes = slopes[slopes > 0]
        if len(slopes):
            spread = np.quantile(slopes, np.linspace(0, 1, per_direction))
            found.append(np.append(spread, 2 * spread[-1])[:, None] * direction)
    return np.unique(np.concatenate(found), axis=0)


def _calibration(data: Transitions, model: Response, label_days: int) -> dict[str, Calibration]:
    """Predicted against observed on the select users, a table per head: the first 1 + m, in the order of labels."""
    rows, label = k_day_labels(data, label_days, data.rows_of(SELECT))
    predicted = model.predict(data, rows, logged=True)
    names = ["reward", *(budget.name for budget in data.campaign.budgets)]
    unit = data.user[rows] if data.cluster is None else data.cluster[data.user[rows]]  # what errors are summed by
    found = calibrate(predicted, label, action=data.action[rows], user=unit, num_actions=data.num_actions)
    return dict(zip(names, found, strict=False))


def _plain(value: Any) -> Any:
    """JSON: lists for arrays, null for what is not a number."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return [_plain(part) for part in value.tolist()]
    return None if isinstance(value, float) and math.isnan(value) else value
