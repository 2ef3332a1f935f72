"""Per-decision doubly robust estimation, cross-fitted by user, or by cluster.

    k days       Ψ = Σ_{t: day_t < k} w_{t−1} V̂_h(s_t) + w_t (x_t − Q̂_h(s_t, a_t))        h = k − day_t
    discounted   Ψ = Σ_{t ≥ start} γ^{day_t − day_start} (w_{t−1} V̂(s_t) + w_t ((1−γ) x_t − Q̂(s_t, a_t)))
    weights      w_t = Π_{s ≤ t} π(a_s) / p(a_s)

The value is the mean of Ψ over users. Q̂ and V̂ come from fitted evaluation (`fitted.py`) on the users of the other
folds, so that no value meets an outcome that it was fitted to. Whatever Q̂ is, its terms have mean zero if the
propensities are right: totals rest on those alone, and a good Q̂ only takes noise away. In the discounted sum the last
row of a truncated path has no w_t: its V̂ stands for all that follows, and there the value rests on what fitted
evaluation rests on. In totals, a row after which the log does not show all k days adds nothing: the mean of what the
other rows of its day add stands for it, and V̂ for how users whose window ends early differ from them. What the error of
V̂ adds there belongs to the influence of the users that V̂ was fitted to.

Weights are never clipped: a clipped weight is biased, and no biased number may enter a certificate. If weights are
heavy-tailed the intervals miss too often; `cautions` says so.

Single steps say how far the fitted values err along the policy, in the states of the log:

    D_h = mean over rows of ρ r       r = x + V_{h−1}(s') − Q_h(s, a),   ρ = π(a) / p(a) of the one step
    D(k) = D_1 + … + D_k              of the total of k days

Every row that has a next row, or days enough after it, is a start, so far more rows go the policy's way for one step
than users do for days on end, and no ratios are multiplied. If the propensities are right and Q is, D is 0 but for
noise. It is not where the basis cannot hold Q and the rows that decide it lie elsewhere than the policy's: a linear
basis is then wrong by as much in the states of the log, and says nothing of it. The error of D,

    ψ_u = U Σ_{t∈u} (ρ_t/n − dᵀφ_t) r_t        d = (Σ φφᵀ)⁻¹ Σ φ ρ/n

is large where few rows are like those that the policy makes. So it is a measure of overlap, in the unit of the value,
for states that are not counted. Where they are, and p depends on them alone, ρ lies in the basis and D is 0 always.
What the fitted values err by in states that the log hardly has is not seen.

Source: Jiang & Li (2016) and Thomas & Brunskill (2016) for the estimator; Chernozhukov et al. (2018) for cross-fitting;
Robins, Rotnitzky & Zhao (1994) for one step; Kallus & Uehara (2020) for weighted Bellman residuals. The closed tail and
its error, and single steps as a test of a basis and a measure of overlap: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.cached import cached_property
from outlay.core.estimate import Target
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.basis import Array, Basis, StateActions
from outlay.estimators.clusters import by_cluster
from outlay.estimators.fitted import Sample
from outlay.estimators.importance import few_users, row_ratios
from outlay.estimators.joint import Joint, certain, joined, withheld
from outlay.estimators.panel import Index, Panel
from outlay.estimators.recursion import Discounted, Need, adjoint, forward, future_values, solve
from outlay.estimators.regression import PolicyMoves, Stage, supported
from outlay.estimators.sequential import FEWEST, HARDLY_ANY
from outlay.estimators.windowed import LEAST_ROWS, SUPPORT, over_window
from outlay.ops.hashing import uniform
from outlay.ops.importance import row_weights

FOLDS = 5
MOST = 0.01  # of all weight for one user, so that 100 carry it; up to here 92 to 97% of 95% intervals held
SALT = "doubly robust"


@dataclass(frozen=True)
class WeightedPaths:
    """The r rows with a weight that enter one value.

    Attributes:
        days: of the total; None: discounted.
        rows: `[r]` where the weight before the row is above 0.
        user: `[r]` of each.
        before: `[r]` that weight, discounted.
        after: `[r]` the weight after the row, discounted; 0 in rows that close their path.
        left: `[r]` days left, the row's included; 0: discounted.
        closes: `[r]` bool, truncated rows, after which nothing is known; of discounted values.
        share: `[U]` of each user in the value.
        covered: users whose days the log shows.
        mass: `[U]` the weight of each user after the k days; discounted: the discounted mean of the weights.
    """

    days: int | None
    rows: Index
    user: Index
    before: Array
    after: Array
    left: Index
    closes: NDArray[np.bool_]
    share: Array
    covered: int
    mass: Array

    @classmethod
    def total(cls, panel: Panel, days: int, weights: tuple[Array, Array], members: NDArray[np.bool_]) -> WeightedPaths:
        """The first k days of the members.

        What a row adds is known if the log goes on to show what follows it, by the window alone (`Panel.at_risk`); the
        mean of what all such rows of a day add stands for all of that day.

        Args:
            panel: the rows.
            days: k.
            weights: `[n]` before and after each row.
            members: `[U]` whose value it is.
        """
        before, after = weights
        rows = np.flatnonzero((before > 0) & (panel.day < days) & members[panel.user])
        user, following, day = panel.user[rows], panel.following[rows], panel.day[rows]
        risk = panel.at_risk(days)
        up = members.sum() / np.maximum(1, risk @ members)
        known = risk[day, user] * up[day]
        arrived = np.ones(len(panel))
        on = following >= 0
        arrived[following[on]] = known[on]
        last = (following < 0) | (panel.day[following] >= days)
        after = after[rows] * known
        return cls(
            days=days,
            rows=rows,
            user=user,
            before=before[rows] * arrived[rows],
            after=after,
            left=days - day,
            closes=np.zeros(len(rows), np.bool_),
            share=members / max(1, members.sum()),
            covered=int((members & panel.covers(days)).sum()),
            mass=np.bincount(user[last], after[last], panel.num_users).astype(np.float64),
        )

    @classmethod
    def discounted(cls, panel: Panel, weights: tuple[Array, Array], members: NDArray[np.bool_]) -> WeightedPaths:
        """All rows of the members from their start rows on."""
        before, after = weights
        rows = np.flatnonzero((before > 0) & members[panel.user])
        user = panel.user[rows]
        fade = panel.discount ** (panel.day[rows] - panel.day[panel.start[user]]).astype(np.float64)
        rows, user, fade = rows[fade > 0], user[fade > 0], fade[fade > 0]
        closes = (panel.following[rows] < 0) & ~panel.terminal[rows] & (panel.discount > 0)
        known = np.where(closes, 0, fade * after[rows])
        # Each row weighs for the time up to the next, and the last one for all time after it.
        span = np.where(panel.following[rows] < 0, 1, 1 - panel.discount ** panel.gap[rows].astype(np.float64))
        weight = np.where(closes, fade * before[rows], span * known)
        return cls(
            days=None,
            rows=rows,
            user=user,
            before=fade * before[rows],
            after=known,
            left=np.zeros(len(rows), np.intp),
            closes=closes,
            share=members / max(1, members.sum()),
            covered=int(members.sum()),
            mass=np.bincount(user, weight, panel.num_users).astype(np.float64),
        )


@dataclass(frozen=True)
class FoldValues:
    """Values of one policy, by days left: key h is for h days, key 0 for the discounted values where there are any.

    Attributes:
        sample: the rows that they were fitted to.
        discounted: the discounted values; None where only totals are estimated.
        stages: the policy's moves in each regression.
        theta: of `[P, T]`.
        values: of `[Q, T]`, of every point of the panel.
        least_rows: a pair with fewer rows behind it is thin.
    """

    sample: Sample
    discounted: Discounted | None
    stages: dict[int, Stage]
    theta: dict[int, Array]
    values: dict[int, Array]
    least_rows: int

    @classmethod
    def of(
        cls, sample: Sample, moves: PolicyMoves, days: int, least_rows: int, *, totals_only: bool = False
    ) -> FoldValues:
        """Fit the values of a policy with up to `days` days left, and the discounted ones unless only totals are."""
        panel, basis = sample.panel, sample.basis
        lefts = (*([] if totals_only else [None]), *range(1, days + 1))
        stages = dict(zip((left or 0 for left in lefts), sample.stages(moves, lefts, least_rows), strict=True))
        ahead = forward(basis, moves, [stages[h] for h in range(1, days + 1)], len(sample.names))
        theta, values = dict(enumerate(ahead.theta, 1)), dict(enumerate(ahead.values[1:], 1))
        if totals_only:
            return cls(sample, None, stages, theta, values, least_rows)
        solution = solve(basis, stages[0], panel.discount)
        theta[0], values[0] = solution.theta, solution.values
        return cls(sample, solution, stages, theta, values, least_rows)

    def add(self, paths: WeightedPaths, users: NDArray[np.bool_], sums: Array) -> None:
        """Add the rows of some users `[U]`, to whom these values were not fitted, to the sums `[U, T]`."""
        panel, basis = self.sample.panel, self.sample.basis
        mine = np.flatnonzero(users[paths.user])
        left = paths.left[mine]
        for h in np.unique(left):
            now = mine[left == h]
            rows, stage = paths.rows[now], self.stages[h]
            logged = supported(StateActions(rows, panel.action[rows]), stage.reg, basis, self.least_rows)
            width = sums.shape[1]
            outcome = self.sample.outcome[rows, :width] * (1 - panel.discount if paths.days is None else 1)
            seen = paths.after[now, None] * (outcome - basis.evaluate(logged, self.theta[h][:, :width]))
            terms = seen + paths.before[now, None] * self.values[h][stage.moves.point[rows], :width]
            for t, column in enumerate(terms.T):
                sums[:, t] += np.bincount(paths.user[now], column, panel.num_users)

    def closing_errors(self, paths: WeightedPaths, users: NDArray[np.bool_], need: Need) -> Array:
        """Return `[U, T]` what the error of the values that close the paths of `users` `[U]` adds to the mean.

        Which states those are is read off the paths of all users, as it is the same in every fold. The paths that meet
        thin pairs from there on are added to `need`.
        """
        assert self.discounted is not None
        sample, moves = self.sample, self.stages[0].moves
        last, share = paths.closes, paths.share[paths.user]
        arriving = np.bincount(moves.point[paths.rows[last]], (share * paths.before)[last], moves.num_points)
        back = adjoint(sample.basis, self.discounted, arriving * paths.share[users].sum(), need)
        return sample.errors(moves, back)[:, 0]

    def unclosed(self, paths: WeightedPaths, users: NDArray[np.bool_]) -> Reason | None:
        """Return why these values cannot close the paths of `users` `[U]`, or None."""
        if not self.stages[0].reg.usable.any():
            return Reason(ReasonKind.NOTHING_FOLLOWS)
        share = paths.share * users
        value = share @ self.values[0][self.stages[0].moves.start] / max(share.sum(), 1e-300)
        return None if self.sample.possible(value, 1).all() else Reason(ReasonKind.UNSTABLE)


@dataclass(frozen=True, kw_only=True)
class Robust(Joint):
    """Doubly robust values of one policy or mixture, with the targets of `Fitted`.

    `mass` is each user's weight at the end of the k days; of discounted values the discounted mean of the weights.
    """

    @property
    def tail(self) -> NDArray[np.float64]:
        """`[T]` the largest share of all weight that one user has."""
        total = self.mass.sum(axis=0)
        share: NDArray[np.float64] = np.divide(self.mass.max(axis=0), total, out=np.zeros_like(total), where=total > 0)
        return share

    def cautions(self) -> list[Reason | None]:
        """Return `[T]` why not to rely on a number, or None: few users, or one with too much of the weight."""
        return [
            few_users(ess)
            or (Reason(ReasonKind.HEAVY_USER, {"share": float(tail), "most": MOST}) if tail > MOST else None)
            for ess, tail in zip(self.ess, self.tail, strict=True)
        ]


def fold_of(panel: Panel, folds: int) -> Index:
    """`[U]` fold of each user: a salted hash of the user's number in the DATA folder, or of that of the cluster."""
    users, cluster = panel.data.user[panel.rows[panel.first]], panel.data.cluster
    numbers = users.tolist() if cluster is None else cluster[users].tolist()
    return (uniform(SALT, numbers) * folds).astype(np.intp)


