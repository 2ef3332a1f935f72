"""What `check` found of a log: two weeks, three actions, one of them with a label, and findings of every level."""

from __future__ import annotations

from dataclasses import replace

from outlay.core.actions import Given
from outlay.core.campaign import Campaign
from outlay.evaluating.log_check import CheckReport
from outlay.logs.by_day import BINS, DayRows, Joins
from outlay.logs.effects import Effect
from outlay.logs.findings import Finding
from outlay.logs.quality import Action
from outlay.logs.randomisation import Overlap, Randomisation

FINDINGS = (
    Finding("error", "log.reward", "is empty in 12 rows.", "Fill it, or leave these rows out with log.where.", 12),
    Finding("warning", "column", "tells the reward before it is known.", "Leave it out.", 900, "spent <b> later"),
    Finding("note", "log.rows", "users have no row on 40 days.", "", 40),
)


def campaign() -> Campaign:
    """With labels for the reward, what is given and one action."""
    return Campaign.model_validate(
        {
            "campaign": {"name": "coupons", "unit": "yuan"},
            "log": {
                "source": "log.csv",
                "user": "user",
                "time": "day",
                "action": "coupon",
                "reward": "active",
                "propensity": "p",
                "features": {"numeric": ["level"]},
            },
            "budget": [{"name": "cost", "cost": "cost", "at_most": 1.0}],
            "labels": {"reward": "active days", "action": "coupons", "actions": {"0": "nothing"}},
        }
    )


def report(findings: tuple[Finding, ...] = ()) -> CheckReport:
    """A log of 14 days; on the eighth nothing was exported."""
    shares: dict[Given, float] = {0.0: 0.5, 1.0: 0.3, 2.0: 0.2}
    nothing: dict[Given, float] = {}
    rows = [0.0 if day == 7 else 1_000.0 - 20 * day for day in range(14)]
    return CheckReport(
        campaign="coupons",
        source="log.csv",
        rows=int(sum(rows)),
        users=1_000,
        days=14,
        first="2026-03-02",
        last="2026-03-15",
        actions=tuple(Action(float(a), int(1_000 * s), int(900 * s), 0.2, called=a) for a, s in shares.items()),
        missing={"level": 17},
        duplicates=3,
        findings=findings,
        overlap=tuple(Overlap(a, s, 0.9 * s, "new users", 0.2, 0.4) for a, s in shares.items()),
        randomisation=Randomisation(True, "The stated propensities fit the shares: it looks randomised.", True, ()),
        contrast=(0.0, 2.0),
        effects=(Effect(segment="all", days=7, effect=0.31, low=0.2, high=0.42, users=1_000),),
        by_day=tuple(
            DayRows(f"2026-03-{2 + day:02d}", 1, each, shares if each else nothing) for day, each in enumerate(rows)
        ),
        propensities=tuple(100 * (i in (4, 6, 10)) for i in range(BINS)),
        joins=Joins(next_day=10_000, later=900, last=1_000, same_day=3),
    )


def broken() -> CheckReport:
    """With findings of every level."""
    return replace(report(FINDINGS), effects=(), contrast=None)
