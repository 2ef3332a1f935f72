"""serve.toml: settings of a server beyond the bundle's own decisions.

    config = ServeConfig.load("serve.toml")

Every key has a default, and an empty file is valid. Money is in the campaign's unit; only the ledger counts in minor
units. Unknown keys and impossible values are errors that name the file, the key, its value and the nearest known key.
"""

from __future__ import annotations

import datetime
import zoneinfo
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from outlay.core.actions import Given
from outlay.core.errors import OutlayError
from outlay.core.settings import Section, Settings, impossible
from outlay.serve.clock import day_of

MONEY_KINDS = ("redeemed", "refund")  # kinds of outcomes that move money; they are always accepted
Money = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
Outcome = Annotated[str, Field(min_length=1, max_length=256)]


class CapLimits(Section):
    """`[caps]`: hard limits of all money that is reserved or settled. None: no limit of this kind."""

    total: Money | None = None  # of the campaign; `--cap` replaces it
    day: Money | None = None  # of each day
    policy: Money | None = None  # of all that the bundle decides, without the random slice


class UserLimits(Section):
    """`[user]`: limits of each user. Answers without an incentive do not count."""

    decisions_per_day: Count | None = None
    amount_per_day: Money | None = None
    decisions: Count | None = None  # in the whole campaign
    amount: Money | None = None


class ValueLimits(Section):
    """`[values]`: what may be given at all, whatever a bundle says. Anything else becomes none."""

    at_least: float | None = None
    at_most: float | None = None
    allowed: tuple[Given, ...] | None = None

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise impossible(f"at_least is {self.at_least:g} and at_most {self.at_most:g}; nothing lies between")
        return self


class RandomSlice(Section):
    """`[random]`: a share of users whose action is drawn evenly, so that the log supports every action."""

    share: float = Field(default=0.0, ge=0, le=1)  # of users and episodes
    salt: str = Field(default="random-slice", pattern=r"^[^:]+$")  # no other draw may use the same
    cap: Money | None = None  # of the money that the slice may spend


class Episode(Section):
    """`[episode]`: how long a user keeps a member of the mixture."""

    name: str | None = Field(default=None, min_length=1)  # default: the bundle's
    days: int | None = Field(default=None, gt=0)  # length of an episode; None: one for the whole campaign


class Plan(Section):
    """`[plan]`: how to spread the money of the total cap over time. Without it, only the caps limit the spend."""

    start: datetime.date
    days: int = Field(gt=0)
    shares: tuple[Money, ...] | None = None  # one a day; default: the same for all
    correct_minutes: float = Field(default=15.0, ge=1, le=1440)  # between two corrections of the price

    @property
    def first(self) -> int:
        """The number of its first day."""
        return day_of(self.start)

    @model_validator(mode="after")
    def _one_share_a_day(self) -> Self:
        if self.shares is not None and (len(self.shares) != self.days or sum(self.shares) <= 0):
            raise impossible(f"shares has {len(self.shares)} numbers; it needs {self.days}, one a day, not all 0")
        return self


class Limits(Section):
    """`[limits]`: how large a request may be."""

    body_bytes: int = Field(default=4 << 20, gt=0)
    batch: int = Field(default=1_000, gt=0)  # decisions or outcomes in one request
    features_bytes: int = Field(default=64 << 10, gt=0)  # features of a decision as JSON, all of which are recorded


class ServeConfig(Settings):
    """A serve.toml, read and checked.

    Attributes:
        fallback: action given if features are missing or the model fails; None: the campaign's none.
        reserve: action (as text) → money to reserve when it is given; None: the amounts of the bundle.
        minor: minor units in one unit of money, e.g. 100 fen in a yuan.
        timezone: time zone of the days that limits and caps count.
        expiry_hours: hours after which an incentive that was not redeemed gives its money back.
        wait_days: days after a decision until its outcomes are taken as complete.
        outcomes: kinds that are accepted besides redeemed, refund and those that the campaign needs; others are
            refused. The exported log has a column for each, 0 in rows without one.
        ledger_seconds: how long an answer waits for the ledger; then it is none, or 503 if it is being written.
        hold: which mixture of the bundle serves: `auto`, behind a cap the one that keeps no margin below the money
            budget, if the bundle has one; `certified`, always the one with the margin that its certificate is about.
        caps: `[caps]`.
        user: `[user]`.
        values: `[values]`.
        random: `[random]`.
        episode: `[episode]`.
        plan: `[plan]`, or None.
        limits: `[limits]`.
        path: the file it was read from, or None.
    """

    file_kind: ClassVar[str] = "a serve.toml"
    if_absent: ClassVar[str] = "Check the path of --config."

    fallback: Given | None = None
    reserve: dict[str, Money] | None = None
    minor: int = Field(default=100, gt=0)
    timezone: str = "UTC"
    expiry_hours: float = Field(default=24.0, gt=0, le=876_000)  # a century
    wait_days: int = Field(default=8, gt=0)
    outcomes: tuple[Outcome, ...] = ()
    ledger_seconds: float = Field(default=1.0, gt=0)
    hold: Literal["auto", "certified"] = "auto"
    caps: CapLimits = CapLimits()
    user: UserLimits = UserLimits()
    values: ValueLimits = ValueLimits()
    random: RandomSlice = RandomSlice()
    episode: Episode = Episode()
    plan: Plan | None = None
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _known_zone(self) -> Self:
        try:
            zoneinfo.ZoneInfo(self.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise impossible(f"timezone is {self.timezone!r}, which this machine does not know") from None
        return self

    @model_validator(mode="after")
    def _distinct_kinds(self) -> Self:
        seen = {kind.casefold(): kind for kind in MONEY_KINDS}
        for kind in self.outcomes:
            if (other := seen.setdefault(kind.casefold(), kind)) != kind:
                raise impossible(
                    f"outcomes has both {kind!r} and {other!r}; kinds become columns, and column names ignore case"
                )
        return self

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        """The time zone of its days."""
        return zoneinfo.ZoneInfo(self.timezone)

    def with_cap(self, total: float) -> ServeConfig:
        """Return the settings with another total cap.

        Raises:
            OutlayError: if it is not an amount of money.
        """
        if not 0 <= total < float("inf"):
            raise OutlayError(f"is {total:g}; must be 0 or more.", where="--cap", way_out="Give an amount of money.")
        return self.model_copy(update={"caps": self.caps.model_copy(update={"total": total})})
