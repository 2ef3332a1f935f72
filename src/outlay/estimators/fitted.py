"""Fitted Q evaluation in a linear class, as one linear system, with the influence function of its value.

Discounted, rows with a next row or a terminal end, φ' = φ(s', π(s')) (0 where terminal):

    M θ = Σ φ (1−γ) x        M = Σ φ (φ − γ^Δ φ')ᵀ        V = mean over users of φ(s₀, π(s₀))ᵀ θ
    ψ_u = φ₀_uᵀθ − V + U Σ_{t∈u} (dᵀφ_t) δ_t              d = M⁻ᵀ mean φ₀,   δ = (1−γ) x + γ^Δ φ'ᵀθ − φᵀθ

dᵀφ_t is the marginal ratio (of the policy's visits to the log's): with counted states exactly the counted ratio.

Total of k days, from first rows, by the horizon h left (a next row Δ days later has h − Δ left; h ≤ 0 brings 0):

    G_h θ_h = Σ φ (x + φ'ᵀθ_{h−Δ})       d_k = G_k⁻¹ mean φ₀,   d_{h−Δ} += G_{h−Δ}⁻¹ Σ φ' (φᵀd_h)

Truncated rows take part only where their future does not matter: γ = 0, or the log covers the h days after them.

What this rests on: outcomes and moves depend on state and action alone, the same on every day of the log (that is how
a week of log speaks for the tail beyond it), and Q lies in the basis. Residuals are divided by √(1 − leverage), as a
coefficient follows its own rows (HC2). A pair (s', π(s')) with fewer than `least_rows` rows behind it takes the
state-free mean of its action; where more than `support` of the policy's paths need that, no number is given.

Source: Le, Voloshin & Yue (2019) for FQE; Lagoudakis & Parr (2003) for the system; Kallus & Uehara (2020) for the
influence function; MacKinnon & White (1985) for HC2. The k-day recursion and its adjoint: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.estimators.basis import Array, Basis, Solver
from outlay.estimators.joint import Joint, mixed
from outlay.estimators.panel import Panel
from outlay.estimators.regression import Need, Regression, regress

IMPOSSIBLE = 0.1  # how far, in ranges of the outcome, a value may leave what outcomes can add up to


@dataclass(frozen=True, kw_only=True)
class Fitted(Joint):
    """Fitted values of one policy or mixture: reward, budgets, decisions, `reward@k`, ….

    `reward`, budgets and `decisions` (1 per decision) are (1−γ)·J over the start population; `@k` are totals of k
    days per user.

    Attributes:
        unsupported: `[T]` share of the policy's paths that meet a pair about which the log says too little.
    """

    unsupported: NDArray[np.float64]


def combine(fitted: Sequence[Fitted], weights: NDArray[np.float64]) -> Fitted:
    """The sticky mixture of policies fitted on the same users, with weights `[k]` ≥ 0."""
    share = sum(w * part.unsupported for part, w in zip(fitted, weights, strict=True) if w != 0)
    return Fitted(**mixed(fitted, weights), unsupported=np.asarray(share))


def fit(
    panel: Panel,
    basis: Basis,
    target: NDArray[np.integer] | None = None,
    *,
    days: Sequence[int] = (),
    support: float = 0.01,
    least_rows: int = 2,
) -> Fitted:
    """Value of a policy on the users of a panel.

    Args:
        panel: the rows; `basis` is over the same rows.
        basis: Counted or Features.
        target: `[n]` index of the action it takes in each row; None: the log's own policy.
        days: horizons k of the totals.
        support: largest share of paths that meet thin pairs with which a number is still given.
        least_rows: a pair with fewer rows behind it is thin.

    Raises:
        LogError: if the policy takes an action that is not allowed.
    """
    policy = panel.follow(target)
    known: dict[int, Regression] = {}

    def regression(usable: NDArray[np.bool_]) -> Regression:
        # Usable rows only shrink as the horizon grows, so their number says which set it is.
        key = int(usable.sum())
        if key not in known:
            known[key] = regress(panel, basis, policy, usable, least_rows)
        return known[key]

    ends_known = (panel.following >= 0) | panel.terminal
    left = panel.window[panel.user] - panel.day  # days of log from this row on, itself included
    discounted = _discounted(panel, basis, regression(ends_known | (panel.discount == 0)), support)
    horizons = sorted(set(days))
    stages = [regression(ends_known | (left >= h)) for h in range(1, max(horizons, default=0) + 1)]
    parts = [discounted, *_totals(panel, basis, stages, horizons, support)]
    return Fitted(
        targets=tuple(name for part in parts for name in part.targets),
        value=np.concatenate([part.value for part in parts]),
        influence=np.hstack([part.influence for part in parts]),
        mass=np.hstack([part.mass for part in parts]),
        withheld=tuple(reason for part in parts for reason in part.withheld),
        unsupported=np.concatenate([part.unsupported for part in parts]),
    )


def _discounted(panel: Panel, basis: Basis, reg: Regression, support: float) -> Fitted:
    """(1−γ)·J of reward, costs and decisions over the start population."""
    outcome = panel.outcome
    if not panel.data.steady:
        outcome = np.column_stack([outcome, ~panel.forced])
    following = panel.following[reg.rows]
    weight = np.where(following >= 0, panel.discount ** panel.gap[reg.rows].astype(float), 0.0)
    on = np.flatnonzero(weight > 0)
    step = (1 - panel.discount) * outcome[reg.rows]

    flow = basis.moment(reg.logged[on], reg.taken[following[on]], weight[on])
    solver = Solver(reg.gram - flow) if len(on) else reg.solver
    theta = solver.solve(basis.project(reg.logged, step))
    starts = np.full((panel.num_users, 1), 1 / panel.num_users)
    dual = solver.solve_transposed(basis.project(reg.taken[panel.start], starts))

    values = basis.evaluate(reg.taken, theta)
    fitted = basis.evaluate(reg.logged, theta)
    visits = basis.evaluate(reg.logged, dual)
    delta = step - fitted
    delta[on] += weight[on, None] * values[following[on]]
    terms = visits * reg.inflation[:, None] * delta
    if reg.thin.any():  # the state-free means are estimated too
        free = reg.logged.state_free
        terms += basis.evaluate(free, dual) * (fitted - basis.evaluate(free, theta))

    scattered = np.zeros((len(panel), terms.shape[1] + 1))
    scattered[reg.rows] = np.column_stack([terms, visits])
    sums = panel.by_user(scattered)
    first = values[panel.start]
    value = first.mean(axis=0)
    need = Need(panel.data.actions)
    need.add(reg, panel.start, starts[:, 0])
    need.add(reg, following[on], np.abs(visits[on, 0]) * weight[on])
    names = (*panel.names, "decisions") if not panel.data.steady else panel.names
    result = _checked(
        names, value, first - value + panel.num_users * sums[:, :-1],
        np.repeat(sums[:, -1:], len(names), axis=1), need, reg, outcome, 1, support,
    )  # fmt: skip
    return result if not panel.data.steady else _with_decisions(result)


def _totals(
    panel: Panel, basis: Basis, stages: Sequence[Regression], horizons: Sequence[int], support: float
) -> list[Fitted]:
    """Totals of k days from first rows, for each k of `horizons`; `stages[h−1]` is the regression with h days left."""
    values = np.zeros((len(stages) + 1, len(panel), len(panel.names)))  # of every row under the policy, by days left
    thetas: list[Array] = []
    for h, reg in enumerate(stages, start=1):
        thetas.append(reg.solver.solve(basis.project(reg.logged, _with_future(panel, reg, values, h))))
        values[h] = basis.evaluate(reg.taken, thetas[-1])
    terms, visits, needs = _backwards(panel, basis, stages, horizons, thetas, values)

    out = []
    for k, horizon in enumerate(horizons):
        first = values[horizon][panel.first]
        value = first.mean(axis=0)
        influence = first - value + panel.num_users * panel.by_user(terms[:, k])
        mass = np.repeat(panel.by_user(visits[:, k : k + 1]), len(panel.names), axis=1)
        names = tuple(f"{name}@{horizon}" for name in panel.names)
        reg = stages[horizon - 1]
        out.append(_checked(names, value, influence, mass, needs[k], reg, panel.outcome, horizon, support))
    return out


def _backwards(
    panel: Panel,
    basis: Basis,
    stages: Sequence[Regression],
    horizons: Sequence[int],
    thetas: Sequence[Array],
    values: Array,
) -> tuple[Array, Array, list[Need]]:
    """The adjoint recursion d_h, for all horizons at once.

    Returns:
        `[n, horizons, 1+m]` what each row adds to the error; `[n, horizons]` the policy's visits to it; the needs.
    """
    terms = np.zeros((len(panel), len(horizons), len(panel.names)))
    visits_of = np.zeros((len(panel), len(horizons)))
    needs = [Need(panel.data.actions) for _ in horizons]
    starts = np.full((panel.num_users, 1), 1 / panel.num_users)
    arriving: dict[int, Array] = {}  # days left → `[n, horizons]` visits that reach each row with that many days left
    for h in range(len(stages), 0, -1):
        reg = stages[h - 1]
        right = np.zeros((basis.size, len(horizons)))
        if h in arriving:
            right += basis.project(reg.taken, arriving.pop(h))
        if h in horizons:
            k = horizons.index(h)
            right[:, k] += basis.project(reg.taken[panel.first], starts)[:, 0]
            needs[k].add(reg, panel.first, starts[:, 0])
        dual = reg.solver.solve_transposed(right)
        both = basis.evaluate(reg.logged, np.hstack([thetas[h - 1], dual]))
        fitted, visits = both[:, : len(panel.names)], both[:, len(panel.names) :]
        delta = reg.inflation[:, None] * (_with_future(panel, reg, values, h) - fitted)
        visits_of[reg.rows] += visits
        terms[reg.rows] += visits[:, :, None] * delta[:, None, :]
        if reg.thin.any():  # the state-free means are estimated too
            free = reg.logged.state_free
            off = fitted - basis.evaluate(free, thetas[h - 1])
            terms[reg.rows] += basis.evaluate(free, dual)[:, :, None] * off[:, None, :]
        following, then = panel.following[reg.rows], h - panel.gap[reg.rows]
        for left in np.unique(then[(following >= 0) & (then > 0)]):
            on = (following >= 0) & (then == left)
            arriving.setdefault(int(left), np.zeros_like(visits_of))[following[on]] += visits[on]
            for k, need in enumerate(needs):
                need.add(stages[left - 1], following[on], np.abs(visits[on, k]))
    return terms, visits_of, needs


def _with_future(panel: Panel, reg: Regression, values: Array, h: int) -> Array:
    """X + φ'ᵀθ_{h−Δ} in the usable rows: `[rows, 1+m]`."""
    then = h - panel.gap[reg.rows]
    following = panel.following[reg.rows]
    on = (following >= 0) & (then > 0)
    total = panel.outcome[reg.rows].copy()
    total[on] += values[then[on], following[on]]
    return total


