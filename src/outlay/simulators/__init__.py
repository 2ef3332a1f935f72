"""Campaigns whose truth is known, to rehearse on and to test against. One file a campaign, one row here.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING

from outlay.core.errors import OutlayError
from outlay.core.registry import Registry

if TYPE_CHECKING:
    from outlay.simulators.simulator import World

CAMPAIGNS: Registry[Callable[..., World]] = Registry(
    {
        "habit": "outlay.simulators.habit:simulator",
        "wide": "outlay.simulators.wide:simulator",
        "thirty-day": "outlay.simulators.thirty_day:simulator",
        "city": "outlay.simulators.city_people:simulator",
    }
)

FRACTIONS = ("discount",)  # options that need not be whole numbers


def find(campaign: str, **options: float | None) -> World:
    """Return the campaign of that name; those of few states are a `Simulator`.

    Args:
        campaign: a key of CAMPAIGNS.
        options: the campaign's own arguments, such as `fields` and `values` of *wide*; None or False: its default.

    Raises:
        OutlayError: if the campaign is unknown, has no such option, or cannot take its value.
    """
    if not isinstance(campaign, str) or campaign not in CAMPAIGNS:
        raise OutlayError(f"is {campaign!r}.", where="campaign", way_out=f"Known campaigns: {', '.join(CAMPAIGNS)}.")
    make = CAMPAIGNS[campaign]
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    for name, value in given.items():
        if name not in signature(make).parameters:
            takers = [other for other, maker in CAMPAIGNS.items() if name in signature(maker).parameters]
            way_out = f"It is an option of {' and '.join(takers)}; leave it out." if takers else "Leave it out."
            raise OutlayError(f"{campaign} has no such option.", where=name, way_out=way_out)
        if not isinstance(value, int) and name not in FRACTIONS:
            raise OutlayError(f"is {value!r}.", where=name, way_out="Give a whole number.")
    return make(**given)
