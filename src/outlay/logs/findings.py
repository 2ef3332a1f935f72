"""A finding about a log: an error, a warning or a note."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

LEVELS = ("error", "warning", "note")
SHOWN = {
    "log.rows": "log.user, log.time",
    "budget": "budget {name}",
    "budget.cost": "budget {name}.cost",
    "budget.reserve": "budget {name}.reserve",
    "column": "column {name}",
    "calendar": "{name}",
}  # key → what people read; of others the key itself, and the name after it


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        level: an error stops `prepare`.
        key: the key of the campaign file that it is about, as `log.action`; `log.rows` for the rows of a user and time,
            `column` and `calendar` for what the campaign file does not name.
        message: what was found.
        way_out: what to do about it; empty where there is nothing to do.
        count: rows, users or values it is about; 0 where there is nothing to count.
        name: which feature, budget or column under that key; None where the key says it.
    """

    level: Literal["error", "warning", "note"]
    key: str
    message: str
    way_out: str
    count: int
    name: str | None = None

    @property
    def where(self) -> str:
        """Key and name as people read them: `log.features, level`, `budget coupon_cost.reserve`."""
        shown = SHOWN.get(self.key, "{key}" if self.name is None else "{key}, {name}")
        return shown.format(key=self.key, name=self.name)

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {"level": self.level, "where": self.where, **asdict(self)}
