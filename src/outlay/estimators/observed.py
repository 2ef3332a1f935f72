"""What the log's own policy brought: plain means, and the check that an estimator reproduces them.

Totals of k days count the users whose k days the log shows (`Panel.covers`). Estimates are of all users; where some
joined late, an estimator is therefore held against what was observed by its total of the same users. The mean cost per
decision is undiscounted, Σ c / Σ decisions over all rows (the ratio's interval by the delta method), so it need not
equal the discounted one of the same policy.

Source: textbook; the check is method section 6's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outlay.core.estimate import Target
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.agreement import NEGLIGIBLE
from outlay.estimators.clusters import by_cluster
from outlay.estimators.day_effects import DayEffects
from outlay.estimators.importance import some_users
from outlay.estimators.joint import Joint
from outlay.estimators.panel import Panel
from outlay.ops.intervals import ratio, std_error, student

ERRORS = 3.0  # joint standard errors by which a fitted total may miss the observed one, beside what is negligible


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Whether an estimator reproduces the log's own totals.

    Attributes:
        finding: `REPRODUCED`, `REPRODUCTION` (the total that is farthest off) or `UNSUPPORTED`.
        targets: the totals compared.
        ok: every total that both have is within its tolerance, and there is one at least.
        words: the finding in one sentence.
    """

    finding: Reason
    targets: tuple[str, ...]
    ok: bool = field(init=False)
    words: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ok", self.finding.kind is ReasonKind.REPRODUCED)
        object.__setattr__(self, "words", self.finding.words)

    @property
    def refused(self) -> Reason | None:
        """Why nothing is certified, or None."""
        return None if self.ok else self.finding


def observe(panel: Panel, *, days: Sequence[int]) -> Joint:
    """Observed `reward@k` and `cost@k` per user, and `cost/decision` for every budget."""
    U = panel.num_users
    names: list[str] = []
    value: list[float] = []
    columns: list[NDArray[np.float64]] = []
    mass: list[NDArray[np.float64]] = []
    withheld: list[Reason | None] = []
    for k in sorted(set(days)):
        covers = panel.covers(k)
        totals = panel.by_user(np.where((panel.day < k)[:, None], panel.outcome, 0.0))
        for name, total in zip(panel.names, totals.T, strict=True):
            mean = float(total[covers].mean()) if covers.any() else float("nan")
            names.append(str(Target(name, k)))
            value.append(mean)
            columns.append(np.where(covers, (total - mean) * (U / max(1, covers.sum())), 0.0))
            mass.append(covers.astype(np.float64))
            withheld.append(None if covers.any() else Reason(ReasonKind.NOT_SHOWN, {"days": k}))
    sums = panel.by_user(np.column_stack([panel.outcome, ~panel.forced]))
    decisions = sums[:, -1]
    for name, cost in zip(panel.names[1:], sums[:, 1:-1].T, strict=True):
        per_decision, psi = ratio(
            float(cost.mean()), cost - cost.mean(), float(decisions.mean()), decisions - decisions.mean()
        )
        names.append(str(Target(name, kind="decision")))
        value.append(per_decision)
        columns.append(psi)
        mass.append(decisions)
        withheld.append(None if decisions.any() else Reason(ReasonKind.ALL_FORCED))
    return Joint(
        tuple(names),
        np.array(value),
        by_cluster(np.column_stack(columns), panel.clusters),
        np.column_stack(mass),
        tuple(withheld),
        panel.clusters,
    )


def of_some(panel: Panel, observed: Joint) -> list[Reason | None]:
    """Return `[T]` for each observed quantity why it is not of all users, or None."""
    covered = [int(panel.covers(k).sum()) if (k := Target.parse(target).days) else 0 for target in observed.targets]
    return [some_users(count, panel.num_users) for count in covered]


def reproduces(observed: Joint, fitted_old: Joint, days: DayEffects | None = None) -> Reproduction:
    """Check an estimator before it is used: fitted for the old policy, it must reproduce the observed totals.

    `fitted_old` are its totals of the users who were observed for so many days.
    Both come from the same users, so the error of the difference is that of ψ_fitted − ψ_observed. Where days differ,
    the totals of the first days miss those of all days by as much as these differ, which widens every interval: so much
    is not the estimator's, unless days are hardly alike at all.
    """
    common = [
        target
        for target in observed.targets
        if target in fitted_old.targets and observed.withheld[observed.column(target)] is None
    ]
    withheld = {target: fitted_old.withheld[fitted_old.column(target)] for target in common}
    shared = [target for target in common if withheld[target] is None]
    if not shared:
        found = next(iter(withheld.values()), None) or Reason(ReasonKind.NO_TOTAL)
        return Reproduction(Reason(ReasonKind.UNSUPPORTED, {"found": found}), ())
    seen = [observed.column(target) for target in shared]
    fit = [fitted_old.column(target) for target in shared]
    difference = fitted_old.value[fit] - observed.value[seen]
    joint = std_error(fitted_old.influence[:, fit] - observed.influence[:, seen])
    errors = student(ERRORS, observed.freedom)
    tolerance = errors * joint + NEGLIGIBLE * np.abs(observed.value[seen])
    if days is not None and days.moderate:
        totals = [(Target.parse(target), value) for target, value in zip(shared, observed.value[seen], strict=True)]
        shocks = errors * np.array([days.error(*total) for total in totals])
        tolerance = np.hypot(tolerance, shocks) + np.abs([days.drift(*total) for total in totals])
    off = ~(np.abs(difference) <= tolerance)
    if not off.any():
        return Reproduction(Reason(ReasonKind.REPRODUCED), tuple(shared))
    t = int(np.argmax(np.where(off, np.abs(difference) / np.maximum(tolerance, 1e-300), 0)))
    values = {"fitted": float(fitted_old.value[fit[t]]), "observed": float(observed.value[seen[t]])}
    return Reproduction(Reason(ReasonKind.REPRODUCTION, {"target": shared[t], **values}), tuple(shared))
