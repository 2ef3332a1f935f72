"""Totals of a user's first days by sequential regression, each day given the days before it, for rich states.

    from the last day    (Σ ρ g gᵀ + Λ) θ_d = Σ ρ g y_d              y_d = x_d + V_{d+1},   V_d = gᵀθ_d
    from the first       (Σ ρ g gᵀ + Λ) β_d = Σ g · arriving mass     a row's mass is ρ gᵀβ_d, passed to its next row
    value                mean V_0 + Σ mass (y_d − V_d)
    ψ_u                  U (share_u (V_0 − mean V_0) + Σ_{t∈u} mass_t (y_t − V_t) / (1 − leverage_t))

Users whose window ends earlier than others' belong to every mean, whatever its days. For the outcome of day t, the
regression of day d runs over the rows of d after which the log shows day t, and V_d is its value in every row of d:
mass that arrives in a row after which nothing is known is carried on by the rows that g makes its like. This assumes
that of users alike in g, those whose window ends and those whose window goes on would do the same (ignorable
censoring; `markov.py` tests whether it matters when a user joined), and that there are users alike in g among those
who go on (`windowed.py`; where not, the number is withheld).

ρ = π(a) / p(a) of one step; g has the features of the row and of the user's earlier days (`row_features.py`), the
policy's action there, and the features times its amount, since a cost jumps where the policy's action does. Λ weighs as
much as `RIDGE` effective rows, in standardised features; adding the masses times the residuals undoes its shrinkage.

Assumptions: the propensities are right, the log's decisions depended on logged variables only, and users do not
influence each other. The state need not be Markov. If the features omit a lasting trait (who is eager, who hunts for
deals), the logged habit is a proxy for it, and given the state alone, a policy that builds habits would be credited
with eager users. But actions were randomised given all earlier days, so expectations given the state *and* those days
are right whatever the features omit. Only their form is approximate: the bias is the product of the errors of V and of
the density ratio, both linear in g. If a policy soon leads to states that are rare in the log (always the largest
coupon), the ratio is negative in some rows: the regression extrapolates. `unsupported` measures this: the sum of
negative masses, averaged over days.

Source: Robins (1986) and Bang & Robins (2005) for the recursion given the past, ends of windows included; Kallus &
Uehara (2020) for the ratio
and the influence function; MacKinnon & White (1985) for the leverage. The adjoint as ratio, days apart: ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from outlay.core.cached import cached_property
from outlay.core.estimate import Target
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.basis import Array
from outlay.estimators.fitted import Fitted, not_shown, possible, range_of, sure
from outlay.estimators.importance import row_ratios
from outlay.estimators.joint import joined
from outlay.estimators.long_run import LONG_RUN, in_log_states
from outlay.estimators.panel import Index, Panel, TargetPolicy
from outlay.estimators.row_features import before, standardised
from outlay.estimators.windowed import discounted_weights, over_window, unlike, why_unlike
from outlay.ops.importance import effective_size

RIDGE = 5.0  # weight of the prior of each standardised feature, in effective rows
MOST_LEVERAGE = 0.5  # bound on the leverage of a row
TINY = 1e-12
FEWEST = 10.0  # least number of effective users: below it, estimates are noise and intervals invalid
HARDLY_ANY = Reason(ReasonKind.HARDLY_ANY, {"needed": FEWEST})


@dataclass(frozen=True)
class Days:
    """Means of each of k days over some users, by outcome.

    Attributes:
        value: `[T, k]`.
        influence: `[U, T, k]`.
        mass: `[U, k]` the policy's visits to each user's row of a day.
        extrapolated: `[k]` absolute sum of negative masses; 0 if the log covers the states of that day.
        unlike: `[k]` share of the users whose window ended before that day, unlike all who went on.
        reached: `[k]` users whose window reaches each day.
        shown: number of days, at most k, that have users with the policy's actions.
        apart: the same as if the days before each had been the log's; None where nothing is to be chosen by it.
    """

    value: Array
    influence: Array
    mass: Array
    extrapolated: Array
    unlike: Array
    reached: NDArray[np.int64]
    shown: int
    apart: _Apart | None


@dataclass(frozen=True)
class _Regressors:
    """g of a day's rows: features, these times the amount, the amount and what is given besides, a constant.

    The whole of it is made for rows that a regression runs over alone: of all others, products are enough. Products are
    in single precision, which changes values and masses by a millionth of what they are sums of.

    Attributes:
        features: `[r, p]`.
        given: `[r, 1+q]` from `Sequential._given`; None: features and the constant are all.
    """

    features: NDArray[np.float32]
    given: Array | None

    def weighted(self, on: Index, root: NDArray[np.float32]) -> NDArray[np.float32]:
        """`[len(on), p']` of some rows, each times its `root` `[len(on), 1]`."""
        p, others = self.features.shape[1], 0 if self.given is None else self.features.shape[1] + self.given.shape[1]
        found = np.empty((len(on), p + others + 1), np.float32)
        np.multiply(self.features[on], root, out=found[:, :p])
        if self.given is not None:
            given = self.given[on]
            np.multiply(found[:, :p], given[:, :1], out=found[:, p : 2 * p])
            np.multiply(given, root, out=found[:, 2 * p : -1])
        found[:, -1:] = root
        return found

    def times(self, theta: Array, on: Index | slice = slice(None)) -> Array:
        """`[len(on), T]` g θ of some rows, from `[p', T]`."""
        features, (p, T) = self.features[on], (self.features.shape[1], theta.shape[1])
        if self.given is None:
            return np.asarray(features @ theta[:-1].astype(np.float32) + theta[-1])
        both = features @ np.hstack([theta[:p], theta[p : 2 * p]], dtype=np.float32)
        given = self.given[on]
        found: Array = both[:, :T] + given[:, :1] * both[:, T:] + given @ theta[2 * p : -1]
        found += theta[-1]
        return found

    def sums(self, values: Array) -> Array:
        """`[p', T]` Σ g v, from `[r, T]`."""
        total, T = values.sum(axis=0, keepdims=True), values.shape[1]
        if self.given is None:
            return np.vstack([self.features.T @ values.astype(np.float32), total])
        both = self.features.T @ np.hstack([values, self.given[:, :1] * values], dtype=np.float32)
        return np.vstack([both[:, :T], both[:, T:], self.given.T @ values, total])


@dataclass(frozen=True)
class _Regression:
    """One day's regression for the outcomes of the days from `first` to before `end`.

    Attributes:
        first, end: days.
        on: `[r]` which of the day's rows take part.
        factor: of the Gram matrix.
        theta: `[p, T·(end − first)]`.
        residual: `[r, T, end − first]`.
        lever: `[r]`.
    """

    first: int
    end: int
    on: Index
    factor: Any
    theta: Array
    residual: Array
    lever: Array

    @classmethod
    def of(cls, first: int, end: int, on: Index, every: _Regressors, weight: Array, goal: Array) -> _Regression:
        """Regress `goal` `[r, T, end − first]` on the rows `on` `[r]` of `every`, with weights `[r]` above 0."""
        root = np.sqrt(weight, dtype=np.float32)[:, None]
        rows = every.weighted(on, root)
        gram = np.asarray(rows.T @ rows, np.float64)
        gram[np.diag_indices_from(gram)] += 1e-9 * max(1.0, float(gram[-1, -1]))
        inner = np.arange(len(gram) - 1)
        gram[inner, inner] += RIDGE * float(weight @ weight) / float(weight.sum())
        factor = cho_factor(gram)
        weighted = np.multiply(goal.reshape(len(on), -1), root, dtype=np.float32)
        theta = cho_solve(factor, (rows.T @ weighted).astype(np.float64))
        inverse = solve_triangular(factor[0], np.eye(len(gram)))
        lever = np.square(rows @ inverse.astype(np.float32)).sum(axis=1, dtype=np.float64)
        residual = goal - (rows @ theta.astype(np.float32) / root).reshape(goal.shape)
        return cls(first, end, on, factor, theta, residual, np.minimum(lever, MOST_LEVERAGE))

    def carried(self, every: _Regressors, before: Array, weight: Array) -> Array:
        """Mass `[r, end − first]` of the rows that take part, from what arrives `[n, end − first]` in all n rows."""
        alike = before[:, :1] if (before == before[:, :1]).all() else before
        return np.broadcast_to(self.mass(every, alike, weight), (len(self.on), self.end - self.first))

    def mass(self, every: _Regressors, before: Array, weight: Array) -> Array:
        """`[r, k]` of what arrives `[n, k]` in all n rows."""
        return every.times(cho_solve(self.factor, every.sums(before)), self.on) * weight[self.on, None]


@dataclass(frozen=True)
class _Apart:
    """Means of each day over the rows that the log has on it, as of a policy that acts on that day alone.

    Attributes:
        users: `[U]` whose days count.
        value: `[T, k]`; that of the advantage, the last outcome, stands a day later.
        influence: `[U, T, k]`, of a sum over users.
    """

    users: NDArray[np.bool_]
    value: Array
    influence: Array

    @classmethod
    def empty(cls, users: NDArray[np.bool_], outcomes: int, days: int) -> _Apart:
        """No day yet; a day that is never added is not known."""
        return cls(users, np.full((outcomes, days), np.nan), np.zeros((len(users), outcomes, days)))

    def add(
        self, day: int, fit: _Regression, panel: Panel, rows: Index, every: _Regressors, ratio: Array, fitted: Array
    ) -> None:
        """Fill in what one regression of a day says of that day.

        Args:
            day: the day.
            fit: its regression.
            panel: of the rows.
            rows: `[r]` of the day.
            every: their regressors.
            ratio: `[r]` ρ.
            fitted: `[r, T, end − first]` what the regression gives them.
        """
        user, both = panel.user[rows], ((slice(None, -1), day), (slice(-1, None), day + 1))
        told = [(some, t, self.users & panel.covers(t + 1)) for some, t in both if fit.first <= t < fit.end]
        if not told:
            return
        shares = np.column_stack([covered[user] / covered.sum() for _, _, covered in told])
        masses = fit.mass(every, shares, ratio)
        for i, (some, t, covered) in enumerate(told):
            own, moved = shares[:, i : i + 1] * fitted[:, some, t - fit.first], masses[:, i : i + 1]
            residual, influence = fit.residual[:, some, t - fit.first], self.influence[:, some, t]
            self.value[some, t] = value = own.sum(axis=0) + (moved * residual).sum(axis=0)
            influence[user] += own
            influence[covered] -= value / covered.sum()
            influence[user[fit.on]] += moved / (1 - fit.lever)[:, None] * residual


@dataclass(frozen=True)
class Sequential:
    """Evaluation day by day on the rows of a panel.

    A fit needs 16 bytes of memory for each user, day and outcome, and 8 for each feature of a day's rows.

    Attributes:
        panel: the rows.
        features: `[n, p]` of each row's state and the user's earlier days, of spread 1.
        propensity: `[n]` of the logged action.
        window: days k whose means replace discounted ones (`windowed.py`).
        paths: whether g also has how far the user's earlier actions agree with the policy, on which the ratio depends.
            This has less bias and about twice the noise.
        advantages: `[n]` of every row, and the log's value there (`long_run.py`); with them, `LONG_RUN` is estimated.
    """

    panel: Panel
    features: NDArray[np.float32]
    propensity: Array
    window: int
    paths: bool = False
    advantages: tuple[Array, Array] | None = None

    def fit(
        self,
        policy: NDArray[Any] | None = None,
        *,
        days: Sequence[int] = (),
        among: NDArray[np.bool_] | None = None,
    ) -> Fitted:
        """Estimate the value of a policy on the users of the panel.

        Args:
            policy: `[n]`, `[n, K]` or None, as for `Panel.follow`.
            days: horizons k of the totals.
            among: `[U]` users to average over, and whose rows are used; default all.

        Raises:
            LogError: if the policy takes an action that is not allowed, or a propensity of a row with a choice is
                missing or outside (0, 1].
        """
        panel = self.panel
        members = np.ones(panel.num_users, np.bool_) if among is None else among
        target, ratio = row_ratios(panel, policy, self.propensity)
        assert ratio is not None
        given = None if policy is None else self._given(target)
        never = None if policy is None else self._never(target, members)
        horizons = sorted({*days, self.window})
        covered_days = [k for k in horizons if (members & panel.covers(k)).any()]
        parts: list[Fitted] = []
        daily = np.full((max(horizons), len(panel.names)), np.nan)
        if covered_days:
            means = self._days(max(covered_days), members, ratio, given)
        for k in reversed(covered_days):
            names = self._names if k == self.window else panel.names
            parts.insert(0, self._sums([str(Target(name, k)) for name in names], means, np.ones(k), never, k))
            if parts[0].withheld[0] is None:
                daily[:k] = means.value[: len(panel.names), :k].T
            if k == self.window:
                parts.insert(0, self._sums(names, means, discounted_weights(k, panel.discount), never, 1))
                if self.advantages is not None:
                    parts.append(self._to_choose_by(means, members, never))
        parts += [self._not_shown(k) for k in horizons if k not in covered_days]
        if panel.data.steady:
            parts += [
                sure("decisions", 1.0, panel),
                sure(str(Target("decisions", self.window)), self.window, panel),
            ]
        whole = Fitted(
            **joined(parts, panel.clusters),
            unsupported=np.concatenate([part.unsupported for part in parts]),
            daily=daily,
        )
        return over_window(whole, (*panel.names, "decisions"), self.window)

    def _days(self, days: int, users: NDArray[np.bool_], ratio: Array, given: Array | None) -> Days:
        """Estimate each of the first `days` days over `users` `[U]`, from their rows only."""
        panel, U = self.panel, self.panel.num_users
        share, known = users / users.sum(), panel.known_until(days)
        ahead = np.zeros((U, self._outcome.shape[1], days))  # of each user's next row
        stages: list[tuple[Index, list[_Regression]]] = []
        apart = None if self.advantages is None else _Apart.empty(users, self._outcome.shape[1], days)
        for day in range(days - 1, -1, -1):
            rows = self._rows[day][users[panel.user[self._rows[day]]]]
            every, taken = self._regressors(rows, given), np.flatnonzero(ratio[rows] > 0)
            goal, until = self._goal(rows[taken], ahead, day), known[rows]
            fits = []
            for first, end in _spells(until, day, days):
                told = np.flatnonzero(until[taken] > first)
                if len(told) == 0:
                    continue
                on, part = taken[told], goal[told, :, first - day : end - day]
                fits.append(_Regression.of(first, end, on, every, ratio[rows[on]], part))
                fitted = every.times(fits[-1].theta).reshape(len(rows), *part.shape[1:])
                ahead[panel.user[rows], :, first:end] = fitted
                if apart is not None:
                    apart.add(day, fits[-1], panel, rows, every, ratio[rows], fitted)
            stages.append((rows, fits))
        value = np.tensordot(share, ahead, 1)
        influence = share[:, None, None] * (ahead - value)
        mass, shown = np.zeros((U, days)), days
        extrapolated = np.zeros(days)
        arriving = np.repeat(share[:, None], days, axis=1)  # at each user's next row, for the outcomes of each day
        for day, (rows, fits) in enumerate(reversed(stages)):
            user, every = panel.user[rows], self._regressors(rows, given)
            before = arriving[user]
            arriving[user] = 0.0
            lost = np.flatnonzero(before[:, day:].any(axis=0))  # no row goes on, or none with the policy's action
            lost = np.setdiff1d(day + lost, [t for fit in fits for t in range(fit.first, fit.end)])
            shown = min(shown, *lost) if len(lost) else shown
            for fit in fits:
                spell, on = slice(fit.first, fit.end), user[fit.on]
                moved = fit.carried(every, before[:, spell], ratio[rows])
                value[:, spell] += np.einsum("nd,ntd->td", moved, fit.residual)
                influence[on, :, spell] += (moved / (1 - fit.lever)[:, None])[:, None, :] * fit.residual
                arriving[on, spell] = moved
                if fit.first == day:
                    mass[on, day] = moved[:, 0]
                    extrapolated[day] = -np.minimum(moved[:, 0], 0).sum()
        reached = np.array([(users & panel.covers(day + 1)).sum() for day in range(days)])
        unlike = self._unlike(users.tobytes(), days)
        return Days(value, U * influence, mass, extrapolated, unlike, reached, shown, apart)

    def _goal(self, rows: Index, ahead: Array, day: int) -> Array:
        """`[r, T, k − day]` outcomes of some rows of a day and what lies ahead of them.

        An advantage is known by the next day, and counted there.
        """
        panel = self.panel
        goal = np.where(panel.following[rows, None, None] >= 0, ahead[panel.user[rows], :, day:], 0.0)
        goal[:, :, 0] = self._outcome[rows]
        if self.advantages is not None:
            goal[:, -1, 0] = 0.0
            goal[:, -1, 1:2] = self._outcome[rows, -1:]
        return goal

    def _regressors(self, rows: Index, given: Array | None) -> _Regressors:
        """Return the regressors of some rows; `given` is from `_given`."""
        return _Regressors(self.features[rows], None if given is None else given[rows])

    def _given(self, target: TargetPolicy) -> Array | None:
        """Return `[n, 1+q]` for a policy: its amount, of spread 1, then its probability of each action.

        None if the policy gives all rows the same and `paths` is false.
        """
        panel, kinds = self.panel, np.unique(target.kind)
        table = target.table[:, target.table[kinds].std(axis=0) > 0][:, 1:]
        amount = (target.table @ panel.data.actions)[target.kind, None]
        columns = [
            (amount - amount.mean()) / (amount.std() or 1.0),
            (table - table[target.kind].mean(axis=0))[target.kind],
        ]
        if self.paths:
            columns.append(standardised(before(panel, target.of(panel.action)[:, None])))
        elif len(kinds) < 2:
            return None
        return np.hstack(columns, dtype=np.float64)

    def _sums(
        self, names: Sequence[str], means: Days, weights: Array, never: tuple[Reason, float] | None, rows_at_most: int
    ) -> Fitted:
        """Return the sums of the first k days with `weights` `[k]`, for the first outcomes, `names`."""
        k, T = len(weights), len(names)
        value = means.value[:T, :k] @ weights
        lost = Reason(ReasonKind.NEVER_GIVEN_AFTER, {"days": int(means.shown)}) if k > means.shown else None
        mass = means.mass[:, :k].sum(axis=1)
        few = HARDLY_ANY if min(effective_size(mass), means.reached[k - 1]) < FEWEST else None
        reason = never[0] if never else lost or few or why_unlike(means.unlike[:k])
        whole = Fitted(
            targets=tuple(names),
            value=value,
            influence=means.influence[:, :T, :k] @ weights,
            mass=np.repeat(mass[:, None], T, axis=1),
            withheld=(None,) * T,
            unsupported=np.full(T, never[1] if never else means.extrapolated[:k].mean()),
            daily=np.empty((0, len(self.panel.names))),
        )
        return whole.without(
            [
                reason or (None if ok else Reason(ReasonKind.UNSTABLE))
                for ok in possible(value, self._range, rows_at_most)
            ]
        )

    def _to_choose_by(self, means: Days, users: NDArray[np.bool_], never: tuple[Reason, float] | None) -> Fitted:
        """Return `LONG_RUN`, and all that is chosen by as if earlier days were the log's (`in_log_states`).

        Rewards are the log's value at first states and the mean advantage of some days; the others, means over the
        window.
        """
        assert self.advantages is not None
        assert means.apart is not None
        start, U = self.advantages[1][self.panel.first], len(users)
        base, k = start[users].mean(), self.window
        days = max(1, k - 1)
        told, weights = slice(1, 1 + days), discounted_weights(k, self.panel.discount)
        own = np.where(users, (start - base) * U / users.sum(), 0.0)
        lost = Reason(ReasonKind.NEVER_GIVEN_AFTER, {"days": int(means.shown)})
        reason = never[0] if never else lost if days > means.shown else why_unlike(means.unlike[told])
        apart, influence = means.apart.value, U * means.apart.influence
        columns = [
            (base + means.value[-1, told].mean(), own + means.influence[:, -1, told].mean(axis=1)),
            (base + apart[-1, told].mean(), own + influence[:, -1, told].mean(axis=1)),
            *((apart[t, :k] @ weights, influence[:, t, :k] @ weights) for t in range(1, len(self._names))),
        ]
        unknown = np.nan if reason else 0.0
        targets = (LONG_RUN, *(in_log_states(name) for name in self._names))
        return Fitted(
            targets=targets,
            value=np.array([value for value, _ in columns]) + unknown,
            influence=np.column_stack([of for _, of in columns]) + unknown,
            mass=np.repeat(means.mass[:, :days].sum(axis=1)[:, None], len(targets), axis=1),
            withheld=(reason,) * len(targets),
            unsupported=np.array([never[1] if never else means.extrapolated[:days].mean(), *[0.0] * len(self._names)]),
            daily=np.empty((0, len(self.panel.names))),
        )

    def _not_shown(self, days: int) -> Fitted:
        """Return withheld totals of a number of days that no user's log covers."""
        names = self._names if days == self.window else self.panel.names
        targets = tuple(str(Target(name, days)) for name in names)
        return not_shown((*names, *targets) if days == self.window else targets, self.panel, days)

    def _never(self, target: TargetPolicy, members: NDArray[np.bool_]) -> tuple[Reason, float] | None:
        """Return a reason and a share if the policy takes an action that these users never had; otherwise None."""
        panel = self.panel
        rows = np.flatnonzero(members[panel.user])
        logged = np.bincount(panel.action[rows], minlength=panel.data.num_actions)
        gives = np.bincount(target.kind[rows], minlength=len(target.table)) @ target.table
        unseen = np.flatnonzero((logged == 0) & (gives > 0))
        if len(unseen) == 0:
            return None
        action = panel.data.given(int(unseen[gives[unseen].argmax()]))
        reason = Reason(ReasonKind.NEVER_GIVEN, {"action": action})
        return reason, float(gives[unseen].sum() / len(rows))

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return self.panel.names if self.panel.data.steady else (*self.panel.names, "decisions")

    @cached_property
    def _outcome(self) -> Array:
        """The outcomes `[n, T]`: reward, costs, decisions where their number differs, advantages where given."""
        panel = self.panel
        columns = [panel.outcome]
        if not panel.data.steady:
            columns.append(np.asarray(~panel.forced[:, None], np.float64))
        if self.advantages is not None:
            columns.append(self.advantages[0][:, None])
        return np.hstack(columns, dtype=np.float64)

    @cached_property
    def _range(self) -> Array:
        return range_of(self._outcome)

    @cached_property
    def _unlike(self) -> Callable[[bytes, int], Array]:
        """By users and days (`windowed.py`); the same for every policy."""
        return lru_cache(maxsize=4)(
            lambda users, days: unlike(self.panel, self.features, np.frombuffer(users, np.bool_), days)
        )

    @cached_property
    def _rows(self) -> list[Index]:
        """Rows by day."""
        day = self.panel.day
        order = np.argsort(day, kind="stable")
        ends = np.cumsum(np.bincount(day, minlength=int(self.panel.window.max())))
        return np.split(order, ends[:-1])


def _spells(until: NDArray[np.int64], day: int, days: int) -> list[tuple[int, int]]:
    """The days from `day` to before `days` in spells, in each of which the same rows are known."""
    ends = [day, *np.unique(until[(until > day) & (until < days)]).tolist(), days]
    return list(pairwise(ends))
