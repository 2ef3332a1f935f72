"""What the log's own paths say of the error of a fitted mean, without the assumption that the state is enough.

A fitted evaluation on counted states believes that state and action say all that matters, on every day alike. Then the
residuals of the policy's values have mean zero on each day, and are unrelated to how far a user's earlier days went the
policy's way by chance. What mean they have, and how far they are related, is the error of the fitted mean, to first
order in how far those days are from the log's, and to second order in how many more incentives they bring:

    δ_t   = (1−γ) x_t + γ^Δ V(s_{t+1}) − V(s_t)      V of the policy on counted states, rows weighted by ρ_t
    ρ_t   = π(a_t) / p(a_t)
    c_t   = Σ_{s < t} (ρ_s − 1)                      derivative of the weight of the days before, at π = p
    ĉ_t   = what summaries of the days before tell of c_t − E[c | s_t], by least squares, day by day
    β_d   = mean of ρ_t (1 + ĉ_t − E[ĉ | s_t, a_t]) δ_t over the users with a row on their day d
    bias  = Σ_d ω_d β_d + b Σ_d ω_d (mean of f e under the policy, less that with the weights ρ (1 + ĉ))

ω_d = γ^d; days after the log count as its later half, but with the mean of f e on its last day: incentives add up. For
the total of the first k days δ_t has the values of the days that are left, V_{k−d}, ω_d is 1, and the mean is over the
users whose k days the log shows. The fitted mean plus its bias is an estimate that assumes less (`corrected`), and its
bound counts where it is the weaker one (`weaker.py`).

With c_t in the place of ĉ_t nothing would be assumed of what the state leaves out, but the error would be 3 to 9 times
that of ĉ_t, and in a month with 22 actions 25% of the mean. So it is assumed that what the state leaves out shows in
the summaries with which the state is tested (`markov.py`): means over the days before, and the last of them.

The first order says what one more incentive changes; b, e and f are of what many change (`paths.py`).

Where states are not counted the fitted mean does not rest on the state alone, but on values and weights that are linear
in features. There the estimate that assumes less is the second fitted evaluation, whose features know how far a user's
days went the policy's way: it has less bias and more noise (`sequential.py`).

Assumptions: propensities are right, and users do not influence each other. Being the first terms of an expansion, it
tells direction and size rather than the exact error. It sees only what shows within the days of the log.

Source: Robins (1986) for what follows from propensities alone; Jiang and Li (2016) for the residuals along paths, of
which this is the part that is linear in earlier days; the projection on summaries: ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import spsolve

from outlay.core.cached import cached_property
from outlay.core.estimate import Target
from outlay.estimators.clusters import by_cluster
from outlay.estimators.importance import row_ratios
from outlay.estimators.joint import Joint
from outlay.estimators.paths import Moves, Paths
from outlay.estimators.row_features import before
from outlay.estimators.windowed import discounted_weights, over_window

Array = NDArray[np.float64]
ROUNDING = 1e-6  # of a mean: a smaller difference between two ways to add up the same numbers is none


@dataclass(frozen=True, slots=True)
class OutcomeBias:
    """The error of one fitted mean.

    Attributes:
        name: `reward` or a budget.
        mean: the fitted mean.
        value: the estimate that assumes less, less the fitted mean; in its unit.
        std_error: of this difference, by user or by cluster.
    """

    name: str
    mean: float
    value: float
    std_error: float

    @property
    def none(self) -> bool:
        """Whether the two are the same but for rounding."""
        return max(abs(self.value), self.std_error) <= ROUNDING * abs(self.mean)

    def words(self, name: str) -> str:
        """`spend by -0.7% ± 0.9%`, by what tables call it; in the unit of the mean where that is 0."""
        if not self.mean:
            return f"{name} by {self.value:+.2g} ± {self.std_error:.2g}"
        share, error = (100 * x / abs(self.mean) for x in (self.value, self.std_error))
        if max(abs(share), error) < 0.05:
            return f"{name} by less than 0.1%"
        return f"{name} by {share:+.1f}% ± {error:.1f}%"


@dataclass(frozen=True, slots=True)
class PathBias:
    """What an estimate that assumes less says of the fitted means of one policy.

    Attributes:
        outcomes: reward and costs.
        words: what was found, without a full stop.
    """

    outcomes: tuple[OutcomeBias, ...]
    words: str

    @classmethod
    def of(cls, fitted: Joint, second: Joint, names: Mapping[str, str]) -> PathBias:
        """Compare the means of `names`, each with what tables call it, with those of an estimate that assumes less.

        Where budgets are per user only totals were estimated, and the one over the most days is taken.
        """
        less, outcomes = second.minus(fitted), []
        for name in names:
            column = less.column(_told(less, name))
            mean, value = float(fitted.value[fitted.column(less.targets[column])]), float(less.value[column])
            error = float(less.std_error[column])
            if np.isfinite([mean, value, error]).all():
                outcomes.append(OutcomeBias(name, mean, value, error))
        return cls(tuple(outcomes), _words(outcomes, names))


def corrected(fitted: Joint, bias: Joint) -> Joint:
    """The estimate that assumes less: the fitted one plus its bias, in the targets for which that was estimated."""
    value, influence = fitted.value.copy(), fitted.influence.copy()
    for j, target in enumerate(bias.targets):
        if target in fitted.targets:
            column = fitted.column(target)
            value[column] += bias.value[j]
            influence[:, column] += bias.influence[:, j]
    return Joint(fitted.targets, value, influence, fitted.mass, fitted.withheld, fitted.clusters)


def estimate(
    paths: Paths,
    policy: NDArray[Any] | None,
    propensity: NDArray[np.floating],
    *,
    days: Sequence[int] = (),
    window: int | None = None,
) -> Joint:
    """Estimate the bias of a policy's fitted means, per day, and of its totals, on counted states.

    Args:
        paths: the rows, and what they tell of all policies.
        policy: as `Panel.follow` takes it: `[n]`, `[n, K]`, or None, whose bias is 0.
        propensity: `[n]` of the logged action.
        days: k of the totals.
        window: days of the means that stand in the place of the discounted ones, or None.

    Returns:
        A joint of reward and costs, and of their totals; 0 where no user's window covers the days.

    Raises:
        LogError: if the policy is not allowed, or a propensity of a row with a choice is missing or outside (0, 1].
    """
    panel = paths.panel
    _, ratio = row_ratios(panel, policy, propensity)
    assert ratio is not None  # propensities were given
    followed = _Followed.of(paths, ratio)
    spans = sorted({*days, *([] if window is None else [window])})
    names = [*panel.names, *(str(Target(name, k)) for k in spans for name in panel.names)]
    users = panel.num_users
    parts = [_of_means(paths, followed), *_of_totals(paths, followed, spans)]
    own = users * np.hstack(parts)
    value = own.mean(axis=0)
    whole = Joint(
        targets=tuple(names),
        value=value,
        influence=by_cluster(own - value, panel.clusters),
        mass=np.ones((users, len(names))),
        withheld=(None,) * len(names),
        clusters=panel.clusters,
    )
    return over_window(whole, panel.names, window)


def _told(joint: Joint, name: str) -> str:
    """The target that tells the mean of an outcome, or its total over the most days."""
    if name in joint.targets:
        return name
    days = max(target.days or 0 for text in joint.targets if (target := Target.parse(text)).name == name)
    return str(Target(name, days))


@dataclass(frozen=True)
class _Followed:
    """The r rows in which the log did what the policy may do.

    Attributes:
        weight: `[r]` ρ.
        earlier: `[r]` 1 + ĉ.
        user, day: `[r]`.
        state: `[r]`.
        there: `[r]` state of the next row; its own where there is none.
        goes_on: `[r]` whether there is a next row.
        closed: `[r]` whether the log says what comes after the row.
        gap: `[r]` days to the next row.
        left: `[r]` days of the log from here on, this one included.
        given: `[r]` whether an incentive is given.
        excess: `[r]` e.
        scale: `[r, 1+m]` f.
        outcome: `[r, 1+m]`.
        users: their number.
        states: their number.
    """

    weight: Array
    earlier: Array
    user: NDArray[np.intp]
    day: NDArray[np.int64]
    state: NDArray[np.intp]
    there: NDArray[np.intp]
    goes_on: NDArray[np.bool_]
    closed: NDArray[np.bool_]
    gap: NDArray[np.int64]
    left: NDArray[np.int64]
    given: NDArray[np.bool_]
    excess: Array
    scale: Array
    outcome: Array
    users: int
    states: int

    @classmethod
    def of(cls, paths: Paths, ratio: Array) -> _Followed:
        """Collect them."""
        panel = paths.panel
        assert panel.state is not None
        rows = np.flatnonzero(ratio > 0)
        state, following, user, day = panel.state[rows], panel.following[rows], panel.user[rows], panel.day[rows]
        _, at = np.unique(day * paths.cells + paths.cell[rows], return_inverse=True)
        weight, earlier = ratio[rows], paths.told(before(panel, ratio[:, None] - 1.0, total=True)[:, 0])[rows]
        mean = np.bincount(at, weight * earlier) / np.bincount(at, weight)
        return cls(
            weight=weight,
            earlier=1 + earlier - mean[at],
            user=user,
            day=day,
            state=state,
            there=np.where(following >= 0, panel.state[np.maximum(following, 0)], state),
            goes_on=following >= 0,
            closed=paths.closed[rows],
            gap=panel.gap[rows],
            left=panel.window[user] - day,
            given=paths.given[rows],
            excess=paths.excess[rows],
            scale=paths.scale[rows],
            outcome=panel.outcome[rows],
            users=panel.num_users,
            states=paths.states,
        )

    def mean(self, x: Array, known: NDArray[np.bool_]) -> tuple[Array, Array]:
        """`[states, q]` weighted means of `x` `[r, q]` over the `known` rows, and each row's share `[r]` in its own.

        A state without such a row gets the mean of the others.
        """
        weight = self.weight * known
        total = np.bincount(self.state, weight, self.states)
        sums = np.stack([np.bincount(self.state, weight * column, self.states) for column in x.T], axis=1)
        others = sums.sum(axis=0) / max(total.sum(), 1e-300)
        means = np.where(total[:, None] > 0, sums / np.maximum(total, 1e-300)[:, None], others)
        return means, weight / np.maximum(total, 1e-300)[self.state]

    def moved(self, each: Array, among: NDArray[np.bool_] | slice = slice(None)) -> Array:
        """`[states]` sums of `[r]` over the rows that lead to a state."""
        return np.asarray(np.bincount(self.there[among], each[among], self.states))

    def met(self, each: Array) -> Array:
        """`[states]` sums of `[r]` over the rows in a state."""
        return np.asarray(np.bincount(self.state, each, self.states))

    def by_user(self, each: Array, residual: Array) -> Array:
        """`[users, 1+m]` sums of residuals `[r, 1+m]` with weights `[r]`."""
        return np.stack([np.bincount(self.user, each * column, self.users) for column in residual.T], axis=1)

    @cached_property
    def leads(self) -> dict[int, NDArray[np.bool_]]:
        """`[r]` whether the next row comes so many days later."""
        return {gap: self.goes_on & (self.gap == gap) for gap in np.unique(self.gap[self.goes_on]).tolist()}

    @cached_property
    def moves(self) -> Moves:
        """From a state, the column, to the next, so many days later: without an incentive, and with one."""
        _, share = self.mean(self.outcome, self.closed)
        where, shape, found = (self.there, self.state), (self.states, self.states), {}
        for gap, leads in self.leads.items():
            without, one_more = share * (leads & ~self.given), share * (leads & self.given)
            found[gap] = (
                sparse.csc_matrix((without, where), shape=shape),
                sparse.csc_matrix((one_more, where), shape=shape),
            )
        return found

    @cached_property
    def scale_of_states(self) -> Array:
        """`[1+m, states]` mean f under the policy."""
        here = np.maximum(self.met(self.weight), 1e-300)
        return np.stack([self.met(self.weight * column) / here for column in self.scale.T])

    def missing(self, each: Array, beyond: Array) -> Array:
        """`[1+m]` how much more f e the policy brings about than rows with weights `[r]` have.

        Args:
            each: the weights.
            beyond: `[D, 1+m]` mean e under the policy on each day.
        """
        rows = np.flatnonzero(each)
        given, scale = each[rows], self.scale[rows]
        expected = beyond[self.day[rows]] - self.excess[rows, None]
        missing: Array = given @ (scale * expected)
        return missing


# What each user adds to the bias, `[U, 1+m]`: Σ over users is the bias, and what a user adds is its share in the error.
# V errs as well: by (I − M)⁻¹ times the mean residual of each state, M its moves, and that moves the bias by its
# derivative a. The mean residuals are 0 in the sample, so this changes the error alone.


def _of_means(paths: Paths, followed: _Followed) -> Array:
    """What each user adds to the bias of the means."""
    panel = paths.panel
    users_then = np.bincount(panel.day[paths.closed], minlength=1)  # of one day at least, where nothing can be said
    later = discounted_weights(len(users_then), panel.discount) / (1 - panel.discount)
    known = followed.closed
    if not known.any():
        return np.zeros((followed.users, followed.outcome.shape[1]))
    fade = np.where(followed.goes_on, panel.discount ** followed.gap.astype(np.float64), 0.0)
    now = (1 - panel.discount) * followed.outcome
    brings, share = followed.mean(now, known)
    alone = followed.met(share) == 0  # states without a row: all later days are as the mean of the others
    brings[alone] /= 1 - panel.discount
    moves = sparse.csc_matrix((share * fade, (followed.state, followed.there)), shape=(followed.states,) * 2)
    system = sparse.identity(followed.states, format="csc") - moves
    value = np.reshape(spsolve(system, brings), brings.shape)
    each = known * (later / np.maximum(users_then, 1))[np.minimum(followed.day, len(later) - 1)]
    each = each * followed.weight * followed.earlier
    derivative = followed.moved(each * fade) - followed.met(each)
    through = np.reshape(spsolve(sparse.csc_matrix(system.T), derivative), -1)
    residual = now + fade[:, None] * value[followed.there] - value[followed.state]
    own = followed.by_user(each + share * through[followed.state], residual)
    assert panel.state is not None
    beyond = paths.expected(panel.state[panel.start], len(paths.usual), followed.scale_of_states, followed.moves)
    last, beyond = beyond[-1], beyond[: len(later)]
    within = panel.discount ** np.arange(len(later), dtype=np.float64)
    within /= np.where(later, later, 1.0)  # of the weight of a day of the log; the rest stands for days after it
    beyond += (1 - within)[:, None] * (last - beyond)
    slope = paths.slope.of(1 - panel.discount, {gap: panel.discount**gap * value for gap in paths.slope.later})
    return own + followed.missing(each, beyond) * slope


def _of_totals(paths: Paths, followed: _Followed, spans: Sequence[int]) -> list[Array]:
    """The same for totals of k days, with V_h of the h days that are left."""
    panel = paths.panel
    value = np.zeros((max(spans, default=0) + 1, followed.states, followed.outcome.shape[1]))
    shares = [np.zeros(0)]

    def brings(h: int) -> Array:
        goes = followed.goes_on & (followed.gap < h)
        return followed.outcome + np.where(goes[:, None], value[np.maximum(h - followed.gap, 0), followed.there], 0.0)

    for h in range(1, len(value)):
        value[h], share = followed.mean(brings(h), followed.closed | (followed.left >= h))
        shares.append(share)
    covered = {k: panel.covers(k) for k in spans}
    beyond = {
        k: paths.expected(panel.state[panel.first][covers], k, followed.scale_of_states, followed.moves)  # type: ignore[index]
        for k, covers in covered.items()
    }
    own = {k: np.zeros((followed.users, followed.outcome.shape[1])) for k in spans}
    through = {k: np.zeros((k + 1, followed.states)) for k in spans}
    for h in range(len(value) - 1, 0, -1):
        residual = brings(h) - value[h][followed.state]
        later = {gap: value[h - gap] for gap in paths.slope.later if gap < h}
        slope = (paths.slope if h > 1 else paths.slope_of_one_day).of(1.0, later)
        for k in spans:
            if h > k:
                continue
            then = (shares[h] > 0) & (followed.day == k - h) & covered[k][followed.user]
            each = then * followed.weight * followed.earlier / max(1, covered[k].sum())
            through[k][h] -= followed.met(each)
            whole = each + shares[h] * through[k][h][followed.state]
            own[k] += followed.by_user(whole, residual) + followed.missing(each, beyond[k]) * slope
            for gap, leads in followed.leads.items():
                if gap < h:
                    through[k][h - gap] += followed.moved(whole, leads)
    return [own[k] for k in spans]


def _words(outcomes: Sequence[OutcomeBias], names: Mapping[str, str]) -> str:
    if not outcomes:
        return "not compared"
    told = [each.words(names[each.name]) for each in outcomes if not each.none]
    if not told:
        return "estimates that assume less give the same means"
    return (
        f"estimates that assume less differ from the fitted means ({', '.join(told)}, ± one standard error); intervals "
        "and bounds of the policy are the weaker of the two"
    )
