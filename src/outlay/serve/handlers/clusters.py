"""The clusters of users in a test that draws its arms by cluster.

A user's cluster is the one of the user's first decision in the test: its arm holds for the whole test, whatever later
requests say, so that no user is in two arms and no cluster in the log has users of two. A request with another cluster
is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import UNSET

from outlay.serve.deciding.decider import decode_draw
from outlay.serve.deciding.features import value_text
from outlay.serve.experiment import ServedExperiment
from outlay.serve.handlers.messages import BadRequestError, DecisionRequest, Problem
from outlay.serve.ledger.ledger import Ledger


def cluster_of(request: DecisionRequest, column: str, path: str) -> str:
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
    if stated is not None and feature is not None and stated != feature:
        raise _refused(f"is {stated!r}, and the feature {column!r} is {feature!r}.", path, "Give the same in both.")
    found = stated if stated is not None else feature
    if found is None:
        way_out = "Give the user's cluster, as outlay experiment assign reads it."
        if column in request.features:
            way_out += f" The feature {column!r} would do, but is missing."
        raise _refused(f"is absent, and the test draws its arms by {column}.", path, way_out)
    return found


def _refused(error: str, path: str, way_out: str) -> BadRequestError:
    return BadRequestError(422, Problem(error=error, where=f"{path}.cluster", way_out=way_out))


def first_clusters(
    ledger: Ledger,
    campaign: str,
    trial: ServedExperiment,
    given: Sequence[tuple[str, str]],
    day: int,
    moved: Callable[[], object],
) -> list[str]:
    """Return the cluster of each request's user: that of the user's first decision in the test.

    Args:
        ledger: with the decisions so far.
        campaign: that pays.
        trial: the test, which is on.
        given: user and cluster of each request, in order.
        day: number of today.
        moved: called for each request that gives another cluster than the user's first.

    Raises:
        LedgerError: if the ledger cannot be read.
    """
    rows, _ = ledger.past(campaign, {user for user, _ in given}, trial.first, day + 1)
    first: dict[str, str] = {}
    for row in rows:
        if row.user not in first and (cluster := decode_draw(row.members).cluster) is not None:
            first[row.user] = cluster
    found = []
    for user, cluster in given:
        found.append(first.setdefault(user, cluster))
        if found[-1] != cluster:
            moved()
    return found
