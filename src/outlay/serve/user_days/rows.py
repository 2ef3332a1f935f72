"""What the log says of a decision and of a user's day: for exports, and for policies that look at past days.

row of a day     the first decision that was not forced, or else the first
its outcomes     those of all the user's decisions on that day that were accepted and received in time
its money        what all of them have paid so far
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from outlay.serve.clock import EPOCH, ONE_DAY, Clock, midnight
from outlay.serve.deciding.choice import DrawRecord, decode_draw
from outlay.serve.ledger.ledger import DecisionRow
from outlay.serve.ledger.records import LARGEST_VALUE
from outlay.serve.user_days.campaign_history import PossibleActions

Terms = Callable[[str, int], PossibleActions]  # the possible actions of a bundle at a time (epoch ms)


def window_end(day: int, wait_days: int, clock: Clock) -> int:
    """Return the epoch ms at which the wait window of a day number ends."""
    return int(midnight(EPOCH + (day + wait_days + 1) * ONE_DAY, clock.zone) * 1000)


def outcomes_in_time(row: DecisionRow, window_ends: int) -> Iterator[tuple[str, float]]:
    """Yield kind and value (1 if none was given) of outcomes that were accepted and received before `window_ends`.

    Servers of older versions took any value; it is brought to what they take now, so that sums are finite.
    """
    for outcome, result in row.outcomes:
        if result.status != "refused" and outcome.received < window_ends:
            value = 1.0 if outcome.value is None else outcome.value
            yield outcome.kind, min(max(value, -LARGEST_VALUE), LARGEST_VALUE)


def fits_of(row: DecisionRow, draw: DrawRecord, terms: PossibleActions) -> list[bool]:
    """Return `[K]` whether the guards would have allowed each action.

    The action given was allowed, whatever the recorded settings say: they may have changed in between.
    """
    given = bool(draw.members) and not row.forced
    return [fit or (given and i == row.action_index) for i, fit in enumerate(terms.fits(row.room))]


def allowed_of(draw: DrawRecord, terms: PossibleActions) -> Sequence[int]:
    """Return the positions of the actions that the request allowed."""
    return range(len(terms.actions)) if draw.allowed is None else draw.allowed


def counts_as_forced(row: DecisionRow, terms: PossibleActions) -> bool:
    """Return whether a decision was forced, or the guards would have allowed only one action.

    Otherwise only users whose draw was that action would be left as choices, which would bias the choices.
    """
    draw = decode_draw(row.members)
    fits = fits_of(row, draw, terms)
    return row.forced or sum(fits[i] for i in allowed_of(draw, terms)) < 2


def row_of_day(decisions: Sequence[DecisionRow], terms: Terms) -> DecisionRow:
    """Return the decision of a user's day that is its row in the log.

    Raises:
        LedgerError: if no bundle is recorded for one of them.
    """
    if len(decisions) == 1:
        return decisions[0]
    return min(decisions, key=lambda row: (counts_as_forced(row, terms(row.bundle, row.ts)), row.decision_id))
