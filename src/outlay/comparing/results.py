"""What a comparison finds: figures of every method under each control, and which orderings hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

CONTROLS = {"immediate": "equal spend on day one", "total": "the campaign's limits"}
RE_SOLVED = ", re-solved"  # ends the name of a rule whose weights were solved again on the fitted figures
CAPTURED = "captured share"  # (value − best constants) / (optimum − best constants), at the policy's own true spend
TOLERANCE = 1e-3  # of a limit: what is past it by less was chosen to lie on it

Kind = Literal["value", "truth"]
Verdict = Literal["holds", "does not hold", "a tie"]


@dataclass(frozen=True)
class Figure:
    """One number of one row.

    Attributes:
        value: mean over seeds, estimated; None where it is withheld.
        low, high: interval of the mean over seeds; None where there is none.
        sd: standard deviation over seeds; None for one seed.
        truth: true mean over seeds; None where it is not known.
        truth_sd: its standard deviation over seeds.
    """

    value: float | None
    low: float | None
    high: float | None
    sd: float | None
    truth: float | None
    truth_sd: float | None


@dataclass(frozen=True)
class Row:
    """A method under one control.

    Attributes:
        name: of the method.
        group: `log`, `constant`, `two-stage` or `rl`.
        control: `immediate`, `total`, or `none` for the log's policy.
        oracle, rule, label_days: of the method; None where it has none. The rule of a frontier is `frontier`, and its
            oracle is `tabular` if it counts; a rule's name ends in `, re-solved` where its weights were solved again.
        figures: by target: `reward@7`, `coupon_cost`, ….
        stored_parameters, seconds: means over seeds; None where nothing was learned.
        refused: why there are no figures, if there are none.
    """

    name: str
    group: str
    control: str
    oracle: str | None = None
    rule: str | None = None
    label_days: int | None = None
    figures: dict[str, Figure] = field(default_factory=dict)
    stored_parameters: float | None = None
    seconds: float | None = None
    refused: str | None = None


@dataclass(frozen=True)
class Limit:
    """One budget of the campaign.

    Attributes:
        name: as in the campaign file.
        limit: as in the campaign file.
        sign: +1 at most, −1 at least.
        per: `decision`, or `user` for a total over the horizon.
        words: `at most 1.2 per decision`.
    """

    name: str
    limit: float
    sign: int
    per: str
    words: str


@dataclass(frozen=True)
class Finding:
    """Whether one ordering holds.

    Attributes:
        control: `immediate` or `total`.
        claim: the ordering, `BCQ, lp ≥ EDRR, lp`.
        verdict: what the two numbers say of it.
        proven: False where a spread over seeds is not known, so that nothing is proven.
        first, first_value: a method and its reward.
        second, second_value: what it is held against.
        target: the reward that decides, `reward@7`.
        true: whether both values are true; otherwise both are estimated.
        over: those of the two methods that break a limit of the campaign.
    """

    control: str
    claim: str
    verdict: Verdict
    proven: bool
    first: str
    first_value: float
    second: str
    second_value: float
    target: str
    true: bool
    over: tuple[str, ...] = ()


def past(cost: float | None, limit: float, sign: int) -> bool:
    """Whether a cost breaks a limit: `sign` is +1 for a ceiling, −1 for a floor. An unknown cost does not."""
    return cost is not None and sign * (cost - limit) > TOLERANCE * abs(limit)
