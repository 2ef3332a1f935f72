"""A Ray cluster: the one that `RAY_ADDRESS` names or that runs on this machine, else one of this machine alone."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from outlay.core.errors import OutlayError
from outlay.core.machine import optional, processors

TIMEOUT = 10.0  # seconds


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
