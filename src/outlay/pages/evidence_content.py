"""What a report shows of the evaluation: the certificate, gains by segment, and what the numbers rest on."""

from __future__ import annotations

from dataclasses import dataclass

from outlay.core.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One limit in the certificate, in the unit of its budget.

    Attributes:
        budget: name.
        value: estimated cost of the mixture as served.
        bound: one-sided bound on it: upper for a ceiling, lower for a floor.
        margin: what the limit was tightened by when the mixture was chosen, ≥ 0.
        kept: whether the bound is on the right side of the limit.
    """

    budget: str
    value: float
    bound: float
    margin: float
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What the mixture brings beyond the old policy.

    Attributes:
        target: what was maximised: `reward`, or `reward@7` where a budget is per user.
        value: the difference.
        bound: its lower bound, at the certificate's confidence.
    """

    target: str
    value: float
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """All limits as one verdict, on users never used for choosing.

    Attributes:
        bounds: one per budget.
        confidence: of the bounds, 1 − `level`.
        look: which look at the certify users this was, from 1.
        level: the share of α this look was allowed, α / 2^look.
        users: certify users.
        policies: how many policies its bounds hold for together, so for every mixture of them; 1: this one alone.
        gain: over the old policy; None where it could not be measured.
        rests_on: what must be true for it to hold, a sentence each.
        refused: None, or why no bound can be given (support is missing, say).
    """

    bounds: tuple[Bound, ...]
    confidence: float
    look: int
    level: float
    users: int
    policies: int = 1
    gain: Gain | None = None
    rests_on: tuple[str, ...] = ()
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLine:
    """One quantity of the users of a segment, by the fitted evaluation.

    Attributes:
        segment: name of the group, taken at a user's first row.
        users: certify users in it.
        target: as in `Estimate`.
        old: of the log's own policy.
        new: of the policy as served.
        gain: new − old, paired by user.
    """

    segment: str
    users: int
    target: str
    old: Estimate
    new: Estimate
    gain: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """Another policy, and the differences to it.

    Attributes:
        title: what tables call it.
        estimates: the policy as served less that one, paired by user, by every estimator that both have.
    """

    title: str
    estimates: tuple[Estimate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check that the evaluation had to pass.

    Attributes:
        name: `propensities`, `reproduction` or `agreement`.
        ok: whether it did; None where it could not be made.
        words: what was found, a sentence.
    """

    name: str
    ok: bool | None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PathLine:
    """How much of the log goes the policy's way for some days.

    Attributes:
        days: how many.
        users: whose window covers them.
        matched: share of those whose logged actions are the policy's on all of these days.
        ess: effective number of users: what the weights of the matching ones are worth.
        clipped: share of the weights at which the clip of importance sampling binds.
        heaviest: share of all weight that one user has; None without a match.
    """

    days: int
    users: int
    matched: float
    ess: float
    clipped: float
    heaviest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapLine:
    """One step of the policy against the log, in a segment.

    Attributes:
        segment: its name.
        choices: rows with a choice.
        matched: share of them in which the log gave what the policy may give.
        ess: effective number of them.
        mean_ratio: mean of π/p; 1 where propensities are right.
        error: its standard error, by user; None where there is one user.
        unseen: values that the policy gives there and the log never gave.
        unseen_share: their share of what the policy gives.
    """

    segment: str
    choices: int
    matched: float
    ess: float
    mean_ratio: float
    error: float | None
    unseen: tuple[float, ...]
    unseen_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FitLine:
    """One action of a behaviour model, over the certify users' rows in which it could be given.

    Attributes:
        action: the value given.
        rows: how many.
        predicted: mean of the model's probabilities.
        observed: share in which it was given.
    """

    action: float
    rows: int
    predicted: float
    observed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the numbers rest on.

    Attributes:
        checks: in the order of the page.
        paths: by number of days, ascending.
        overlap: by segment.
        model: of the old policy, by action; empty where propensities are as logged.
    """

    checks: tuple[Check, ...]
    paths: tuple[PathLine, ...]
    overlap: tuple[OverlapLine, ...]
    model: tuple[FitLine, ...] = ()
