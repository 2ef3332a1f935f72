"""Bringing a server's settings into its ledger, before it serves.

A campaign that is new to the ledger gets its caps from the settings. One that is not keeps the caps that the ledger
has, which an administrator may have changed; limits per user come from the settings at every start.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from outlay.core.errors import OutlayError
from outlay.server.clock import Clock
from outlay.server.config import ServeConfig
from outlay.server.deciding.decider import POLICY, RANDOM
from outlay.server.deciding.ready import Ready, introduce
from outlay.server.ledger.caps import Caps
from outlay.server.ledger.ledger import Ledger
from outlay.server.trials.arms import Trial
from outlay.server.trials.standing import check_trial, enter, others_live

NOTICE = 60_000  # ms before midnight from which the next day's coverage may not grow: servers look once a second


def adopt(
    ledger: Ledger, ready: Ready, config: ServeConfig, trial: Trial | None = None, clock: Clock | None = None
) -> list[str]:
    """Bring the settings into the ledger, and their caps where it does not know better. What to tell the operator.

    Args:
        ledger: may not know the campaign.
        ready: about to be served.
        config: settings of the server.
        trial: the A/B test, or None.
        clock: the server's; None: the ledger's.

    Raises:
        LedgerError: if the ledger cannot be reached or written.
        OutlayError: if the settings or the test do not fit what the ledger holds.
    """
    clock = clock or Clock(config.timezone, ledger.clock.seconds)
    day = clock.day(now := clock.now())
    soon = clock.day(now + NOTICE)
    budgets = trial.budgets if trial is not None and check_trial(ledger, trial, soon) else {}
    words = _set_caps(ledger, ready, config, budgets)
    words += introduce(ledger, ready, config, now)
    if trial is not None:
        enter(ledger, trial, now)
        words += _told(trial, ledger.totals(ready.campaign).caps, ready, day)
    for other in others_live(ledger, ready.campaign, None if trial is None else trial.name, day):
        words.append(f"the test {other.meta.name!r} of this ledger is not served: its users are as all others.")
    return words


def _set_caps(ledger: Ledger, ready: Ready, config: ServeConfig, budgets: Mapping[str, int]) -> list[str]:
    """Caps of a new campaign, limits of users, and the budgets of arms that are new."""
    wanted, found = _caps(ready, config), list[Caps | None]()

    def change(kept: Caps | None) -> Caps:
        found.append(kept)
        _check_purses(budgets, wanted.total if kept is None else kept.total, ready)
        if kept is None:
            return replace(wanted, arms={**wanted.arms, **budgets})
        return replace(wanted, total=kept.total, day=kept.day, arms={**kept.arms, **budgets})

    ledger.change_caps(ready.campaign, change)
    kept = found[-1]
    if kept is None:
        return [] if wanted.total is not None else ["there is no total cap: nothing limits the spend. Give --cap."]
    own = {name: kept.arms[name] for name in (POLICY, RANDOM) if name in kept.arms}
    if (kept.total, kept.day, own) == (wanted.total, wanted.day, dict(wanted.arms)):
        return []
    total = "none" if kept.total is None else _money(ready, kept.total)
    return [f"the ledger keeps the caps that it has (total {total}). Change them with POST /v1/admin/caps."]


def _check_purses(budgets: Mapping[str, int], total: int | None, ready: Ready) -> None:
    """Arms that together may spend more than there is would starve one another, and the lift would show that."""
    purses = sum(budgets.values())
    if total is not None and purses > total:
        raise OutlayError(
            f"is {_money(ready, total)}, and the arms of the new test may spend {_money(ready, purses)} together: they "
            "would starve one another.", where="the total cap",
            way_out="Give the server a larger --cap (a campaign that the ledger knows: POST /v1/admin/caps), or plan "
            "the test with smaller budgets.",
        )  # fmt: skip


def _money(ready: Ready, amount: int) -> str:
    return f"{ready.money.units(amount):,.10g} {ready.money.unit}"


def _told(trial: Trial, caps: Caps, ready: Ready, day: int) -> list[str]:
    """What the operator should know of the test."""
    meta, today = trial.experiment.meta, day - trial.first
    if today < 0:
        when = f"begins on {meta.start}: until then nobody is in it"
    elif day >= trial.end:
        when = "is over: nobody is in it any more"
    else:
        when = f"is on day {today} of {meta.days}, with a coverage of {trial.experiment.coverage(today):g}"
    words = [f"the test {trial.name!r} ({', '.join(arm.name for arm in trial.arms)}) {when}."]
    purses = sum(caps.arms.get(name, 0) for name in trial.budgets)
    if caps.total is not None and purses > caps.total:
        words.append(
            f"the arms may spend {_money(ready, purses)} together, and the total cap is {_money(ready, caps.total)}: "
            "they will starve one another."
        )
    return words


def _caps(ready: Ready, config: ServeConfig) -> Caps:
    def exact(amount: float | None) -> int | None:
        return None if amount is None else ready.money.exact(amount)

    arms = {POLICY: exact(config.caps.policy), RANDOM: exact(config.random.cap)}
    return Caps(
        total=exact(config.caps.total),
        day=exact(config.caps.day),
        arms={name: cap for name, cap in arms.items() if cap is not None},
        user_amount=exact(config.user.amount),
        user_offers=config.user.decisions,
        user_day_amount=exact(config.user.amount_per_day),
        user_day_offers=config.user.decisions_per_day,
    )
