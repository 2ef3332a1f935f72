"""Types of requests and answers, decoded and validated strictly in one pass.

Unknown fields and wrong types are errors that name the field (`http/routes.py`). A body is one message or a list:
`{"request_id": …}` or `{"requests": [ … ]}`.
"""

from __future__ import annotations

import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from outlay.serve.deciding.features import value_text
from outlay.serve.ledger.records import ID_LENGTH, LARGEST_VALUE, TIME_LENGTH

PAST_DAYS = 365  # the most that [log.history] may look back
_SECONDS = 100_000_000_000  # about the year 5138; anything later is a mistake
# PostgreSQL's texts cannot contain NUL, and ids with line breaks make logs unreadable.
_NO_CONTROLS = r"^(?![\s\S]*[\x00-\x1f\x7f])"
Id = Annotated[str, Meta(min_length=1, max_length=ID_LENGTH, pattern=_NO_CONTROLS)]
_Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Number = Annotated[float, Meta(ge=-(2.0**63), le=2.0**63)]
PastValue = _Whole | _Number | str | None
Feature = str | _Whole | float | bool | None
RequestTime = (
    Annotated[str, Meta(max_length=TIME_LENGTH, pattern=_NO_CONTROLS, description="In any form.")]
    | _Whole
    | _Number
    | None
)
EventTime = (
    Annotated[int, Meta(ge=-_SECONDS, le=_SECONDS, description="Epoch seconds.")]
    | Annotated[float, Meta(ge=-_SECONDS, le=_SECONDS)]
    | Annotated[datetime.datetime, Meta(tz=True, description="RFC 3339, with a time zone.")]
    | None
)


