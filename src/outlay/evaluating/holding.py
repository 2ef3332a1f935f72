"""What keeps the money budget of a run, and what that costs: a margin below it as proof, or a cap while serving.

    costs = V(limit) − V(limit − margin)          V: the objective of the stored curve, by what its mixtures may spend

A mixture of the curve may spend its budget less the margin of the curve (`choosing/budget_grid.py`), so the curve
tells what the same policies bring with the limit spent in full, as *select* users measure it. It is the value by which
mixtures are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from outlay.choosing.stored import StoredFrontier
from outlay.core.campaign import Campaign, Hold
from outlay.core.wording import number, percent, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """How the money budget of a run is kept.

    Attributes:
        hold: `certified`, a margin is kept below the limit; `serving`, none is, and a cap holds it.
        budget: its name.
        limit: in its unit.
        unit: of money, or the budget's name where that has none.
        kept_back: the margin, in the unit of the limit.
        costs: what the margin costs of the objective.
        of_gain: the same as a share of the gain over the old policy without the margin; None where there is none.
        of_value: the same as a share of the objective without the margin; None where that is not above 0.
        words: all of it in a sentence.
    """

    hold: Hold
    budget: str
    limit: float
    unit: str
    kept_back: float = 0.0
    costs: float = 0.0
    of_gain: float | None = None
    of_value: float | None = None
    words: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", self._words())

    def _words(self) -> str:
        whole = f"{plain(self.limit)} {self.unit}"
        if self.hold == "serving":
            return (
                f"Held while serving: none of {whole} is kept back as proof, and a cap holds it (outlay serve --cap, "
                "or outlay allocate)."
            )
        share, of = (self.of_gain, "the gain") if self.of_gain is not None else (self.of_value, "the reward")
        lost = "nothing" if not self.costs else "a part" if share is None else percent(share, 1)
        return f"Keeping {number(self.kept_back)} of {whole} back as proof costs {lost} of {of}."


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
    # A coordinate of a budget per decision is x_1 times the cost.
    margin = stored.margin / (stored.points.value[:, -1] if money.per == "decision" else 1.0)
    *others, own = margin.tolist()
    spendable, value = (np.maximum.accumulate(each) for each in (stored.budgets - others, stored.aim[:-1]))
    less, whole = (float(end) for end in np.interp([money.limit - own, money.limit], spendable, value))
    costs = whole - less
    return Holding(
        hold="certified",
        budget=money.name,
        limit=money.limit,
        unit=unit,
        kept_back=own,
        costs=costs,
        of_gain=costs / (gain + costs) if gain is not None and gain > 0 else None,
        of_value=costs / whole if whole > 0 else None,
    )
