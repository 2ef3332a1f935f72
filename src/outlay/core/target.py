"""The name of an estimated quantity: what it is of, and over which days.

    Target("reward")                     `reward`             the discounted mean, or the mean over the log's window
    Target("reward", 7)                  `reward@7`           the undiscounted total of a user's first 7 days
    Target("reward", kind="discounted")  `reward/discounted`  the discounted mean, where `reward` is one over a window
    Target("reward", kind="long run")    `reward/long run`    see `estimators/long_run.py`
    Target("cost", kind="decision")      `cost/decision`      the observed mean per decision of the log

Tables, JSON and the columns of a `Joint` hold the text; `Target.parse` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["", "discounted", "long run", "decision"]
KINDS: tuple[Kind, ...] = ("discounted", "long run", "decision")


@dataclass(frozen=True, slots=True)
class Target:
    """One quantity.

    Attributes:
        name: `reward`, `decisions` or the name of a budget.
        days: days of a total per user; None for a mean.
        kind: which mean, where there is more than one; empty for the usual one and for totals.
    """

    name: str
    days: int | None = None
    kind: Kind = ""

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        return f"{self.name}@{self.days}" if self.days is not None else f"{self.name}/{self.kind}".removesuffix("/")

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read a target from its text. An ending that names neither days nor a kind of mean belongs to the name."""
        for kind in KINDS:
            if text.endswith(f"/{kind}"):
                return cls(text.removesuffix(f"/{kind}"), None, kind)
        name, _, days = text.rpartition("@")
        return cls(name, int(days)) if name and days.isdecimal() else cls(text)


def longest_total(targets: Iterable[str]) -> str | None:
    """Return the reward's total over the most days among `targets`, else `reward` where that is there, else None."""
    mine = [target for text in targets if (target := Target.parse(text)).name == "reward" and not target.kind]
    return str(max(mine, key=lambda target: target.days or 0)) if mine else None