class _Strict(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class DecisionRequest(_Strict, frozen=True):
    """Which incentive should this user get now?"""

    request_id: Annotated[
        Id, Meta(description="Your id, one per decision. The same id gets the same answer, until that expires.")
    ]
    user_id: Annotated[Id | _Whole | _Number, Meta(description="3, 3.0 and '3' are one user.")]
    features: Annotated[
        dict[str, Feature],
        Meta(description="The state by feature. null is missing; an absent feature gets the fallback action."),
    ]
    time: Annotated[RequestTime, Meta(description="By your clock; recorded only. The server's clock decides.")] = None
    eligible: Annotated[
        Annotated[list[float | str], Meta(max_length=1_000)] | None,
        Meta(description="The actions that are allowed, by their names or amounts; null allows all."),
    ] = None
    past: Annotated[
        Annotated[list[dict[str, PastValue]], Meta(max_length=PAST_DAYS)] | None,
        Meta(
            description="The user's past days, for a policy that looks at them: days_ago (1 is yesterday), and the "
            "columns of [log.history], null where unknown; an action by its name or amount. Without it, the past "
            "is what the ledger knows."
        ),
    ] = None

    cluster: Annotated[
        Id | _Whole | _Number | UnsetType | None,
        Meta(
            description="The user's cluster, for a test that draws its arms by cluster: a city, a household. Needed "
            "there unless it is one of the features; elsewhere it has no effect. A user keeps the first."
        ),
    ] = UNSET  # not in the hash of a request that lacks it


class DecisionRequests(_Strict, frozen=True):
    """Several requests; each is decided on its own, in this order."""

    requests: list[DecisionRequest]


DecisionState = Literal["none", "reserved", "redeemed", "expired"]


class DecisionAnswer(Struct, frozen=True, kw_only=True):
    """The decision for a user.

    Attributes:
        decision_id: identifies the decision in outcomes; null in a 503, if this attempt was not recorded.
        action: the action, by its name in the log, or the amount where it has none.
        amount: how much it gives; only where actions have both names and amounts.
        action_index: its position in the bundle's actions; null if it is none of them.
        member: position of the member that decided; null if none did.
        probability: of this action, over the draw of the member or of the random slice.
        bundle: id of the bundle.
        reason: policy, random, constant, holdout, a fallback, the guard that answered, or expired.
        arm: the user's arm of the test; otherwise policy, or random for the random slice.
        state: none (nothing was given), reserved, redeemed or expired. Give the action only if it is reserved.
        expires_at: when an incentive that is not redeemed expires; null if none was given.
    """

    decision_id: str | None
    action: float | str
    action_index: int | None
    member: int | None
    probability: float
    bundle: str
    reason: str
    arm: str
    state: DecisionState
    expires_at: Annotated[datetime.datetime, Meta(tz=True, description="RFC 3339, in UTC.")] | None
    amount: float | UnsetType = UNSET


class OutcomeRequest(_Strict, frozen=True):
    """An event that followed a decision."""

    decision_id: Annotated[str, Meta(max_length=32, pattern="^[0-9a-f]{32}$")]
    kind: Annotated[
        Id, Meta(description="redeemed settles the money, refund gives it back; other declared kinds are kept.")
    ]
    event_id: Annotated[Id, Meta(description="Your id, one per event. The same event moves money once.")]
    time: Annotated[EventTime, Meta(description="When it happened, by your clock.")] = None
    value: Annotated[
        Annotated[float, Meta(ge=-LARGEST_VALUE, le=LARGEST_VALUE)] | None,
        Meta(description="For redeemed and refund, the money; null means all of it. For other kinds, any number."),
    ] = None


class OutcomeRequests(_Strict, frozen=True):
    """Several outcomes, recorded in this order."""

    outcomes: list[OutcomeRequest]


class OutcomeAnswer(Struct, frozen=True, kw_only=True):
    """The result of an outcome: kept, settled, late, overrun, refunded or refused, and the money that moved.

    Attributes:
        amount: money that moved.
        excess: the part of it that no reservation covered; it counts as spent and reduces what may be granted.
    """

    decision_id: str
    kind: str
    event_id: str
    status: str
    amount: float
    excess: float
    replayed: bool


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error in a request.

    Attributes:
        error: description of the error.
        where: the field, e.g. $.requests[3].features.level.
        way_out: how to fix it.
    """

    error: str
    where: str | None = None
    way_out: str | None = None


class NotFound(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """A request about a decision that there is not."""


class BadRequestError(Exception):
    """A request that cannot be answered.

    Attributes:
        status: HTTP status of the answer.
        problem: body of the answer.
    """

    def __init__(self, status: int, problem: Problem) -> None:
        self.status = status
        self.problem = problem
        super().__init__(problem.error)


class DecisionAnswers(Struct, frozen=True):
    """Answers in the order of the requests; a Problem if a request id belongs to another request."""

    decisions: list[DecisionAnswer | Problem]


class OutcomeAnswers(Struct, frozen=True):
    """Answers in the order of the outcomes; a Problem if there is no such decision, or the event id is another's."""

    outcomes: list[OutcomeAnswer | Problem]


class BundleRequest(_Strict, frozen=True):
    """Serve this bundle from now on."""

    path: Annotated[
        str, Meta(min_length=1, pattern=_NO_CONTROLS, description="The bundle's folder on the server's machine.")
    ]


_Money = Annotated[float, Meta(ge=0)]


class CapsRequest(_Strict, frozen=True):
    """New caps in money; an absent cap is unchanged, null removes the limit."""

    total: _Money | UnsetType | None = UNSET
    day: _Money | UnsetType | None = UNSET
    arms: dict[Id, _Money | None] | UnsetType = UNSET


def time_text(time: RequestTime) -> str | None:
    """Return a request's time as the ledger stores it: a text unchanged, a number as a decimal."""
    if isinstance(time, float):
        return repr(time)
    return None if time is None else str(time)


def cluster_text(request: DecisionRequest, column: str, path: str) -> str:
    """Return the cluster that a request gives, as canonical text: `cluster`, or the feature that it is.

    Args:
        request: as received.
        column: by which the test draws its arms.
        path: of the request in the body, for errors.

    Raises:
        BadRequestError: 422 if the request gives none, or two.
    """
    stated = None if request.cluster is UNSET else value_text(request.cluster)
    feature = value_text(request.features.get(column))
    found = feature if stated is None else stated
    if found is not None and feature in (None, found):
        return found
    error, way_out = f"is {stated!r}, and the feature {column!r} is {feature!r}.", "Give the same in both."
    if found is None:
        error = f"is absent, and the test draws its arms by {column}."
        way_out = "Give the user's cluster, as outlay experiment assign reads it."
        if column in request.features:
            way_out += f" The feature {column!r} would do, but is missing."
    raise BadRequestError(422, Problem(error=error, where=f"{path}.cluster", way_out=way_out))
