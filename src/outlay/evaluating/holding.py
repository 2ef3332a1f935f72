"""What keeps the money budget of a run, and what that costs: a margin below it as proof, or a cap while serving.

    costs = V(limit) − V(limit − margin)          V: the objective of the stored curve, by what its mixtures spend

A mixture of the curve spends its budget less the margin of the curve (`choosing/budget_grid.py`), so the curve tells
what the same policies bring with the limit spent in full, as *select* users measure it. It is the value by which
mixtures are chosen. Both are mixtures of one curve, so the standard error of the difference is known.

A run has both mixtures unless it is told otherwise (`train.hold`): what is said of it is said of the one with the
margin, and `outlay serve` takes the other one behind a cap (`StoredFrontier.spending`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from outlay.choosing.stored import StoredFrontier
from outlay.core.campaign import Campaign, Hold
from outlay.core.wording import Interval, decimals, number, percent, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """How the money budget of a run is kept.

    Attributes:
        hold: `certified`, a margin is kept below the limit; `serving`, none is, and a cap holds it; `auto`, one is, but
            behind a cap the mixture is served that keeps none.
        budget: its name.
        limit: in its unit.
        unit: of money, or the budget's name where that has none.
        kept_back: the margin, in the unit of the limit.
        costs: what the margin costs of the objective.
        std_error: of that.
        of_gain: the same as a share of the gain over the old policy without the margin; None where there is none.
        of_value: the same as a share of the objective without the margin; None where that is not above 0.
        words: all of it in a sentence or two.
    """

    hold: Hold
    budget: str
    limit: float
    unit: str
    kept_back: float = 0.0
    costs: float = 0.0
    std_error: float = 0.0
    of_gain: float | None = None
    of_value: float | None = None
    words: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", self._words())

    def _words(self) -> str:
        whole = f"{plain(self.limit)} {self.unit}"
        if self.hold == "serving":
            return (
                f"Held while serving: no margin is kept below {whole}; the cap of a server, or of an allocation, "
                "holds it."
            )
        least = f"at least {number(self.kept_back)} less than {whole}"
        kept = f"As proof, the mixture was chosen to spend {least}, which costs"
        if not self.costs:
            return f"{kept} nothing."
        digits = decimals([Interval(self.costs, self.costs - self.std_error, self.costs + self.std_error)])
        told = f"{kept} {number(self.costs, digits)} ± {number(self.std_error, digits)} of the reward"
        if self.of_gain is not None:
            told += f", {percent(self.of_gain)} of the estimated gain"
        elif self.of_value is not None:
            told += f" ({percent(self.of_value)} of it)"
        if self.hold == "certified":
            return f"{told}."
        return f"{told}. All figures here are for that mixture; behind a cap, outlay serve keeps no such margin."


def holding_of(stored: StoredFrontier | None, campaign: Campaign, gain: float | None) -> Holding | None:
    """Return how a run keeps its money budget; None where it keeps a margin and has no curve to tell what that costs.

    Args:
        stored: its frontier, with a curve; None: it has none.
        campaign: its limits.
        gain: of what it serves over the old policy; None where it is not known.
    """
    money = campaign.budgets[campaign.money]
    unit = money.name if campaign.meta.unit == "money" else campaign.meta.unit
    if any(campaign.held):
        return Holding(hold="serving", budget=money.name, limit=money.limit, unit=unit)
    if stored is None or money.limit != stored.own:
        return None
    own = float(stored.room(campaign)[-1])
    whole = stored.spends(campaign)
    if whole is None:
        return Holding(hold=campaign.train.hold, budget=money.name, limit=money.limit, unit=unit, kept_back=own)
    of = stored.spending
    step = whole - of.between(money.limit - own)
    costs, value = max(0.0, float(step @ of.aim)), float(whole @ of.aim)
    return Holding(
        hold=campaign.train.hold,
        budget=money.name,
        limit=money.limit,
        unit=unit,
        kept_back=own,
        costs=costs,
        std_error=float(np.sqrt(max(0.0, float(step @ of.covariance @ step)))),
        of_gain=costs / (gain + costs) if gain is not None and gain > 0 else None,
        of_value=costs / value if value > 0 else None,
    )