@dataclass(frozen=True)
class DoublyRobust:
    """Doubly robust estimation on the rows of a panel; what no policy changes is computed once for all of them.

    It keeps what `Evaluator` keeps, with Gram matrices for each fold; the values of one fold are in memory at a time.

    Attributes:
        panel: the rows; `basis` is over the same rows.
        basis: Counted, Smooth or Features.
        folds: 2 or more.
        support: largest share of paths with which a number is still given: of those that meet a state where the policy
            gives what these users were never given there or, beyond the last row of a truncated path, a thin pair.
        least_rows: a pair with fewer rows behind it is thin and takes the state-free mean of its action.
        window: days k whose means stand in the place of discounted ones (`windowed.py`); None: discounted.
        day_by_day: whether fitted evaluation goes day by day (`sequential.py`). Then no discounted value is estimated,
            as the state is not relied on to be Markov, and the value that completes it would be; nor a total that the
            paths of hardly any user match, since that takes as long as one that says something.
    """

    panel: Panel
    basis: Basis
    folds: int = FOLDS
    support: float = SUPPORT
    least_rows: int = LEAST_ROWS
    window: int | None = None
    day_by_day: bool = False

    def estimate(
        self,
        policy: NDArray[Any] | None,
        *,
        days: Sequence[int] = (),
        propensity: NDArray[np.floating] | None = None,
        among: NDArray[np.bool_] | None = None,
    ) -> Robust:
        """Value of a policy on the users of the panel.

        Args:
            policy: as `Panel.follow` takes it: `[n]`, `[n, K]`, or None, whose weights are 1.
            days: horizons k of the totals.
            propensity: `[n]` of the logged action; default as logged.
            among: `[U]` users whose value it is; default all. The rows of all users are used in any case.

        Raises:
            LogError: if the policy is not allowed, or a propensity of a row with a choice is missing or outside (0, 1].
        """
        panel, horizons = self.panel, sorted({*days, *([] if self.window is None else [self.window])})
        target, ratio = row_ratios(panel, policy, propensity)
        members = np.ones(panel.num_users, np.bool_) if among is None else among
        along = np.ones(len(panel)) if ratio is None else ratio
        first = row_weights(along, panel.following, panel.first)
        start = row_weights(along, panel.following, panel.start)
        paths = [WeightedPaths.total(panel, k, first, members) for k in horizons]
        if not self.day_by_day:
            paths.insert(0, WeightedPaths.discounted(panel, start, members))
        if ratio is None:
            return self._joined([self._withheld(part, Reason(ReasonKind.NO_PROPENSITIES)) for part in paths], members)
        moves = PolicyMoves.of(panel, self._whole.log, target)
        (seen,) = self._whole.stages(moves, (1,), least_rows=1)
        needs = [self._never_given(part, seen) for part in paths]
        sums = [np.zeros((panel.num_users, len(self._names(part)))) for part in paths]
        errors, unclosed = np.zeros((panel.num_users, len(self._whole.names))), None
        told: list[tuple[WeightedPaths, Array]] = []  # for which values are to be fitted
        for part, total in zip(paths, sums, strict=True):
            if self._nobody(part) is not None:
                continue
            if policy is None and part.days is not None and np.array_equal(part.before, part.after):
                total += self._observed(part, total.shape[1])  # V̂(s) = Q̂(s, a) in every row: they cancel
            else:
                told.append((part, total))
        for fold, others in self._others if told else ():
            most = max(part.days or 0 for part, _ in told)
            critic = FoldValues.of(others, moves, most, self.least_rows, totals_only=self.day_by_day)
            for part, total in told:
                critic.add(part, fold, total)
            if not self.day_by_day:
                errors += critic.closing_errors(paths[0], fold, needs[0])
                unclosed = unclosed or critic.unclosed(paths[0], fold)
        return self._joined(
            [
                self._result(part, total, unclosed if part.days is None else None, need, errors)
                for part, total, need in zip(paths, sums, needs, strict=True)
            ],
            members,
        )

    def single_steps(
        self, policy: NDArray[Any] | None, propensity: NDArray[np.floating], *, days: Sequence[int]
    ) -> Joint:
        """Return D of the totals `reward@k`, `cost@k` of a policy: the totals by the propensities less the fitted ones.

        Args:
            policy: as `Panel.follow` takes it: `[n]`, `[n, K]`, or None, whose D is 0.
            propensity: `[n]` of the logged action.
            days: horizons k that the log shows (`Panel.covers`).

        Returns:
            A joint; `mass` `[U, T]` are the weights of each user's rows.

        Raises:
            LogError: if the policy is not allowed, or a propensity of a row with a choice is missing or outside (0, 1].
        """
        sample, panel, basis, horizons = self._whole, self.panel, self.basis, sorted(set(days))
        target, ratio = row_ratios(panel, policy, propensity)
        assert ratio is not None  # propensities were given
        moves, T = PolicyMoves.of(panel, sample.log, target), len(panel.names)
        stages = sample.stages(moves, range(1, max(horizons, default=0) + 1), self.least_rows)
        ahead = forward(basis, moves, stages, T)
        value, errors = np.zeros(T), np.zeros((panel.num_users, T))
        values: list[Array] = []
        influences: list[Array] = []
        for h, stage in enumerate(stages, start=1):
            place = np.full(len(moves.logged), -1)
            place[stage.cells] = np.arange(len(stage.cells))
            rows = np.flatnonzero(place[moves.cells.of] >= 0)
            cell = place[moves.cells.of[rows]]
            weight = ratio[rows] / max(1, len(rows))
            by_cell: Array = np.bincount(cell, weight, len(stage.cells))[:, None].astype(np.float64)
            dual = stage.reg.solver.solve_transposed(basis.project(stage.logged, by_cell))
            both = basis.evaluate(stage.logged, np.hstack([ahead.theta[h - 1], dual]))
            fitted = both[:, :-1] - future_values(stage, ahead.values, h)
            residual = panel.outcome[rows] - fitted[cell]
            value = value + weight @ residual
            slope = (weight - both[cell, -1]) * stage.inflation[cell]
            user = panel.user[rows]
            errors = errors + np.stack([np.bincount(user, slope * r, panel.num_users) for r in residual.T], axis=1)
            if h in horizons:
                values.append(value)
                influences.append(panel.num_users * errors)
        names = tuple(str(Target(name, k)) for k in horizons for name in panel.names)
        mass = np.bincount(panel.user, ratio, panel.num_users)[:, None]
        return Joint(
            targets=names,
            value=np.concatenate([np.zeros(0), *values]),
            influence=by_cluster(np.hstack([np.zeros((panel.num_users, 0)), *influences]), panel.clusters),
            mass=np.repeat(mass, len(names), axis=1),
            withheld=(None,) * len(names),
            clusters=panel.clusters,
        )

    @cached_property
    def _whole(self) -> Sample:
        return Sample.of(self.panel, self.basis)

    @cached_property
    def _others(self) -> list[tuple[NDArray[np.bool_], Sample]]:
        """The users `[U]` of each fold, with the rows of all others."""
        fold = fold_of(self.panel, self.folds)
        return [(fold == f, self._whole.only(fold != f)) for f in range(self.folds) if (fold == f).any()]

    def _names(self, part: WeightedPaths) -> tuple[str, ...]:
        if part.days is None:
            return self._whole.names
        names = self.panel.names if self.window is None else self._whole.names
        return tuple(str(Target(name, part.days)) for name in names)

    def _never_given(self, part: WeightedPaths, seen: Stage) -> Need:
        """The paths that meet a state where the policy gives what no row of it was given."""
        need = Need(self.panel.data.called)
        weight, moves = part.share[part.user] * part.before, seen.moves
        need.arrive(seen, np.bincount(moves.point[part.rows], weight, moves.num_points).astype(np.float64))
        return need

    def _result(self, part: WeightedPaths, sums: Array, reason: Reason | None, need: Need, errors: Array) -> Robust:
        """The value from the sums `[U, T]` of each user and the error of the closing values `[U, T]`."""
        reason = self._nobody(part) or reason or need.reason(self.support)
        if reason is not None:
            return self._withheld(part, reason)
        value = part.share @ sums
        own = part.share[:, None] * (sums - value) + (errors if part.days is None else 0)
        return Robust(
            targets=self._names(part),
            value=value,
            influence=self.panel.num_users * own,
            mass=np.repeat(part.mass[:, None], len(value), axis=1),
            withheld=(None,) * len(value),
        )

    def _observed(self, part: WeightedPaths, outcomes: int) -> Array:
        """`[U, T]` sums of each user's weighted outcomes."""
        outcome, users = self._whole.outcome[part.rows, :outcomes], self.panel.num_users
        return np.stack([np.bincount(part.user, part.after * x, users) for x in outcome.T], axis=1)

    def _nobody(self, part: WeightedPaths) -> Reason | None:
        """Return why a value has hardly a user behind it, or None."""
        if not part.covered:
            nobody = Reason(ReasonKind.NOBODY)
            return nobody if part.days is None else Reason(ReasonKind.NOT_SHOWN, {"days": part.days})
        if not part.mass.any():
            none = Reason(ReasonKind.NO_PATH)
            return none if part.days is None else Reason(ReasonKind.NO_PATH_SO_LONG, {"days": part.days})
        return HARDLY_ANY if self.day_by_day and (part.mass > 0).sum() < FEWEST else None

    def _withheld(self, part: WeightedPaths, reason: Reason) -> Robust:
        return Robust(**withheld(self._names(part), self.panel.num_users, reason))

    def _joined(self, parts: list[Robust], members: NDArray[np.bool_]) -> Robust:
        """The discounted part and the totals, and the decisions after the first of them where they are known."""
        known: dict[str, float] = {}
        if self.panel.data.steady and not self.day_by_day:
            known["decisions"] = 1.0
        if self.panel.data.steady and self.window is not None:
            known[str(Target("decisions", self.window))] = float(self.window)
        for place, (target, value) in enumerate(known.items(), start=1):
            one = vars(certain(target, value, self.panel.num_users))
            one["mass"] = members[:, None].astype(np.float64)
            parts.insert(place, Robust(**one))
        whole = Robust(**joined(parts, self.panel.clusters))
        return over_window(whole, (*self.panel.names, "decisions"), self.window)
