"""A request on its way into a group: read by the bundle, and by the arm of the test, that may decide about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.serve.deciding.decider import Decider, EncodedRequest
from outlay.serve.deciding.features import EncodedRow, FeatureValueError, value_text
from outlay.serve.deciding.loaded_bundle import LoadedBundle
from outlay.serve.experiment.arms import Enrolment, ServedArm, ServedExperiment
from outlay.serve.handlers.messages import BadRequestError, DecisionRequest, Problem


class PendingRequest(NamedTuple):
    """A request on its way into a group.

    Attributes:
        request: as it came.
        case: of this request, encoded for `loaded`.
        loaded: the bundle that was in service when it came.
        entry: where the user is in the test that is served; None: never in it.
        inside: the case as the arm's own bundle reads it; None where the arm has none.
    """

    request: DecisionRequest
    case: EncodedRequest
    loaded: LoadedBundle
    entry: Enrolment | None = None
    inside: EncodedRequest | None = None

    def arm(self, day: int) -> ServedArm | None:
        """What decides on this day of the server's clock; None: the bundle in service."""
        return self.entry.arm if self.entry is not None and self.entry.holds(day) else None


def pending_requests(
    requests: Sequence[DecisionRequest], loaded: LoadedBundle, trial: ServedExperiment | None, *, many: bool
) -> list[PendingRequest]:
    """All requests of a body, in order.

    Args:
        requests: as they came.
        loaded: the bundle in service.
        trial: the A/B test that is served, or None.
        many: they came under `requests`; else the one is the body itself. For paths in errors.

    Raises:
        BadRequestError: 422 if one of them cannot be decided.
    """
    paths = [f"$.requests[{i}]" for i in range(len(requests))] if many else ["$"]
    asked = [
        PendingRequest(request, _case(request, loaded, path), loaded)
        for request, path in zip(requests, paths, strict=True)
    ]
    if trial is None:
        return asked
    entries = trial.entries([each.case.user for each in asked])
    return [_entered(each, entry, path) for each, entry, path in zip(asked, entries, paths, strict=True)]


def _case(request: DecisionRequest, loaded: LoadedBundle, path: str) -> EncodedRequest:
    user = value_text(request.user_id)
    if user is None:
        raise BadRequestError(422, Problem(error=f"{request.user_id!r} names no user.", where=f"{path}.user_id"))
    eligible: NDArray[np.bool_] | None = None
    if request.eligible is not None:
        eligible = np.zeros(len(loaded.amounts), np.bool_)
        for i, action in enumerate(request.eligible):
            index = loaded.decider.index_of(action)
            if index < 0 and action != loaded.decider.none:
                raise BadRequestError(
                    422,
                    Problem(
                        error=f"{action:g} is not one of the actions {loaded.bundle.actions.tolist()}.",
                        where=f"{path}.eligible[{i}]",
                    ),
                )
            if index >= 0:
                eligible[index] = True
    return EncodedRequest(request.request_id, user, _row(request, loaded.decider, path), eligible)


def _entered(asked: PendingRequest, entry: Enrolment | None, path: str) -> PendingRequest:
    if entry is None or entry.arm.decider is None:
        return asked._replace(entry=entry)
    row = _row(asked.request, entry.arm.decider, path)
    return asked._replace(entry=entry, inside=asked.case._replace(row=row))


def _row(request: DecisionRequest, decider: Decider, path: str) -> EncodedRow | None:
    try:
        return decider.encoder.encode(request.features)
    except FeatureValueError as error:
        problem = Problem(error=f"{error.found}.", where=f"{path}.features.{error.name}")
        raise BadRequestError(422, problem) from None
