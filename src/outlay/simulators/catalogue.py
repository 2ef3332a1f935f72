"""The campaigns that can be simulated. One file a campaign, one row here.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import TypeVar

from outlay.core.errors import OutlayError
from outlay.simulators import city_people, habit, thirty_day, wide
from outlay.simulators.simulator import Simulator, World

Made = TypeVar("Made")
FRACTIONS = ("discount",)  # options that are no whole numbers

CAMPAIGNS: dict[str, Callable[..., Simulator]] = {
    "habit": habit.simulator,
    "wide": wide.simulator,
    "thirty-day": thirty_day.simulator,
}
"""Campaigns of few states, whose truth is a table."""

WORLDS: dict[str, Callable[..., World]] = {**CAMPAIGNS, "city": city_people.simulator}
"""All campaigns."""


def find(campaign: str, **options: float | None) -> Simulator:
    """The simulator of few states of that name.

    Args:
        campaign: a key of CAMPAIGNS.
        options: arguments of the campaign's own, as `fields` and `values` of *wide*; None: its default.

    Raises:
        OutlayError: if the campaign is unknown, has no such option, or cannot take its value.
    """
    return _made(CAMPAIGNS, campaign, options)


def find_world(campaign: str, **options: float | None) -> World:
    """The campaign of that name, a key of WORLDS; otherwise as `find`. An option that is False is not given.

    Raises:
        OutlayError: as in `find`.
    """
    return _made(WORLDS, campaign, options)


def _made(makers: Mapping[str, Callable[..., Made]], campaign: str, options: Mapping[str, float | None]) -> Made:
    if campaign not in makers:
        raise OutlayError(f"is {campaign!r}.", where="campaign", way_out=f"Known campaigns: {', '.join(makers)}.")
    make = makers[campaign]
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    for name, value in given.items():
        if name not in signature(make).parameters:
            takers = [other for other, maker in WORLDS.items() if name in signature(maker).parameters]
            way_out = f"It is an option of {' and '.join(takers)}; leave it out." if takers else "Leave it out."
            raise OutlayError(f"{campaign} has no such option.", where=name, way_out=way_out)
        if not isinstance(value, int) and name not in FRACTIONS:
            raise OutlayError(f"is {value!r}.", where=name, way_out="Give a whole number.")
    return make(**given)
