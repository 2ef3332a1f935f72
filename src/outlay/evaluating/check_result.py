"""What a check is given, and what it answers: the contract of `checks.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.estimates import PolicyEstimates
from outlay.choosing.measure import Measure
from outlay.core.reasons import Reason
from outlay.estimators.agreement import Agreement
from outlay.estimators.balance import BalanceCheck
from outlay.estimators.behaviour.check import BehaviourCheck
from outlay.estimators.joint import Joint
from outlay.estimators.markov import MarkovCheck
from outlay.estimators.observed import Reproduction


class Against(StrEnum):
    """What a finding speaks against."""

    CERTIFICATE = "certificate"
    FITTED = "fitted"  # the fitted evaluation
    DAILY = "fitted by day"  # the fitted evaluation where it goes by day, and so weighs rows by propensities
    WEIGHTS = "weights"  # other estimators that weigh rows by propensities
    STATE = "state"  # other estimators that need the state
    OLD = "old"  # figures of the old policy as well as those of others


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What a check found.

    Attributes:
        ok: whether it was passed; None if it could not be made.
        words: what was found, without a full stop.
        reason: why what it speaks against is not to be relied on, or None.
        against: what that is.
        detail: the figures behind it.
    """

    ok: bool | None
    words: str
    reason: Reason | None = None
    against: tuple[Against, ...] = ()
    # Read back from JSON, the first form that fits is taken: a BalanceCheck has all that a MarkovCheck has, and more.
    detail: Agreement | MarkovCheck | BalanceCheck | BehaviourCheck | Reproduction | None = None


class Judged(NamedTuple):
    """What is judged.

    Attributes:
        measure: the users and their rows.
        new: estimates of the policy.
        old: estimates of the log's own.
        observed: what was observed of the old policy.
        propensity: `[n]` of the logged action in each row.
        follows_past: whether the policy may read single past days.
    """

    measure: Measure
    new: PolicyEstimates
    old: PolicyEstimates
    observed: Joint
    propensity: NDArray[np.float64]
    follows_past: bool


@dataclass(frozen=True, kw_only=True)
class Check:
    """A row of the registry.

    Attributes:
        question: what it asks.
        consequence: what follows if it was not passed.
        find: asks it of what is judged; None where the question does not arise.
        each_policy: whether the answer is another for each policy that is evaluated on the same users.
    """

    question: str
    consequence: str
    find: Callable[[Judged], CheckResult | None]
    each_policy: bool = False
