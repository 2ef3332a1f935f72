"""Balance: given the state, is today's action unrelated to what the user did before?

Estimates that weight rows by π/p rest on p being the probability of the logged action whatever happened before, be it
logged, estimated, or only declared. If it is, the weighted action of a row has a mean that is known,

    E[ y | state, past ] = 0      y = (h(a) − h̄) / p      h̄ = mean of h over the actions that the row allows
                                  h: the amount, and whether one was given

so y is unrelated to the user's outcomes and actions of the days before. As in `markov.py`, every summary of the days
before is freed of state and calendar day by what other users say, and its correlation with y is judged by its standard
error by user. Logged propensities leave nothing of the state in y; where they are estimated, y is freed of it too, by
what still other users say.

If they are related, the old policy looked at something of the past that the features do not tell (propensities
estimated), or the logged propensities are not those with which it acted. Without h̄, rows of rare actions would carry
most of the noise and hide the rest.

Where the old policy never gave some allowed action in a state, the mean is another one there. Propensities that are
logged then leave nothing to test, which the mean of 1/p shows. Outcomes with a delay (`[log.delays]`) are left out of
the past: the policy could not know them yet, and where later events are credited to a user's latest row, today's action
decides which row that is. What this cannot see: targeting by something that the logged past does not show, such as an
intent of the day.

Actions are not balanced either where `prepare` found that they go with the calendar or with another column of the log
(`core/assignment.py`).

Source: Rosenbaum and Rubin (1984) for balance of covariates as a check of propensities; pre-period outcomes as
covariates are textbook.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.markov import (
    PastDependence,
    dependences,
    past_of,
    rows_with_a_past,
    strongest_first,
    too_few,
)
from outlay.estimators.panel import Panel
from outlay.estimators.row_features import Block
from outlay.estimators.state_residuals import off_state_unseen
from outlay.ops.importance import MATTERS
from outlay.ops.intervals import BY_CHANCE

LOGGED = (
    "Log the probability with which each action was really drawn, given all that it was drawn by, and prepare and "
    "train again"
)
ESTIMATED = (
    "Add what the old policy looked at to [log.features], or summaries of the user's past under [log.history], or log "
    "the probability of each action as log.propensity"
)


@dataclass(frozen=True, slots=True)
class BalanceCheck:
    """Whether actions are unrelated to the past, given the state.

    Attributes:
        finding: `BALANCED`; `MISSTATED` or `LOOKED_BACK`, with the strongest dependence; `DRIVEN` where a column of the
            log that is no feature goes with the action, `DRIVEN_AND` one of the two besides; `NOT_TESTED` or
            `NOT_ALL_GIVEN`.
        way_out: what to do where they are related.
        dependences: all that were tested, those that matter first.
        driven: whether differences between actions mix what they do with whom they were given to.
        ok: whether nothing speaks against it; None where it could not be tested.
        words: what was found, without a full stop.
    """

    finding: Reason
    way_out: str
    dependences: tuple[PastDependence, ...]
    driven: bool
    ok: bool | None = field(init=False)
    words: str = field(init=False)

    def __post_init__(self) -> None:
        tested = self.finding.kind not in (ReasonKind.NOT_TESTED, ReasonKind.ONE_ROW, ReasonKind.NOT_ALL_GIVEN)
        object.__setattr__(self, "ok", self.finding.kind is ReasonKind.BALANCED if tested else None)
        object.__setattr__(self, "words", self.finding.words)

    @classmethod
    def of(cls, found: Sequence[PastDependence], logged: bool) -> BalanceCheck:
        """Judge what was found; `logged` says whether propensities are those of the log."""
        way_out = LOGGED if logged else ESTIMATED
        ordered = strongest_first(found)
        if not ordered or not ordered[0].matters:
            return cls(Reason(ReasonKind.BALANCED), way_out, ordered, driven=False)
        worst = ordered[0]
        what = "the amount given" if worst.outcome == "action" else "whether an incentive is given"
        kind = ReasonKind.MISSTATED if logged else ReasonKind.LOOKED_BACK
        return cls(
            Reason(kind, {"outcome": what, "source": worst.source, **worst.size}), way_out, ordered, driven=False
        )

    @property
    def refused(self) -> Reason | None:
        """Why nothing is certified, or None."""
        if self.ok is not False:
            return None
        return Reason(ReasonKind.BALANCE, {"found": self.finding, "way_out": self.way_out})


def balance_check(
    panel: Panel,
    time: NDArray[np.int64],
    columns: Sequence[Block] | None,
    propensity: NDArray[np.floating],
) -> BalanceCheck:
    """Test whether actions, weighted by propensities, are unrelated to the days before, and to the log's other columns.

    Args:
        panel: the rows.
        time: `[n]` calendar day of each row.
        columns: `[n, d]` blocks of columns of the state; None where states are counted.
        propensity: `[n]` of the logged action, logged or estimated.
    """
    found = _by_past(panel, time, columns, propensity)
    driven = panel.data.manifest.assignment
    if driven is None or not driven.drivers:
        return found
    finding, way_out = Reason(ReasonKind.DRIVEN, {"drivers": driven.words}), driven.way_out
    if found.ok is False:
        finding = Reason(ReasonKind.DRIVEN_AND, {"drivers": driven.words, "found": found.finding})
        way_out = f"{way_out}. {found.way_out}"
    return BalanceCheck(finding, way_out, found.dependences, driven=True)


def _by_past(
    panel: Panel,
    time: NDArray[np.int64],
    columns: Sequence[Block] | None,
    propensity: NDArray[np.floating],
) -> BalanceCheck:
    """Whether actions, weighted by propensities, are unrelated to the days before."""
    logged = panel.propensity is not None
    way_out = LOGGED if logged else ESTIMATED
    rows = rows_with_a_past(panel)
    unit = panel.user if panel.clusters is None else panel.clusters.index[panel.user]
    if too_few(panel.user[rows], unit[rows]):
        kind = ReasonKind.ONE_ROW if panel.data.campaign.log.once else ReasonKind.NOT_TESTED
        return BalanceCheck(Reason(kind), way_out, (), driven=False)
    allowed = panel.data.allowed(panel.rows[rows])
    inverse, count = 1 / propensity[rows], allowed.sum(axis=1)
    off, error = float(inverse.mean() - count.mean()), float(inverse.std() / np.sqrt(len(rows)))
    if logged and abs(off) > MATTERS * count.mean() + BY_CHANCE * error:
        return BalanceCheck(Reason(ReasonKind.NOT_ALL_GIVEN), way_out, (), driven=False)
    amount = panel.data.actions
    h = np.column_stack([amount, amount > amount.min()])
    y = (h[panel.action[rows]] - (allowed @ h) / count[:, None]) * inverse[:, None]
    names, past = past_of(panel)
    delays = panel.data.campaign.log.delays
    known = [v for v, (what, _) in enumerate(names) if not delays.get(what)]
    names, past = [names[v] for v in known], past[:, known]
    groups = [past[rows]] if logged else [past[rows], y]
    r_v, *freed = off_state_unseen(panel, rows, columns, groups, time[rows], acted=False)
    found = dependences(freed[0] if freed else y, r_v, unit[rows], ("action", "incentive"), names)
    return BalanceCheck.of(found, logged)
