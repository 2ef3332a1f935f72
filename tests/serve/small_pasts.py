"""The small bundle with `[log.history]`: a policy that looks at each user's past days."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from outlay.bundles.write import MemberSpec, write_bundle
from outlay.core.campaign import Campaign
from outlay.core.history import History
from outlay.core.schema import Numeric, Schema
from small_bundles import CAMPAIGN, SCHEMA, random_network, spec

FIRST = 20_454  # 2026-01-01
COLUMNS = ("action", "reward", "coupon_cost", "spend")


def campaign(days: int = 4, columns: tuple[str, ...] | None = COLUMNS, **log: Any) -> Campaign:
    content = CAMPAIGN.model_dump(mode="json", by_alias=True, exclude_none=True)
    history = {"days": days} if columns is None else {"days": days, "columns": list(columns)}
    content["log"] |= {"history": history} | log
    content["budget"] = [{"name": "coupon_cost", "cost": "coupon * active", "at_most": 1.2, "money": True}]
    return Campaign.parse(content, Path("campaign.toml"))


def write_past_bundle(folder: Path, seed: int = 2, campaign: Campaign | None = None) -> Path:
    """A bundle whose policy looks at the past."""
    campaign = campaign or globals()["campaign"]()
    history = History.of(campaign)
    assert history is not None
    schema = Schema(SCHEMA.categorical, (*SCHEMA.numeric, *(Numeric(name, 0.3, 0.7) for name in history.names)))
    members = tuple(
        MemberSpec(
            random_network(seed + i, numbers=2 * len(schema.numeric)), weight, [0.5 * i], [1.0, -0.5 * i], [0.2, 1.0]
        )
        for i, weight in enumerate((0.6, 0.4))
    )
    write_bundle(folder, replace(spec(campaign), schema=schema, members=members))
    return folder


class Time:
    """Epoch seconds that a test sets: a day since `FIRST` and an hour."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at(0)

    def at(self, day: int, hour: float = 9) -> None:
        """It is this hour of this day."""
        self.now = (FIRST + day) * 86_400 + hour * 3_600

    def __call__(self) -> float:
        """Epoch seconds."""
        return self.now
