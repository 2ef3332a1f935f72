"""From (1−γ)·J and totals to the units that budgets are written in.

    per = "decision"   x_c / x_1 is shown; its coordinate (`core/inequalities.py`) is compared with the limit
    per = "user"       the total over `horizon_days`, for objective and cost alike

x_1 = (1−γ)·J_1, the discounted share of time with a decision; 1 where every policy decides once per time unit. Where x
are means over a window of the log (`windowed.py`) the same holds of those: Σ c over the window against limit · Σ
decisions.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate, Kind, Target
from outlay.core.inequalities import Inequalities
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.joint import Joint
from outlay.estimators.long_run import LONG_RUN, in_log_states
from outlay.ops.intervals import ratio

Array = NDArray[np.float64]
MEANS: tuple[Kind, ...] = ("", "discounted")  # that tables show


def horizons(campaign: Campaign) -> tuple[int, ...]:
    """The k-day totals a campaign needs: those it reports, and the horizon of budgets per user."""
    wanted = set(campaign.meta.report_days)
    if _per_user(campaign):
        wanted.add(campaign.meta.horizon_days)
    return tuple(sorted(wanted))


def objective(campaign: Campaign) -> str:
    """The target that is maximised: `reward`, or `reward@horizon` where any budget is per user."""
    return str(Target("reward", days_counted(campaign))) if _per_user(campaign) else "reward"


def days_counted(campaign: Campaign) -> int:
    """Days that the objective adds up: the horizon where any budget is per user; else 1, for it is a mean per day."""
    return campaign.meta.horizon_days if _per_user(campaign) else 1


def needed_days(campaign: Campaign) -> tuple[int, ...]:
    """Return the days of the totals that the objective and the limits rest on; empty where all are means."""
    return (campaign.meta.horizon_days,) if _per_user(campaign) else ()


def coordinates(joint: Joint, campaign: Campaign) -> tuple[Array, Array, Array]:
    """Return the coordinates that the mixture and the certificate are computed in.

    Returns:
        x `[1+m]`: the objective, then the budgets in ≤ form; its influence `[G, 1+m]` by cluster; the limits `[m]` in
        ≤ form. NaN where a needed number is withheld.
    """
    form = Inequalities.of(campaign.budgets)
    aim, *costs = (joint.column(name) for name in needed(campaign)[:-1])
    x, psi = [float(joint.value[aim])], [joint.influence[:, aim]]
    for place, sign, slope, often in zip(costs, form.signs, form.slopes, form.per_decision, strict=True):
        value, influence = sign * joint.value[place], sign * joint.influence[:, place]
        if often:
            ones = joint.column("decisions")
            value, influence = value + slope * (joint.value[ones] - 1), influence + slope * joint.influence[:, ones]
        x.append(float(value))
        psi.append(influence)
    return np.array(x), np.column_stack(psi), form.limits


def needed(campaign: Campaign) -> list[str]:
    """`[2+m]` names of what coordinates are made of: objective, costs in their budgets' units, decisions."""
    days = campaign.meta.horizon_days
    costs = [budget.name if budget.per == "decision" else str(Target(budget.name, days)) for budget in campaign.budgets]
    return [objective(campaign), *costs, "decisions"]


def chosen_by(joint: Joint, campaign: Campaign) -> tuple[float, Array]:
    """Return what mixtures are chosen to maximise, and its influence `[G]`: the objective or its long-run value.

    If budgets are per decision and it was estimated, this is `LONG_RUN`: the total over a window does not credit a
    policy with the habits that it leaves behind.
    """
    lasting = LONG_RUN in joint.targets and not _per_user(campaign)
    place = joint.column(LONG_RUN if lasting else objective(campaign))
    return float(joint.value[place]), joint.influence[:, place]


