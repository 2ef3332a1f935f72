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
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.reasons import Reason, ReasonKind
from outlay.core.target import Target
from outlay.estimators.basis import Array, Basis
from outlay.estimators.clusters import by_cluster
from outlay.estimators.fitted import LEAST_ROWS, SUPPORT, Sample
from outlay.estimators.importance import few_users, row_ratios
from outlay.estimators.joint import Joint, certain, joined, withheld
from outlay.estimators.panel import Index, Panel
from outlay.estimators.path_sums import FoldValues, WeightedPaths
from outlay.estimators.recursion import Need, forward, future_values
from outlay.estimators.regression import PolicyMoves, Stage
from outlay.estimators.windowed import over_window
from outlay.ops.hashing import uniform
from outlay.ops.importance import row_weights

FOLDS = 5
MOST = 0.01  # of all weight for one user, so that 100 carry it; up to here 92 to 97% of 95% intervals held
SALT = "doubly robust"


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
    """

    panel: Panel
    basis: Basis
    folds: int = FOLDS
    support: float = SUPPORT
    least_rows: int = LEAST_ROWS
    window: int | None = None

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
        paths = [
            WeightedPaths.discounted(panel, start, members),
            *(WeightedPaths.total(panel, k, first, members) for k in horizons),
        ]
        if ratio is None:
            return self._joined([self._withheld(part, Reason(ReasonKind.NO_PROPENSITIES)) for part in paths], members)
        moves = PolicyMoves.of(panel, self._whole.log, target)
        (seen,) = self._whole.stages(moves, (1,), least_rows=1)
        needs = [self._never_given(part, seen) for part in paths]
        sums = [np.zeros((panel.num_users, len(self._names(part)))) for part in paths]
        errors, unclosed = np.zeros_like(sums[0]), None
        for fold, others in self._others:
            critic = FoldValues.of(others, moves, max(horizons, default=0), self.least_rows)
            for part, total in zip(paths, sums, strict=True):
                critic.add(part, fold, total)
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
        need = Need(self.panel.data.actions)
        weight, moves = part.share[part.user] * part.before, seen.moves
        need.arrive(seen, np.bincount(moves.point[part.rows], weight, moves.num_points).astype(np.float64))
        return need

    def _result(self, part: WeightedPaths, sums: Array, reason: Reason | None, need: Need, errors: Array) -> Robust:
        """The value from the sums `[U, T]` of each user and the error of the closing values `[U, T]`."""
        if not part.covered:
            nobody = Reason(ReasonKind.NOBODY)
            reason = nobody if part.days is None else Reason(ReasonKind.NOT_SHOWN, {"days": part.days})
        elif not part.mass.any():
            none = Reason(ReasonKind.NO_PATH)
            reason = none if part.days is None else Reason(ReasonKind.NO_PATH_SO_LONG, {"days": part.days})
        reason = reason or need.reason(self.support)
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

    def _withheld(self, part: WeightedPaths, reason: Reason) -> Robust:
        return Robust(**withheld(self._names(part), self.panel.num_users, reason))

    def _joined(self, parts: list[Robust], members: NDArray[np.bool_]) -> Robust:
        """The discounted part and the totals, and the decisions between them where they are known."""
        known = (
            {}
            if not self.panel.data.steady
            else {"decisions": 1.0}
            if self.window is None
            else {"decisions": 1.0, str(Target("decisions", self.window)): float(self.window)}
        )
        for place, (target, value) in enumerate(known.items(), start=1):
            one = vars(certain(target, value, self.panel.num_users))
            one["mass"] = members[:, None].astype(np.float64)
            parts.insert(place, Robust(**one))
        whole = Robust(**joined(parts, self.panel.clusters))
        return over_window(whole, (*self.panel.names, "decisions"), self.window)
