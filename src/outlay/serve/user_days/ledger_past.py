"""The past of users as the ledger knows it, for the policies that look at it.

    past = LedgerPast(ledger, config, clock)
    past.of(loaded, users, day)           for each user, the days that the bundle looks back at

A user's days are the rows that an export would have for them (`user_days/rows.py`), with what is known by now: an
outcome that arrives later counts from then on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache

from outlay.serve.clock import Clock
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.loaded_bundle import LoadedBundle
from outlay.serve.deciding.past import PastDay, Summaries
from outlay.serve.ledger.ledger import DecisionRow, Ledger, LedgerError
from outlay.serve.user_days.campaign_history import CampaignHistory, PossibleActions
from outlay.serve.user_days.day_values import DayValues, UserDay
from outlay.serve.user_days.rows import outcomes_in_time, row_of_day, window_end


class LedgerPast:
    """Reads the past of users from a ledger, and from what was known before it began."""

    def __init__(self, ledger: Ledger, config: ServeConfig, clock: Clock) -> None:
        self._ledger = ledger
        self._config = config
        self._window_end = cache(lambda day, wait_days: window_end(day, wait_days, clock))
        self._campaign: CampaignHistory | None = None
        self._values: dict[str, DayValues] = {}

    def unknown(self, loaded: LoadedBundle, summaries: Summaries) -> list[str]:
        """Return the columns of a bundle's history that the ledger does not record."""
        return self._values_of(loaded, summaries).unknown

    def of(self, loaded: LoadedBundle, summaries: Summaries, users: Sequence[str], day: int) -> list[list[PastDay]]:
        """Return the past of each user before a day number.

        Raises:
            LedgerError: if the ledger cannot be read.
        """
        history = summaries.history
        first = day - history.days
        rows, earlier = self._ledger.past(loaded.campaign, users, first, day)
        decisions: defaultdict[tuple[str, int], list[DecisionRow]] = defaultdict(list)
        for row in rows:
            decisions[row.user, row.day].append(row)
        wait_days = max(self._config.wait_days, loaded.bundle.campaign.log.longest_delay)
        days = [self._user_day(each, loaded.campaign, wait_days) for each in decisions.values()]
        found: defaultdict[str, dict[int, PastDay]] = defaultdict(dict)
        if loaded.first_past is not None:
            for user in set(users):
                known, longer = loaded.first_past.days(user, first, day)
                found[user] = {each.day: each for each in known}
                earlier |= {user} if longer else set()
        for each, values in zip(days, self._values_of(loaded, summaries).of(days), strict=True):
            found[each.row.user][each.row.day] = PastDay(each.row.day, values)
        if history.complete:  # a day without a row counts if it is after the user's first row
            for user in earlier:
                found[user][first - 1] = PastDay(first - 1, [0.0] * len(history.columns))
        return [list(found[user].values()) for user in users]

    def _user_day(self, decisions: Sequence[DecisionRow], campaign: str, wait_days: int) -> UserDay:
        row = decisions[0] if len(decisions) == 1 else row_of_day(decisions, lambda *at: self._terms(campaign, *at))
        ends = self._window_end(row.day, wait_days)
        outcomes: defaultdict[str, float] = defaultdict(float)
        for each in decisions:
            for kind, value in outcomes_in_time(each, ends):
                outcomes[kind] += value
        return UserDay(row, outcomes, sum(each.paid for each in decisions))

    def _terms(self, campaign: str, bundle: str, ts: int) -> PossibleActions:
        """Return the possible actions of a bundle; the ledger's bundles are read again if one is new."""
        if self._campaign is not None:
            try:
                return self._campaign.terms(bundle, ts)
            except LedgerError:
                pass
        self._campaign = CampaignHistory(self._ledger, campaign)
        return self._campaign.terms(bundle, ts)

    def _values_of(self, loaded: LoadedBundle, summaries: Summaries) -> DayValues:
        if loaded.bundle.id not in self._values:
            self._values[loaded.bundle.id] = DayValues(loaded, summaries, self._config)
        return self._values[loaded.bundle.id]