def apart(joint: Joint, name: str) -> tuple[float, Array] | None:
    """Return what is chosen by as if earlier days were the log's, and its influence `[G]`; None if it is unknown.

    Args:
        joint: of a policy.
        name: `reward`, as `chosen_by` has it, a cost or `decisions`, per day.
    """
    target = in_log_states(name)
    if target not in joint.targets:
        return None
    place = joint.column(target)
    return float(joint.value[place]), joint.influence[:, place]


def decisions(joint: Joint, campaign: Campaign) -> Array:
    """`[m]` what the excess of a coordinate over its limit is divided by in tables: x_1; 1 for totals per user."""
    return Inequalities.of(campaign.budgets).divisors(float(joint.value[joint.column("decisions")]))


def displayed(joint: Joint, campaign: Campaign) -> Joint:
    """Return the quantities with every budget in its own unit, as tables show them, without numbers of decisions.

    A budget per decision becomes x_c / x_1 (delta method), one per user its total over the horizon; signs as logged.
    """
    value, influence = joint.value.copy(), joint.influence.copy()
    mass, withheld = joint.mass.copy(), list(joint.withheld)
    for budget in campaign.budgets:
        place = joint.column(budget.name)
        if budget.per == "user":
            source = joint.column(str(Target(budget.name, campaign.meta.horizon_days)))
            value[place], influence[:, place] = joint.value[source], joint.influence[:, source]
            mass[:, place], withheld[place] = joint.mass[:, source], joint.withheld[source]
            continue
        for kind in MEANS:
            if str(Target(budget.name, kind=kind)) not in joint.targets:
                continue
            place, ones = (joint.column(str(Target(name, kind=kind))) for name in (budget.name, "decisions"))
            value[place], influence[:, place] = ratio(
                joint.value[place], joint.influence[:, place], joint.value[ones], joint.influence[:, ones]
            )
            if np.isnan(value[place]) and withheld[place] is None:
                withheld[place] = joint.withheld[ones] or Reason(ReasonKind.NO_DECISION)
    kept = [
        t
        for t, target in enumerate(joint.targets)
        if not counts_decisions(target) and Target.parse(target).kind not in ("long run", "log states")
    ]
    return Joint(
        targets=tuple(joint.targets[t] for t in kept),
        value=value[kept],
        influence=influence[:, kept],
        mass=mass[:, kept],
        withheld=tuple(withheld[t] for t in kept),
        clusters=joint.clusters,
    )


def counts_decisions(target: str) -> bool:
    """Return whether a target is a number of decisions, which tables do not show."""
    return Target.parse(target).name == "decisions"


def missing(joint: Joint, campaign: Campaign) -> Reason | None:
    """Return why a number is withheld that the mixture and the certificate are computed in, or None."""
    needed = {objective(campaign), *(name for budget in campaign.budgets for name in behind(budget.name, campaign))}
    named = zip(joint.targets, joint.withheld, strict=True)
    return next((reason for target, reason in named if reason is not None and target in needed), None)


def behind(target: str, campaign: Campaign) -> tuple[str, ...]:
    """The estimated quantities that a displayed target is made of."""
    parsed = Target.parse(target)
    for budget in campaign.budgets:
        if budget.name == parsed.name and parsed.kind == "discounted":
            return (target, str(Target("decisions", kind="discounted")))
        if budget.name == target:
            return (
                (target, "decisions")
                if budget.per == "decision"
                else (str(Target(target, campaign.meta.horizon_days)),)
            )
    return (target,)


def estimates(
    joint: Joint,
    campaign: Campaign,
    policy: str,
    estimator: str,
    *,
    confidence: float,
    cautions: Sequence[Reason | None] | None = None,
) -> list[Estimate]:
    """One Estimate per displayed target; `cautions` `[T]` of the targets of `joint`."""
    shown = displayed(joint, campaign)
    reasons = cautions and [
        next((reason for name in behind(target, campaign) if (reason := cautions[joint.column(name)])), None)
        for target in shown.targets
    ]
    return shown.estimates(policy, estimator, confidence=confidence, cautions=reasons)


def _per_user(campaign: Campaign) -> bool:
    return any(budget.per == "user" for budget in campaign.budgets)
