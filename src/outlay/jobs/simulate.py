"""`outlay simulate`: a campaign whose truth is known.

    path = simulate("habit", "habit/", users=200_000)      # campaign.toml of the folder

A new simulator is a file in `simulators/` and a branch here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from outlay.core.errors import OutlayError
from outlay.core.files import check_replaceable
from outlay.core.version import __version__
from outlay.simulators import habit
from outlay.simulators.write import write_campaign

CAMPAIGNS = ("habit",)


def simulate(
    campaign: Literal["habit"],
    out: str | Path,
    *,
    users: int = 200_000,
    days: int = 7,
    seed: int = 0,
    held: tuple[float, float] | None = None,
) -> Path:
    """Write a simulated campaign: log, campaign file, truth and states.

    Args:
        campaign: which one; `habit` is the only one so far.
        out: the folder to write; an older folder of ours is replaced.
        users: number of users.
        days: days of log per user.
        seed: of the random numbers; the same arguments give the same campaign.
        held: two of the campaign's actions. Each user keeps one of them, drawn with equal probability, for all days:
            the experiment that shows the effect of an incentive held for a whole window.

    Returns:
        The path of campaign.toml in the folder.

    Raises:
        OutlayError: if the campaign is unknown, a number is impossible, or `held` is not two of the actions.
        FolderError: if `out` holds something that outlay did not write.
    """
    if campaign not in CAMPAIGNS:
        raise OutlayError(f"is {campaign!r}.", where="campaign", way_out=f"Known campaigns: {', '.join(CAMPAIGNS)}.")
    for name, value, least in (("users", users, 1), ("days", days, 1), ("seed", seed, 0)):
        if not isinstance(value, int) or value < least:
            raise OutlayError(f"is {value}.", where=name, way_out=f"Give a whole number, {least} or more.")
    if held is not None:
        held = _pair(held)
    out = Path(out)
    check_replaceable(out)
    yesterday, level = habit.states()
    return write_campaign(
        out,
        text=habit.campaign_text(days, held),
        log=habit.generate(users, days, seed, held=held),
        states={"yesterday": yesterday, "level": level},
        truth=habit.cmdp(),
        actions=habit.COUPONS,
        manifest={
            "campaign": campaign,
            "users": users,
            "days": days,
            "seed": seed,
            "held": None if held is None else list(held),
            "outlay": __version__,
        },
    )


def _pair(held: tuple[float, ...]) -> tuple[float, float]:
    """The two held coupons, ascending."""
    coupons = habit.COUPONS.tolist()
    choice = f"Give two different values of: {', '.join(f'{c:g}' for c in coupons)}."
    for value in held:
        if value not in coupons:
            raise OutlayError(f"{value:g} is not an action of this campaign.", where="held", way_out=choice)
    if len(held) != 2 or held[0] == held[1]:
        raise OutlayError(f"is {', '.join(f'{v:g}' for v in held)}.", where="held", way_out=choice)
    low, high = sorted(float(value) for value in held)
    return low, high
