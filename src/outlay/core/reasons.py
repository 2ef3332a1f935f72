"""Why a figure is not believed or a certificate not issued: a kind, and the figures that its words need.

    reason = Reason(ReasonKind.FEW_USERS, {"count": 12, "units": "users", "needed": 30})
    reason.kind is ReasonKind.FEW_USERS        # what decisions go by
    reason.words                               # what people read: made here, last, and compared with nothing

Estimators, checks and certificates hand reasons on; files store them. The kinds say what stands against a figure,
WORDS how that is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ReasonKind(StrEnum):
    """What stands against a figure or a certificate, or for one (`AGREES`)."""

    UNSUPPORTED = "unsupported"  # the log shows too little of what the policy does: there is no number
    REPRODUCTION = "reproduction"  # the old policy's totals are not given back
    MISFIT = "misfit"  # the model of the old policy does not fit the log
    STATE = "state"  # earlier days say more than the state
    BALANCE = "balance"  # the old policy looked at something else
    CONTRADICTED = "contradicted"  # another estimator says otherwise
    NOT_CHECKED = "not checked"  # nothing could confirm the figure, and something has to
    NOT_COMPARED = "not compared"  # nothing could, and nothing has to
    AGREES = "agrees"
    DOUBTED = "doubted"  # another check was not passed
    SHARED = "shared"  # a budget depends on how many others get something
    UNASSIGNED = "unassigned"  # it is not known how the log's actions were drawn
    APPROXIMATE = "approximate"  # the policy reads more of the past than the state holds
    FEW_USERS = "few users"
    LIMIT = "limit"  # a bound breaks its limit, or there is none; the lines of the certificate say which
    DAYS = "days"  # the same, for what days add to it


# No certificate has bounds where one of these stands against its figures.
WITHHOLDING = frozenset(
    {
        ReasonKind.UNSUPPORTED,
        ReasonKind.REPRODUCTION,
        ReasonKind.STATE,
        ReasonKind.BALANCE,
        ReasonKind.CONTRADICTED,
        ReasonKind.NOT_CHECKED,
        ReasonKind.DOUBTED,
        ReasonKind.SHARED,
    }
)

WORDS = {
    ReasonKind.UNSUPPORTED: "{found}",
    ReasonKind.REPRODUCTION: "{found}",
    ReasonKind.MISFIT: "the behaviour model does not fit the log",
    ReasonKind.STATE: "{found}. {way_out}",
    ReasonKind.BALANCE: "{found}. {way_out}",
    ReasonKind.CONTRADICTED: "{estimator} gives {target} as {other:.4g}, the fitted evaluation as {fitted:.4g}: "
    "{errors:.1f} standard errors apart ({beyond} of {count} comparisons are beyond their tolerance)",
    ReasonKind.NOT_CHECKED: "not checked: {found}",
    ReasonKind.NOT_COMPARED: "not checked: {found}",
    ReasonKind.AGREES: "all {count} other estimates that can be relied on agree with it, {share}",
    ReasonKind.DOUBTED: "{found}",
    ReasonKind.SHARED: "{budgets} shared: what it costs or brings depends on how many others get it, and the log shows "
    "that only for as many as got it then",
    ReasonKind.UNASSIGNED: "the campaign file does not say how the log's actions were drawn (log.propensity)",
    ReasonKind.APPROXIMATE: "the policy reads single past days that the log's state lacks, so its estimates rest on "
    'the pasts that the log\'s own policy left behind. Add "lags" to the summaries of [log.history], and prepare and '
    "train again",
    ReasonKind.FEW_USERS: "it rests on {count} {units}, and {needed} are needed",
    ReasonKind.LIMIT: "a limit is not kept",
    ReasonKind.DAYS: "as days differ ({found})",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason.

    Attributes:
        kind: what decisions go by.
        figures: what its words need, by name.
    """

    kind: ReasonKind
    figures: Mapping[str, str | int | float] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The reason for people, without a full stop."""
        return WORDS[self.kind].format(**self.figures)

    @property
    def withholds(self) -> bool:
        """Whether no bound can be believed for it."""
        return self.kind in WITHHOLDING
