"""What the log's own paths say of the error of a fitted mean, without the assumption that the state is enough.

A fitted evaluation on counted states believes that state and action say all that matters, on every day alike. Then the
residuals of the policy's values have mean zero on each day, and are unrelated to how far a user's earlier days went the
policy's way by chance. What mean they have, and how far they are related, is the error of the fitted mean, to first
order in how far those days are from the log's, and to second order in how many more incentives they bring:

    δ_t   = (1−γ) x_t + γ^Δ V(s_{t+1}) − V(s_t)      V of the policy on counted states, rows weighted by ρ_t
    ρ_t   = π(a_t) / p(a_t)
    c_t   = Σ_{s < t} (ρ_s − 1)                      derivative of the weight of the days before, at π = p
    ĉ_t   = what summaries of the days before tell of c_t − E[c | s_t, a_t], by least squares, day by day
    β_d   = mean of ρ_t (1 + ĉ_t) δ_t over the users with a row on their day d
    e_t   = max(n_t − n̄_d, 0)²                       n_t incentives on the days before, n̄_d on average in the log
    b     = slope of δ − E[δ | s, a] in f_t e_t      in rows with an incentive, next to days and summaries
    f_t   = 1 for the reward, E[cost | s_t, a_t] for a cost
    bias  = Σ_d ω_d β_d + b Σ_d ω_d (mean of f e under the policy, less that with the weights ρ (1 + ĉ))

ω_d = γ^d; days after the log count as its later half. For the total of the first k days δ_t has the values of the days
that are left, V_{k−d}, ω_d is 1, and the mean is over the users whose k days the log shows. The fitted mean plus its
bias is an estimate that assumes less (`corrected`), and its bound counts where it is the weaker one (`weaker.py`).

With c_t in the place of ĉ_t nothing would be assumed of what the state leaves out, but the error would be 3 to 9 times
that of ĉ_t, and in a month with 22 actions 25% of the mean. So it is assumed that what the state leaves out shows in
the summaries with which the state is tested (`markov.py`): means over the days before, and the last of them.

The first order says what one more incentive changes. But people get used to incentives: what the fifth in a row does is
not five times what the second changes, and a policy may give its users many more than the log did. So b says what many
change, taken as alike in all states and for all amounts, in proportion for costs; the fitted moves of the states tell
how many the policy brings about. Where hardly any user of the log had so many, the error of b is large.

Where states are not counted the fitted mean does not rest on the state alone, but on values and weights that are linear
in features. There the estimate that assumes less is the second fitted evaluation, whose features know how far a user's
days went the policy's way: it has less bias and more noise (`sequential.py`).

Assumptions: propensities are right, and users do not influence each other. Being the first terms of an expansion, it
tells direction and size rather than the exact error. It sees only what shows within the days of the log.

Source: Robins (1986) for what follows from propensities alone; Jiang and Li (2016) for the residuals along paths, of
which this is the part that is linear in earlier days; the projection on summaries, and e: ours.
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
from outlay.estimators.panel import Panel
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
    panel: Panel,
    policy: NDArray[Any] | None,
    propensity: NDArray[np.floating],
    past: NDArray[np.floating],
    *,
    days: Sequence[int] = (),
    window: int | None = None,
) -> Joint:
    """Estimate the bias of a policy's fitted means, per day, and of its totals, on counted states.

    Args:
        panel: the rows; their states are counted.
        policy: as `Panel.follow` takes it: `[n]`, `[n, K]`, or None, whose bias is 0.
        propensity: `[n]` of the logged action.
        past: `[n, q]` summaries of the days before each row (`row_features.days_before`).
        days: k of the totals.
        window: days of the means that stand in the place of the discounted ones, or None.

    Returns:
        A joint of reward and costs, and of their totals; 0 where no user's window covers the days.

    Raises:
        LogError: if the policy is not allowed, or a propensity of a row with a choice is missing or outside (0, 1].
    """
    _, ratio = row_ratios(panel, policy, propensity)
    assert ratio is not None  # propensities were given
    followed = _Followed.of(panel, ratio, past)
    # 1 + ĉ
    earlier = 1 + _predicted(followed, _before(panel, ratio - 1.0)[followed.rows])
    spans = sorted({*days, *([] if window is None else [window])})
    parts = [_of_means(panel, followed, earlier), *_of_totals(panel, followed, earlier, spans)]
    names = [*panel.names, *(str(Target(name, k)) for k in spans for name in panel.names)]
    users = panel.num_users
    own = users * np.stack([np.bincount(followed.user, x, users) for part in parts for x in part.T], axis=1)
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
    """The r rows in which the log did what the policy may do, or gave an incentive.

    Attributes:
        rows: `[r]` places in the panel.
        weight: `[r]` ρ; 0 where the policy does something else.
        user, day: `[r]`.
        cell: `[r]` number of its state and action.
        state: `[r]`.
        there: `[r]` state of the next row; its own where there is none.
        goes_on: `[r]` whether there is a next row.
        terminal: `[r]` whether the user has left.
        gap: `[r]` days to the next row.
        left: `[r]` days of the log from here on, this one included.
        incentive: `[r]` whether one is given.
        usual: `[D]` mean number of incentives before each day, of all users of the log.
        excess: `[r]` square of how many more came before the row; 0 where there were fewer.
        past: `[r, q]` summaries of the days before.
        outcome: `[r, 1+m]`.
        states: their number.
        cells: number of states times that of actions.
    """

    rows: NDArray[np.intp]
    weight: Array
    user: NDArray[np.intp]
    day: NDArray[np.int64]
    cell: NDArray[np.intp]
    state: NDArray[np.intp]
    there: NDArray[np.intp]
    goes_on: NDArray[np.bool_]
    terminal: NDArray[np.bool_]
    gap: NDArray[np.int64]
    left: NDArray[np.int64]
    incentive: NDArray[np.bool_]
    usual: Array
    excess: Array
    past: Array
    outcome: Array
    states: int
    cells: int

    @classmethod
    def of(cls, panel: Panel, ratio: Array, past: NDArray[np.floating]) -> _Followed:
        """Collect them."""
        assert panel.state is not None
        given = panel.data.actions[panel.action] > panel.data.actions.min()
        rows = np.flatnonzero((ratio > 0) | given)
        state, following, user, day = panel.state[rows], panel.following[rows], panel.user[rows], panel.day[rows]
        number = _before(panel, given.astype(np.float64))
        usual = np.bincount(panel.day, number) / np.maximum(np.bincount(panel.day), 1)
        return cls(
            rows=rows,
            weight=ratio[rows],
            user=user,
            day=day,
            cell=state * panel.data.num_actions + panel.action[rows],
            state=state,
            there=np.where(following >= 0, panel.state[np.maximum(following, 0)], state),
            goes_on=following >= 0,
            terminal=panel.terminal[rows],
            gap=panel.gap[rows],
            left=panel.window[user] - day,
            incentive=given[rows],
            usual=usual,
            excess=_beyond_usual(number[rows], usual[day]),
            past=past[rows].astype(np.float64),
            outcome=panel.outcome[rows],
            states=int(panel.state.max()) + 1,
            cells=(int(panel.state.max()) + 1) * panel.data.num_actions,
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

    def moved(self, each: Array) -> Array:
        """`[states]` sums of `[r]` over the rows that lead to a state."""
        return np.asarray(np.bincount(self.there, each, self.states))

    def met(self, each: Array) -> Array:
        """`[states]` sums of `[r]` over the rows in a state."""
        return np.asarray(np.bincount(self.state, each, self.states))

    @cached_property
    def scale(self) -> Array:
        """`[r, 1+m]` in proportion to what earlier incentives may change an outcome: 0 in rows without one.

        For the reward they change as much in every state; for costs in proportion to the mean of state and action.
        """
        scale = self.cell_mean(self.outcome, self.incentive) * self.incentive[:, None]
        scale[:, 0] = self.incentive
        return scale

    def cell_mean(self, x: Array, known: NDArray[np.bool_]) -> Array:
        """`[r, q]` mean of the `known` rows with the same state and action, whatever the policy does."""
        rows = np.maximum(np.bincount(self.cell, known, self.cells), 1)
        sums = np.stack([np.bincount(self.cell, known * column, self.cells) for column in x.T], axis=1)
        means: Array = (sums / rows[:, None])[self.cell]
        return means

    def beyond(self, start: NDArray[np.intp], days: int) -> Array:
        """`[≤ days, 1+m]` means of `excess`, weighted by `scale`, on each day of the log under the policy.

        Args:
            start: states of the first day.
            days: how many at most.
        """
        days = min(days, len(self.usual))
        users = np.zeros((days, self.states, days + 1))  # in a state, with so many incentives before
        users[0, :, 0] = np.bincount(start, minlength=self.states)
        here = np.maximum(self.met(self.weight), 1e-300)
        scale = np.stack([self.met(self.weight * column) / here for column in self.scale.T])
        means = np.zeros((days, len(scale)))
        for day in range(days):
            for gap, (without, one_more) in self.moves.items():
                if day + gap < days:
                    users[day + gap] += without @ users[day]
                    users[day + gap, :, 1:] += one_more @ users[day, :, :-1]
            number = scale @ users[day]
            excess = _beyond_usual(np.arange(days + 1.0), self.usual[day])
            means[day] = number @ excess / np.maximum(number.sum(axis=1), 1e-300)
        return means

    @cached_property
    def moves(self) -> dict[int, tuple[sparse.csc_matrix, sparse.csc_matrix]]:
        """From a state, the column, to the next, so many days later: without an incentive, and with one."""
        _, share = self.mean(self.outcome, self.closed)
        where, shape = (self.there, self.state), (self.states, self.states)
        found = {}
        for gap in np.unique(self.gap[self.goes_on]).tolist():
            goes = share * (self.goes_on & (self.gap == gap))
            found[gap] = (
                sparse.csc_matrix((goes * ~self.incentive, where), shape=shape),
                sparse.csc_matrix((goes * self.incentive, where), shape=shape),
            )
        return found

    @cached_property
    def closed(self) -> NDArray[np.bool_]:
        """`[r]` whether the log says what comes after the row."""
        return self.goes_on | self.terminal

    @cached_property
    def of_closed(self) -> Array:
        """`direction` of these rows."""
        return self.direction(self.closed)

    def direction(self, known: NDArray[np.bool_]) -> Array:
        """`[r, 1+m]` weights of the `known` rows whose sum of residuals is what 1 of `excess` changes, times `scale`.

        It is a least squares slope over rows with an incentive, next to days and summaries of the past.
        """
        found, rows = np.zeros_like(self.scale), np.flatnonzero(known & self.incentive)
        columns, day = np.column_stack([self.excess[rows], self.past[rows]]), self.day[rows]
        columns /= np.maximum(np.abs(columns).max(axis=0, initial=0), 1e-300)
        for j, scale in enumerate(self.scale[rows].T):
            base = np.abs(scale)  # as if variances were in proportion to means
            total = np.maximum(np.bincount(day, base), 1e-300)
            off = columns - np.stack([np.bincount(day, base * x) / total for x in columns.T], axis=1)[day]
            system = (off * base[:, None]).T @ off
            one = np.eye(len(system))[0] / max(float(self.excess[rows].max(initial=0)), 1e-300)
            found[rows, j] = np.sign(scale) * (off @ np.linalg.lstsq(system, one, rcond=1e-9)[0])
        return found

    def changed(self, each: Array, beyond: Array, direction: Array, residual: Array) -> Array:
        """`[r, 1+m]` what each row adds to the error, where earlier incentives change what one does.

        Args:
            each: `[r]` weights of the rows.
            beyond: `[D, 1+m]` mean excess under the policy.
            direction: of the rows whose residuals are known.
            residual: `[r, 1+m]`.
        """
        given = np.stack([np.bincount(self.day, each * scale, len(self.usual)) for scale in self.scale.T], axis=1)
        missing = (given[: len(beyond)] * beyond).sum(axis=0) - (each * self.excess) @ self.scale
        own: Array = missing * direction * residual
        return own


def _beyond_usual(number: Array, usual: Array | float) -> Array:
    """e: square of how many more than usual; 0 where there are no more."""
    return np.asarray(np.maximum(number - usual, 0.0) ** 2)


def _predicted(followed: _Followed, earlier: Array) -> Array:
    """`[r]` what of c the summaries of the past tell, given state, action and day: by least squares, day by day."""
    told = np.zeros(len(earlier))
    for d in range(1, int(followed.day.max(initial=0)) + 1):
        then = np.flatnonzero((followed.day == d) & (followed.weight > 0))
        both = np.column_stack([followed.past[then], earlier[then]])
        _, at = np.unique(followed.cell[then], return_inverse=True)
        w = followed.weight[then]
        total = np.maximum(np.bincount(at, w), 1e-300)
        both -= np.stack([np.bincount(at, w * column) / total for column in both.T], axis=1)[at]
        v, c = both[:, :-1], both[:, -1]
        told[then] = v @ np.linalg.lstsq((v * w[:, None]).T @ v, v.T @ (w * c), rcond=1e-9)[0]
    return told


# What each row adds to the bias, `[r, 1+m]`: Σ over rows is the bias, and Σ over a user's rows what the user adds to
# its error. V errs as well: by (I − M)⁻¹ times the mean residual of each state, M its moves, and that moves the bias by
# its derivative a. The mean residuals are 0 in the sample, so this changes the error alone.


def _of_means(panel: Panel, followed: _Followed, earlier: Array) -> Array:
    """What each row adds to the bias of the means."""
    closed = (panel.following >= 0) | panel.terminal  # the log says what comes after the row
    users_then = np.bincount(panel.day[closed], minlength=1)  # of one day at least, where nothing can be said
    later = discounted_weights(len(users_then), panel.discount) / (1 - panel.discount)
    known = followed.closed
    if not known.any():
        return np.zeros_like(followed.outcome)
    fade = np.where(followed.goes_on, panel.discount ** followed.gap.astype(np.float64), 0.0)
    now = (1 - panel.discount) * followed.outcome
    brings, share = followed.mean(now, known)
    alone = followed.met(share) == 0  # states without a row: all later days are as the mean of the others
    brings[alone] /= 1 - panel.discount
    moves = sparse.csc_matrix((share * fade, (followed.state, followed.there)), shape=(followed.states,) * 2)
    system = sparse.identity(followed.states, format="csc") - moves
    value = np.reshape(spsolve(system, brings), brings.shape)
    each = known * (later / np.maximum(users_then, 1))[np.minimum(followed.day, len(later) - 1)]
    each = each * followed.weight * earlier
    derivative = followed.moved(each * fade) - followed.met(each)
    through = np.reshape(spsolve(sparse.csc_matrix(system.T), derivative), -1)
    residual = now + fade[:, None] * value[followed.there] - value[followed.state]
    own: Array = (each + share * through[followed.state])[:, None] * residual
    assert panel.state is not None
    beyond = followed.beyond(panel.state[panel.start], len(later))
    residual -= followed.cell_mean(residual, known)
    return own + followed.changed(each, beyond, followed.of_closed, residual)


def _of_totals(panel: Panel, followed: _Followed, earlier: Array, spans: Sequence[int]) -> list[Array]:
    """The same for totals of k days, with V_h of the h days that are left."""
    value = np.zeros((max(spans, default=0) + 1, followed.states, followed.outcome.shape[1]))
    shares = [np.zeros(0)]

    def brings(h: int) -> Array:
        goes = followed.goes_on & (followed.gap < h)
        return followed.outcome + np.where(goes[:, None], value[np.maximum(h - followed.gap, 0), followed.there], 0.0)

    for h in range(1, len(value)):
        value[h], share = followed.mean(brings(h), followed.closed | (followed.left >= h))
        shares.append(share)
    every = np.ones_like(followed.closed)
    last, others = (every, followed.direction(every)), (followed.closed, followed.of_closed)
    found = []
    for k in spans:
        covers = panel.covers(k)
        beyond = followed.beyond(panel.state[panel.first][covers], k)  # type: ignore[index]
        own, through = np.zeros_like(followed.outcome), np.zeros((k + 1, followed.states))
        for h in range(k, 0, -1):
            then = (shares[h] > 0) & (followed.day == k - h) & covers[followed.user]
            each = then * followed.weight * earlier / max(1, covers.sum())
            through[h] -= followed.met(each)
            residual = brings(h) - value[h][followed.state]
            whole = each + shares[h] * through[h][followed.state]
            own += whole[:, None] * residual
            known, direction = last if h == 1 else others
            residual -= followed.cell_mean(residual, known)
            own += followed.changed(each, beyond, direction, residual)
            for gap in np.unique(followed.gap[followed.goes_on & (followed.gap < h)]):
                leads = followed.goes_on & (followed.gap == gap)
                through[h - gap] += followed.moved(whole * leads)
        found.append(own)
    return found


def _before(panel: Panel, change: Array) -> Array:
    """`[n]` sums of `change` `[n]` over the user's rows before each."""
    total, rows = np.zeros(len(change)), panel.first
    while len(rows):
        then = panel.following[rows]
        rows, then = rows[then >= 0], then[then >= 0]
        total[then] = total[rows] + change[rows]
        rows = then
    return total


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
