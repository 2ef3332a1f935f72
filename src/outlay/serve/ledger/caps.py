"""A campaign's hard limits, the money counted against them, and the configuration that its servers share."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from outlay.serve.ledger.records import check_amount, check_ids


class Caps(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hard limits of a campaign. Amounts are minor units, offers are decisions that give an incentive; None: no limit.

    Attributes:
        total: of the whole campaign.
        day: of the decisions of one day.
        arms: of each arm; an arm that is not named has no cap of its own.
        user_amount: of one user over the campaign.
        user_offers: the same, in offers; a released offer was still made and counts.
        user_day_amount: of one user on one day.
        user_day_offers: the same, in offers.
    """

    total: int | None = None
    day: int | None = None
    arms: Mapping[str, int] = field(default_factory=dict)
    user_amount: int | None = None
    user_offers: int | None = None
    user_day_amount: int | None = None
    user_day_offers: int | None = None

    def __post_init__(self) -> None:
        check_ids(**{f"arm {position}": name for position, name in enumerate(self.arms)})
        for name in self.__struct_fields__:
            if name != "arms" and getattr(self, name) is not None:
                check_amount(name, getattr(self, name))
        for name, cap in self.arms.items():
            check_amount(f"arms.{name}", cap)

    @property
    def by_user(self) -> bool:
        """Whether there is a limit per user over the campaign, so that users have counters."""
        return self.user_amount is not None or self.user_offers is not None

    @property
    def by_user_day(self) -> bool:
        """Whether there is a limit per user and day."""
        return self.user_day_amount is not None or self.user_day_offers is not None


class Tally(Struct, frozen=True):
    """Money and decisions of one scope.

    Attributes:
        cap: minor units allowed now; None: no limit.
        reserved: minor units.
        settled: minor units.
        offers: decisions that gave an incentive, whatever it reserved.
        decisions: all decisions.
        granted: minor units ever reserved; it never decreases.
        excess: minor units of `settled` that no reservation covered (`settlement`).
    """

    cap: int | None
    reserved: int
    settled: int
    offers: int
    decisions: int
    granted: int
    excess: int = 0

    @property
    def overrun(self) -> int:
        """Minor units by which reserved and settled money exceeds the cap now."""
        return 0 if self.cap is None else max(self.reserved + self.settled - self.cap, 0)


class Totals(Struct, frozen=True, kw_only=True):
    """A campaign's money by scope; an arm's day has no cap of its own."""

    campaign: str
    caps: Caps
    paused: bool
    total: Tally
    days: dict[int, Tally]
    arms: dict[str, Tally]
    arm_days: dict[tuple[str, int], Tally]


class CampaignConfig(Struct, frozen=True, kw_only=True):
    """Configuration shared by all servers of a campaign. It is stored in the ledger and changed in one transaction.

    Attributes:
        caps: hard limits.
        settings: JSON of the servers' settings; empty before the first server starts.
        bundle: id of the bundle in service; empty before the first server starts.
        path: its folder, on the server that put it into service.
    """

    caps: Caps
    settings: str = ""
    bundle: str = ""
    path: str = ""
