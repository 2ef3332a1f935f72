"""A Ray cluster: the one that `RAY_ADDRESS` names or that runs on this machine, else one of this machine alone.

with connected() as ray: ...
for result in on_cluster(work, shards): ...       # each called on some machine; in the order of the shards
"""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from outlay.core.errors import LostWorkerError, OutlayError
from outlay.core.machine import optional, processors

X = TypeVar("X")
Y = TypeVar("Y")

TIMEOUT = 10.0  # seconds
RETRIES = 3  # times that a shard is begun again when its worker is lost


@contextmanager
def connected() -> Iterator[Any]:
    """The module `ray`, connected while the block runs.

    Raises:
        OutlayError: if Ray is not installed, or the cluster does not answer.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with optional(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS")
    alone: dict[str, Any] = {} if address else {"num_cpus": processors()}
    try:
        _look_for(address)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False, **alone)
    except (OSError, RuntimeError, ValueError) as error:
        raise OutlayError(
            f"Ray does not answer ({str(error).splitlines()[0]}).",
            where=f"RAY_ADDRESS {address!r}",
            way_out="Start the cluster, or unset RAY_ADDRESS to use this machine.",
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _look_for(address: str | None) -> None:
    """Raise OSError if nothing answers at `host:port`; Ray itself tries for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), TIMEOUT).close()


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
            where="the cluster",
            way_out="Look at the cluster (ray status); then run the command again: it goes on with what is left.",
        ) from None
