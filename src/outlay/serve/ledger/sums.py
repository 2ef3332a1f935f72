"""The counters computed from the decisions: to compare them with, and to begin with."""

from __future__ import annotations

from typing import NamedTuple


class Scope(NamedTuple):
    """A kind of counters, as SQL.

    Attributes:
        name: of the scope.
        key: the column that is its key.
        day: whether there is a counter for each day.
        kept: the column of `campaign` that says whether its counters are kept; None: always.
    """

    name: str
    key: str | None
    day: bool
    kept: str | None = None

    @property
    def here(self) -> str:
        """The condition that tells its counters from others of its name."""
        return "day <> ''" if self.day else "day = ''"

    @property
    def sums(self) -> str:
        """A query for the counters as they must be."""
        key, day = self.key or "''", "cast(day as text)" if self.day else "''"
        groups = ["campaign", *([self.key] if self.key else []), *(["day"] if self.day else [])]
        decisions, where = "count(*)", ""
        if self.kept:
            moved, kept = "(amount > 0 or state = 'settled')", f"select name from campaign where {self.kept}"
            decisions, where = "0", f"where {moved} and campaign in ({kept})"
        return f"""select campaign, '{self.name}' as scope, {key} as key, {day} as day, sum(held) as reserved,
            sum(paid) as settled, sum(excess) as excess,
            sum(case when amount > 0 then 1 else 0 end) as offers, {decisions} as decisions,
            sum(amount) as granted from decision {where} group by {", ".join(groups)}"""


USER = Scope("user", '"user"', False, "by_user")
USER_DAY = Scope("user", '"user"', True, "by_user_day")
SCOPES = (
    Scope("total", None, False),
    Scope("day", None, True),
    Scope("arm", "arm", False),
    Scope("arm", "arm", True),
    USER,
    USER_DAY,
)
COLUMNS = "campaign, scope, key, day, reserved, settled, excess, offers, decisions, granted"

_SUMS = " union all ".join(scope.sums for scope in SCOPES)
_COUNTERS = f"select {COLUMNS} from counter"

# Each query finds what must not be.
CHECKS = {
    "the sums of the decisions have no such counter": f"{_SUMS} except {_COUNTERS}",
    "the counter is not the sum of its decisions": f"{_COUNTERS} except select * from ({_SUMS}) as sums",
    "more is committed than the cap": f"{_COUNTERS} where reserved + settled > cap or offers > offers_cap",
    "reserved and settled are not the amount and the sums of the entries": """
        select decision.decision_id, amount, held, paid, decision.excess, sum(entry.reserved), sum(entry.settled),
            sum(entry.excess)
        from decision left join entry on entry.decision_id = decision.decision_id
        group by decision.decision_id, amount, held, paid, decision.excess
        having held <> amount + coalesce(sum(entry.reserved), 0) or paid <> coalesce(sum(entry.settled), 0)
            or decision.excess <> coalesce(sum(entry.excess), 0)
    """,
    "the state does not fit the money": """
        select decision_id, state, amount, held, paid, excess from decision
        where (state = 'free' and amount <> 0) or (state in ('reserved', 'released') and amount = 0)
            or (state = 'reserved' and held <> amount)
            or (state <> 'reserved' and held <> 0) or (state <> 'settled' and paid <> 0)
    """,
    "less is booked as excess than was paid beyond the reservation": """
        select decision_id, amount, paid, excess from decision where paid - excess > amount
    """,
    "the entry has no outcome that moved as much": """
        select entry.decision_id, entry.kind, entry.event_id, entry.settled, entry.excess from entry left join outcome
            on outcome.decision_id = entry.decision_id and outcome.event_id = entry.event_id
            and outcome.kind = case when entry.kind = 'refund' then 'refund' else 'redeemed' end
        where entry.kind <> 'release' and (coalesce(outcome.moved, -1) <> abs(entry.settled)
            or coalesce(outcome.excess, -1) <> abs(entry.excess))
    """,
}
