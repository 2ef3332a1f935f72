"""What the log's own paths say of the error of a fitted mean, without the assumption that the state is enough.

A fitted evaluation believes that state and action say all that matters. Then the residuals of the policy's values have
mean zero whatever happened before, and are unrelated to how far a user's earlier days went the policy's way by chance.
If they are related, that is the error of the fitted mean, to first order in how far those days are from the log's:

    δ_t   = (1−γ) x_t + γ^Δ V(s_{t+1}) − V(s_t)      V of the policy on counted states, rows weighted by ρ_t
    ρ_t   = π(a_t) / p(a_t)
    c_t   = Σ_{s < t} (ρ_s − 1)                      derivative of the weight of the days before, at π = p
    β_d   = mean of ρ_t (c_t − E[c | s_t, a_t]) δ_t over the users with a row on their day d
    bias  = Σ_d ω_d β_d                              ω_d = γ^d; days after the log count as its later half

Where states are not counted the fitted mean does not rest on the state alone, but on values and weights that are linear
in features. There the bias is the difference to the second fitted evaluation, whose features know how far a user's days
went the policy's way: it has less bias and more noise (`sequential.py`).

Any policy shows some bias by chance. What is beyond some standard errors moves the bounds of the certificate:

    allowance = sign(bias) · max(0, |bias| − c · error)      c = 3 where states are counted, else 1

Assumptions: the propensities are right, and users do not influence each other. Being the first term of an expansion, it
tells direction and size rather than the exact error. It sees only what shows within the days of the log.

Source: Robins (1986) for what follows from propensities alone; Jiang and Li (2016) for the residuals along paths, of
which this is the part that is linear in earlier days.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import spsolve

from outlay.core.estimate import Estimate
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.target import Target
from outlay.estimators.certificate import BudgetBound, Certificate
from outlay.estimators.clusters import by_cluster
from outlay.estimators.importance import row_ratios
from outlay.estimators.joint import Joint
from outlay.estimators.panel import Panel
from outlay.estimators.windowed import discounted_weights

Array = NDArray[np.float64]
BY_CHANCE = 3.0  # standard errors: where the state is enough, one outcome in 370 has an allowance
# Of the difference to the second fitted evaluation: in logs with hidden types and their past the first one was 3% too
# high, so that an allowance in a third of the logs without need is the smaller evil.
SECOND_BY_CHANCE = 1.0


@dataclass(frozen=True, slots=True)
class OutcomeBias:
    """The error of one fitted mean.

    Attributes:
        name: `reward` or a budget.
        value: the truth less the fitted mean, relative to the latter.
        std_error: of it, by user or by cluster.
        by_chance: standard errors that are not allowed for.
    """

    name: str
    value: float
    std_error: float
    by_chance: float = BY_CHANCE

    @property
    def allowance(self) -> float:
        """What of it is beyond chance, with its sign; 0 where nothing is."""
        beyond = max(0.0, abs(self.value) - self.by_chance * self.std_error)
        return float(np.copysign(beyond, self.value)) if beyond else 0.0


@dataclass(frozen=True, slots=True)
class PathBias:
    """The errors of the fitted means of one policy, by what the log's paths say.

    Attributes:
        outcomes: reward and costs.
        words: what was found, without a full stop.
    """

    outcomes: tuple[OutcomeBias, ...]
    words: str

    @classmethod
    def of(cls, bias: Joint, fitted: Joint, by_chance: float = BY_CHANCE) -> PathBias:
        """Judge an estimated bias (`estimate`, `between`) of the means of a fitted evaluation."""
        places = [_mean_per_day(fitted, name) for name in bias.targets]
        means = [abs(float(fitted.value[column])) / days for column, days in places]
        outcomes = tuple(
            OutcomeBias(name, float(value) / mean, float(error) / mean, by_chance)
            for name, value, error, mean in zip(bias.targets, bias.value, bias.std_error, means, strict=True)
            if np.isfinite(mean) and mean > 0 and np.isfinite(error)
        )
        return cls(outcomes, _words(outcomes))

    def widened(self, estimate: Estimate) -> Estimate:
        """A fitted estimate with an interval that allows for the bias; a first day has none."""
        target = Target.parse(estimate.target)
        allowance = next((each.allowance for each in self.outcomes if each.name == target.name), 0.0)
        if estimate.value is None or estimate.low is None or estimate.high is None or target.days == 1 or not allowance:
            return estimate
        moved = allowance * abs(estimate.value)
        return replace(estimate, low=estimate.low + min(moved, 0.0), high=estimate.high + max(moved, 0.0))

    def widened_certificate(self, certificate: Certificate, objective: float) -> Certificate:
        """A certificate whose bounds allow for the bias; one that no longer keeps a limit is none.

        Args:
            certificate: as it was issued.
            objective: the fitted objective of its policy, in the unit of its gain.
        """
        allowance = {each.name: each.allowance for each in self.outcomes}
        if certificate.withheld is not None or not any(allowance.values()):
            return certificate
        budgets = tuple(_moved(line, allowance.get(line.budget, 0.0)) for line in certificate.budgets)
        reason = certificate.reason
        if certificate.certified and not all(line.kept for line in budgets):
            reason = Reason(ReasonKind.PATHS, {"found": self.words})
        least, most = certificate.gain_bound, certificate.gain_most
        moved = allowance.get("reward", 0.0) * abs(objective)
        return replace(
            certificate,
            budgets=budgets,
            reason=reason,
            gain_bound=None if least is None else least + min(moved, 0.0),
            gain_most=None if most is None else most + max(moved, 0.0),
        )


def mixed(biases: Sequence[PathBias], weights: Array) -> PathBias:
    """The allowances of a mixture of policies, of which each has its own; errors as if they went together."""
    used = [(each, float(weight)) for each, weight in zip(biases, weights, strict=True) if weight > 0]
    first = used[0][0].outcomes
    outcomes = tuple(
        OutcomeBias(outcome.name, sum(w * each.outcomes[j].value for each, w in used),
                    sum(w * each.outcomes[j].std_error for each, w in used), outcome.by_chance)
        for j, outcome in enumerate(first)
    )  # fmt: skip
    return PathBias(outcomes, _words(outcomes))


def estimate(panel: Panel, policy: NDArray[Any] | None, propensity: NDArray[np.floating]) -> Joint:
    """Estimate the bias of a policy's fitted means, per day, on counted states.

    Args:
        panel: the rows; their states are counted.
        policy: as `Panel.follow` takes it: `[n]`, `[n, K]`, or None, whose bias is 0.
        propensity: `[n]` of the logged action.

    Returns:
        A joint of reward and costs; `mass` `[U, 1+m]` counts each user's rows.

    Raises:
        LogError: if the policy is not allowed, or a propensity of a row with a choice is missing or outside (0, 1].
    """
    _, ratio = row_ratios(panel, policy, propensity)
    assert ratio is not None  # propensities were given
    assert panel.state is not None
    closed = (panel.following >= 0) | panel.terminal  # the log says what comes after the row
    rows = np.flatnonzero(closed & (ratio > 0))
    weight, user, day = ratio[rows], panel.user[rows], panel.day[rows]
    earlier = _before(panel, ratio - 1.0)[rows]
    cell = panel.state[rows] * panel.data.num_actions + panel.action[rows]
    earlier -= (np.bincount(cell, weight * earlier) / np.maximum(np.bincount(cell, weight), 1e-300))[cell]
    users_then = np.bincount(panel.day[closed], minlength=1)  # of one day at least, where nothing can be said
    later = discounted_weights(len(users_then), panel.discount) / (1 - panel.discount)
    weight = (later / np.maximum(users_then, 1))[day] * weight * earlier
    residual = _residuals(panel, rows, ratio[rows]) if len(rows) else panel.outcome[rows]
    own = panel.num_users * np.stack([np.bincount(user, weight * r, panel.num_users) for r in residual.T], axis=1)
    value = own.mean(axis=0)
    mass = np.bincount(user, minlength=panel.num_users)[:, None].astype(np.float64)
    return Joint(
        targets=panel.names,
        value=value,
        influence=by_cluster(own - value, panel.clusters),
        mass=np.repeat(mass, len(panel.names), axis=1),
        withheld=(None,) * len(panel.names),
        clusters=panel.clusters,
    )


def between(fitted: Joint, second: Joint, names: Sequence[str]) -> Joint:
    """The difference of a second fitted evaluation of a policy to the first, in the means a day of `names`."""
    less = second.minus(fitted)
    places = [_mean_per_day(less, name) for name in names]
    return less.picked(names, [column for column, _ in places], [1 / days for _, days in places])


def _mean_per_day(joint: Joint, name: str) -> tuple[int, int]:
    """The column that tells the mean of an outcome, and the days to divide it by.

    Where budgets are per user only totals were estimated, and the one over the most days is taken.
    """
    if name in joint.targets:
        return joint.column(name), 1
    days = max(target.days or 0 for text in joint.targets if (target := Target.parse(text)).name == name)
    return joint.column(str(Target(name, days))), days


def _before(panel: Panel, change: Array) -> Array:
    """`[n]` sums of `change` `[n]` over the user's rows before each."""
    total, rows = np.zeros(len(change)), panel.first
    while len(rows):
        then = panel.following[rows]
        rows, then = rows[then >= 0], then[then >= 0]
        total[then] = total[rows] + change[rows]
        rows = then
    return total