def _checked(
    names: tuple[str, ...],
    value: Array,
    influence: Array,
    mass: Array,
    need: Need,
    reg: Regression,
    outcome: Array,
    rows_at_most: int,
    support: float,
) -> Fitted:
    """The result, with the numbers taken away that the log cannot carry."""
    if len(reg.rows) == 0:
        shared: str | None = "no row has a next row or a terminal end, so the log does not say what follows a decision"
    else:
        shared = need.reason(support)
    low, high = np.minimum(outcome.min(axis=0), 0), np.maximum(outcome.max(axis=0), 0)
    slack = IMPOSSIBLE * (high - low) + 1e-9
    possible = (value / rows_at_most >= low - slack) & (value / rows_at_most <= high + slack)
    reasons = tuple(
        shared
        or (None if ok else "the fitted value lies outside what the outcomes can add up to: the system is unstable")
        for ok in possible
    )
    gone = np.array([reason is not None for reason in reasons])
    return Fitted(
        targets=names,
        value=np.where(gone, np.nan, value),
        influence=np.where(gone, np.nan, influence),
        mass=mass,
        withheld=reasons,
        unsupported=np.full(len(names), need.share),
    )


def _with_decisions(result: Fitted) -> Fitted:
    """The head `decisions` where every policy decides once per time unit for ever: exactly 1."""
    users = len(result.influence)
    return Fitted(
        targets=(*result.targets, "decisions"),
        value=np.append(result.value, 1.0),
        influence=np.column_stack([result.influence, np.zeros(users)]),
        mass=np.column_stack([result.mass, np.ones(users)]),
        withheld=(*result.withheld, None),
        unsupported=np.append(result.unsupported, 0.0),
    )
