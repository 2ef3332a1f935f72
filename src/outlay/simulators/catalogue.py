"""The campaigns that can be simulated. One file a campaign, one row here.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

from outlay.core.errors import OutlayError
from outlay.simulators import habit, thirty_day, wide
from outlay.simulators.simulator import Simulator

CAMPAIGNS: dict[str, Callable[..., Simulator]] = {
    "habit": habit.simulator,
    "wide": wide.simulator,
    "thirty-day": thirty_day.simulator,
}


def find(campaign: str, **options: int | None) -> Simulator:
    """The simulator of that name.

    Args:
        campaign: a key of CAMPAIGNS.
        options: arguments of the campaign's own, as `fields` and `values` of *wide*; None: its default.

    Raises:
        OutlayError: if the campaign is unknown, has no such option, or cannot take its value.
    """
    if campaign not in CAMPAIGNS:
        raise OutlayError(f"is {campaign!r}.", where="campaign", way_out=f"Known campaigns: {', '.join(CAMPAIGNS)}.")
    make = CAMPAIGNS[campaign]
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if name not in signature(make).parameters:
            takers = [other for other, maker in CAMPAIGNS.items() if name in signature(maker).parameters]
            way_out = f"It is an option of {' and '.join(takers)}; leave it out." if takers else "Leave it out."
            raise OutlayError(f"{campaign} has no such option.", where=name, way_out=way_out)
        if not isinstance(value, int):
            raise OutlayError(f"is {value!r}.", where=name, way_out="Give a whole number.")
    return make(**given)
