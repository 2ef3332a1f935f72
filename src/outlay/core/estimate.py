"""A number with what a reader needs to trust it or not."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from outlay.core.reasons import Reason


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