def _residuals(panel: Panel, rows: NDArray[np.intp], weight: Array) -> Array:
    """`[r, 1+m]` δ of some rows with weights `[r]`; a state without any is taken to be worth the mean of the others."""
    assert panel.state is not None
    state = panel.state[rows]
    states = int(panel.state.max()) + 1
    total = np.bincount(state, weight, states)
    goes_on = panel.following[rows] >= 0
    there = panel.state[np.where(goes_on, panel.following[rows], 0)]
    fade = np.where(goes_on, panel.discount ** panel.gap[rows].astype(np.float64), 0.0)
    now = (1 - panel.discount) * panel.outcome[rows]
    share = weight / total[state]
    moves = sparse.csc_matrix((share * fade, (state, there)), shape=(states, states))
    brings = np.stack([np.bincount(state, share * x, states) for x in now.T], axis=1)
    met = total > 0
    brings[~met] = np.average(brings, axis=0, weights=total) / (1 - panel.discount)
    value = np.reshape(spsolve(sparse.identity(states, format="csc") - moves, brings), brings.shape)
    found: Array = now + fade[:, None] * value[there] - value[state]
    return found


def _moved(line: BudgetBound, allowance: float) -> BudgetBound:
    """A line whose bound allows for costs that differ from the fitted ones by `allowance`, relative."""
    if line.value is None or line.bound is None:
        return line
    side = -1 if line.floor else 1
    bound = line.bound + side * max(side * allowance * abs(line.value), 0.0)
    return replace(line, bound=bound, kept=line.kept and side * (line.limit - bound) >= 0)


def _words(outcomes: Sequence[OutcomeBias]) -> str:
    told = ", ".join(f"{each.name} by {each.value:+.1%} ± {each.std_error:.1%}" for each in outcomes)
    if any(each.allowance for each in outcomes):
        return f"estimates that assume less contradict the fitted means beyond chance ({told})"
    return f"estimates that assume less do not contradict the fitted means ({told})" if told else "not compared"
