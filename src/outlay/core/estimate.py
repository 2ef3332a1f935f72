"""A number with what a reader needs to trust it or not, and the name of what it is a number of.

    Target("reward")                     `reward`             the discounted mean, or the mean over the log's window
    Target("reward", 7)                  `reward@7`           the undiscounted total of a user's first 7 days
    Target("reward", kind="discounted")  `reward/discounted`  the discounted mean, where `reward` is one over a window
    Target("reward", kind="long run")    `reward/long run`    see `estimators/long_run.py`, as of "log states"
    Target("cost", kind="decision")      `cost/decision`      the observed mean per decision of the log

Tables, JSON and the columns of a `Joint` hold the text; `Target.parse` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from outlay.core.reasons import Reason

Kind = Literal["", "discounted", "long run", "log states", "decision"]
KINDS: tuple[Kind, ...] = ("discounted", "long run", "log states", "decision")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One estimated quantity of one policy.

    Attributes:
        policy: `mixture`, `old`, `member 0`, ….
        estimator: the name of the estimator's file.
        target: `reward` or a budget's name ((1−γ)·J, or that budget's unit), `reward@7`: the total of 7 days per user.
        value: the point estimate; None where it is withheld.
        low: lower end of the interval; None where there is none.
        high: upper end of the interval; None where there is none.
        std_error: standard error behind the interval; None where there is none.
        ess: effective sample size in users.
        recommended: whether to act on it.
        withheld: None, or the reason why no number is given.
        caution: why a number that is given is not recommended; None where it is, or there is no number.
    """

    policy: str
    estimator: str
    target: str
    value: float | None
    low: float | None = None
    high: float | None = None
    std_error: float | None = None
    ess: float | None = None
    recommended: bool = False
    withheld: Reason | None = None
    caution: Reason | None = None

    def as_fields(self) -> dict[str, Any]:
        """The fields by name, for an estimate that has more of them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


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
