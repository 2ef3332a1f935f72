"""What `outlay check` finds of a log: the result that terminal, page and Python take as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from outlay.core.actions import Given
from outlay.core.assignment import Assignment
from outlay.core.shown import Shown
from outlay.core.wording import counted, number
from outlay.estimators.balance import BalanceCheck
from outlay.estimators.markov import MarkovCheck
from outlay.evaluating.next_test import SettlingTest
from outlay.logs.by_day import DayRows, Joins
from outlay.logs.effects import Effect
from outlay.logs.findings import Finding
from outlay.logs.quality import Action
from outlay.logs.randomisation import Overlap, Randomisation


@dataclass(frozen=True)
class TriedHistory:
    """Whether the state would be enough with summaries of `columns` over `days` past days under `[log.history]`.

    Attributes:
        days: looked back.
        columns: summarised.
        summaries: of each column.
        ok: whether it would be; None where it could not be tested.
        words: what was found.
    """

    days: int
    columns: tuple[str, ...]
    summaries: tuple[str, ...]
    ok: bool | None
    words: str


@dataclass(frozen=True, repr=False)
class CheckReport(Shown):
    """What `check` found.

    Attributes:
        campaign: name of the campaign.
        source: the log.
        rows, users: counts; `days`, time units from the first to the last, both included.
        first, last: times, dates as text.
        actions: how often each was given.
        missing: role or feature → rows without a value.
        duplicates: rows beyond the first of their user and time.
        findings: worst first.
        overlap, randomisation: where there was a choice; None where the log has too little to tell.
        contrast: the pair of actions of the effect table, lower first.
        effects: of the first day's action, higher against lower.
        state: whether the state is enough (`estimators/markov.py`); None where a finding blocks, or the log is too
            large to be prepared for it.
        balance: whether the old policy's actions depend on the past beyond the state (`estimators/balance.py`); None
            as for `state`.
        assignment: columns and the calendar, with which actions go beyond what the campaign file says; None where there
            was no choice.
        tried: where it is not enough and there is no `[log.history]`: whether so many past days are.
        once: whether each user has one row: nothing follows it.
        unit: what a unit of `time` is called: day, week …
        test: where nothing that was tried is enough, the experiment that needs no state.
        by_day: rows of every day, and the actions given.
        propensities: rows by their stated propensity, in equal steps from 0 to 1; empty where none is stated.
        joins: how the rows of users join; None without users.
    """

    campaign: str
    source: str
    rows: int
    users: int
    days: int
    first: int | str
    last: int | str
    actions: tuple[Action, ...]
    missing: dict[str, int]
    duplicates: int
    findings: tuple[Finding, ...]
    overlap: tuple[Overlap, ...]
    randomisation: Randomisation | None
    contrast: tuple[Given, Given] | None
    effects: tuple[Effect, ...]
    state: MarkovCheck | None = None
    tried: tuple[TriedHistory, ...] = ()
    test: SettlingTest | None = None
    balance: BalanceCheck | None = None
    assignment: Assignment | None = None
    once: bool = False
    unit: str = "day"
    by_day: tuple[DayRows, ...] = ()
    propensities: tuple[int, ...] = ()
    joins: Joins | None = None

    @property
    def blocks(self) -> bool:
        """Whether a finding stops `prepare`."""
        return any(finding.level == "error" for finding in self.findings)

    def headline(self) -> str:
        """Size, what blocks, and how actions were assigned."""
        levels = [finding.level for finding in self.findings]
        counts = ", ".join(counted(levels.count(level), level) for level in ("error", "warning"))
        drawn = f" {self.randomisation.verdict}" if self.randomisation else ""
        return f"{number(self.rows)} rows of {number(self.users)} users in {self.source}: {counts}.{drawn}"

    def tables(self) -> Mapping[str, Sequence[Any]]:
        """Findings, actions, effects, what past days would do, and the rows of every day."""
        known = {"findings": self.findings, "actions": self.actions, "effects": self.effects, "tried": self.tried}
        return {**known, "by_day": self.by_day}

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        content = asdict(self)
        for action, fact in zip(content["actions"], self.actions, strict=True):
            del action["value"]
            action["action"] = action.pop("called")
            action["share"] = fact.count / max(self.rows, 1)
        return {**content, "findings": [finding.to_dict() for finding in self.findings], "blocks": self.blocks}
