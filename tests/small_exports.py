"""A ledger with decisions of a small campaign, written directly: three days, two members, three actions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from outlay.serve.clock import Clock
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.decider import DrawRecord, encode_draw
from outlay.serve.export.export import ExportResult, export_log
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.ledger import Note
from outlay.serve.ledger.postgres import PostgresLedger
from outlay.serve.ledger.records import Outcome, Proposal, new_decision_id
from outlay.serve.ledger.sqlite import SqliteLedger

DAY = 86_400_000
FIRST = 20_454  # 2026-01-01
WAIT = 2
CAMPAIGN = {
    "campaign": {"name": "coupons", "unit": "yuan", "discount": 0.8, "horizon_days": 3, "report_days": [1, 3]},
    "log": {
        "user": "user_id",
        "time": "day",
        "action": "coupon",
        "actions": [0.0, 1.5, 3.0],
        "reward": "active",
        "segment": "case when level <= 1 then 'low' else 'high' end",
        "where": "not is_test",
        "features": {"categorical": ["level", "city"], "numeric": ["spend"]},
    },
    "budget": [
        {"name": "visits", "cost": "coalesce(visit, 0)", "at_most": 3.0},
        {"name": "coupon_cost", "cost": "coupon * active", "at_most": 1.2, "reserve": "coupon", "money": True},
    ],
}
MANIFEST = {
    "id": "b1",
    "name": "coupons",
    "unit": "yuan",
    "none": 0.0,
    "actions": [0.0, 1.5, 3.0],
    "reserve": [0.0, 1.5, 3.0],
    "features": CAMPAIGN["log"]["features"],  # type: ignore[index]
    "members": [{"salt": "a"}, {"salt": "b"}, {"salt": "c"}, {"salt": "d"}],
    "frontier": None,
}
PLAIN = CAMPAIGN | {  # asks for no outcome
    "log": CAMPAIGN["log"] | {"reward": "paid"},  # type: ignore[operator]
    "budget": [{"name": "coupon_cost", "cost": "coupon * active", "at_most": 1.2}],
}
_numbers = itertools.count()


class Writer:
    """Writes to a ledger with notes of a bundle and of settings."""

    set_caps: Any
    note: Any
    record: Any
    outcomes: Any

    def begin(self, campaign: Any, name: str, caps: Caps | None, **manifest: Any) -> None:
        """Introduce the campaign."""
        self.campaign = name
        self.set_caps(name, caps or Caps())
        settings = ServeConfig.parse({"wait_days": WAIT}).model_dump_json()
        self.note(name, Note(kind="settings", key="0", ts=0, content=settings))
        self.introduce("b1", campaign=campaign, **manifest)

    def introduce(self, bundle: str, **manifest: Any) -> None:
        """Another bundle."""
        ts = manifest.pop("ts", 0)
        content = json.dumps(MANIFEST | {"id": bundle, "campaign": PLAIN} | manifest)
        self.note(self.campaign, Note(kind="bundle", key=bundle, ts=ts, content=content))

    def decide(
        self,
        user: str,
        day: int,
        *,
        member: int | None = 0,
        actions: Sequence[int] = (2, 1),
        weights: Sequence[float] = (0.6, 0.4),
        random: float = 0.0,
        forced: str | None = None,
        index: int | None = None,
        **changes: Any,
    ) -> str:
        """A decision of the `day`-th day; its id."""
        ts = (FIRST + day) * DAY + changes.pop("hour", 12) * 3_600_000 + next(_numbers)
        index = 0 if forced else actions[member] if index is None and member is not None else index or 0
        draw = DrawRecord([0, 1], list(actions), list(weights), random=random, allowed=changes.pop("allowed", None))
        features = changes.pop("features", {"level": 1, "city": "Ulm", "spend": 2.5})
        fields: dict[str, Any] = {
            "campaign": self.campaign,
            "request_id": f"r{next(_numbers)}",
            "body": "",
            "decision_id": new_decision_id(ts),
            "ts": ts,
            "time": f"day {day}",
            "day": FIRST + day,
            "arm": "policy" if member is not None else "random",
            "user": user,
            "episode": "coupons",
            "bundle": "b1",
            "member": member,
            "action": [0.0, 1.5, 3.0][index],
            "action_index": index,
            "amount": [0, 150, 300][index],
            "probability": 1.0,
            "members": encode_draw(draw),
            "features": json.dumps(features),
            "reason": forced or "policy",
            "expires": ts + DAY,
            "forced": forced is not None,
            "none_action": 0.0,
            "none_index": 0,
        }
        [answer] = self.record([Proposal(**(fields | changes))])
        return str(answer.decision_id)

    def came(self, decision: str, kind: str, value: float | None = None, **changes: Any) -> None:
        """An outcome, an hour after the decision unless it says when it was `received`."""
        received = changes.pop("received", int(decision[:12], 16) + 3_600_000)
        minor = None if value is None or kind not in ("redeemed", "refund") else round(value * 100)
        event = Outcome(
            decision_id=decision,
            kind=kind,
            event_id=f"e{next(_numbers)}",
            ts=received,
            received=received,
            value=value,
            amount=minor,
        )
        self.outcomes([event])


class Ledger(Writer, SqliteLedger):
    """In a file."""

    def __init__(
        self, path: Path, campaign: Any = PLAIN, *, name: str = "coupons", caps: Caps | None = None, **manifest: Any
    ) -> None:
        super().__init__(path)
        self.url = f"sqlite:///{path}"
        self.begin(campaign, name, caps, **manifest)


class ServerLedger(Writer, PostgresLedger):
    """In a PostgreSQL."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url
        self.begin(PLAIN, "coupons", None)


def on(day: int) -> Any:
    """A clock that stands at noon of the `day`-th day."""
    return lambda zone: Clock(zone, lambda: (FIRST + day) * 86_400 + 43_200)


def export(ledger: Ledger | ServerLedger, out: Path, today: int = 10, **options: Any) -> ExportResult:
    return export_log(ledger.url, out, clock=on(today), **options)


def rows_of(out: Path, part: str = "log") -> list[dict[str, Any]]:
    """All rows of the exported log, by user and day."""
    files = sorted(map(str, (out / part).glob("*/*.parquet")))
    if not files:
        return []
    rows: list[dict[str, Any]] = ds.dataset(files).to_table().to_pylist()
    return sorted(rows, key=lambda row: (row["user_id"], row["day"], row["decision_id"]))
