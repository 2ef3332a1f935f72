"""The campaigns that can be simulated. One file a campaign, one row here.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

from outlay.core.errors import OutlayError
from outlay.simulators import city_people, habit, thirty_day, wide
from outlay.simulators.simulator import World

CAMPAIGNS: dict[str, Callable[..., World]] = {
    "habit": habit.simulator,
    "wide": wide.simulator,
    "thirty-day": thirty_day.simulator,
    "city": city_people.simulator,
}


def find(campaign: str, **options: float | None) -> World:
    """The simulator of that name.

    Args:
        campaign: a key of CAMPAIGNS.
        options: arguments of the campaign's own, as `fields` and `values` of *wide*; None or False: its default.

    Raises:
        OutlayError: if the campaign is unknown, has no such option, or cannot take its value.
    """
    if campaign not in CAMPAIGNS:
        raise OutlayError(f"is {campaign!r}.", where="campaign", way_out=f"Known campaigns: {', '.join(CAMPAIGNS)}.")
    make = CAMPAIGNS[campaign]
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    for name, value in given.items():
        if name not in signature(make).parameters:
            takers = [other for other, maker in CAMPAIGNS.items() if name in signature(maker).parameters]
            way_out = f"It is an option of {' and '.join(takers)}; leave it out." if takers else "Leave it out."
            raise OutlayError(f"{campaign} has no such option.", where=name, way_out=way_out)
        if not isinstance(value, float if name == "discount" else int):
            raise OutlayError(
                f"is {value!r}.", where=name, way_out="Give a number." if name == "discount" else "Give a whole number."
            )
    return make(**given)
