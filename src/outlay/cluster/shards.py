"""A function of many shards, each called on some machine of a cluster.

for result in on_cluster(work, shards):       in the order of the shards
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from outlay.cluster.connection import connected
from outlay.core.errors import LostWorkerError, OutlayError

X = TypeVar("X")
Y = TypeVar("Y")

RETRIES = 3  # times that a shard is begun again when its worker is lost


def on_cluster(function: Callable[[X], Y], items: Iterable[X]) -> Iterator[Y]:
    """Results in the order of the items; only a few are computed ahead. A shard whose worker is lost is done again.

    Args:
        function: of a module that all machines have; calling it again must do no harm. It may use one processor.
        items: what it is called with; `pickle` must be able to write them and the results.

    Raises:
        OutlayError: of the function, or if Ray is not installed or does not answer.
        LostWorkerError: if a shard's worker was lost again and again.
    """
    with connected() as ray:
        call = ray.remote(_call).options(num_cpus=1, max_retries=RETRIES)
        shared = ray.put(function)
        waiting: deque[Any] = deque()
        most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        try:
            for item in items:
                waiting.append(call.remote(shared, item))
                if len(waiting) > most:
                    yield _result(ray, waiting.popleft())
            while waiting:
                yield _result(ray, waiting.popleft())
        finally:
            for one in waiting:
                ray.cancel(one, force=True)


def _call(function: Callable[[X], Y], item: X) -> Y:
    return function(item)


def _result(ray: Any, one: Any) -> Any:
    try:
        return ray.get(one)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, OutlayError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise LostWorkerError(
            f"a worker of the cluster was lost {RETRIES + 1} times ({type(error).__name__}).",
            where="--cluster",
            way_out="Look at the cluster (ray status); then run the command again: it goes on with what is left.",
        ) from None
