"""Who changes what a campaign's servers share: the trail names an actor for each change.

    with acting(Actor("admin", "ann")):
        ledger.pause("coupons")

What no request has asked for is done by the process itself, in the name of its operating-system user: a server that
starts, with --change-settings or for the first time, or a program that opens the ledger.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from msgspec import Struct


class Actor(Struct, frozen=True):
    """Who makes a change.

    Attributes:
        credential: what entitled to it: the token of administrators, or access to the ledger itself.
        name: what the caller said, which nobody checks; user and host of a process.
    """

    credential: Literal["admin", "process"]
    name: str


_actor: ContextVar[Actor] = ContextVar("actor")


@contextmanager
def acting(actor: Actor) -> Iterator[None]:
    """Do what is in the block in the name of `actor`, threads that it awaits included."""
    before = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(before)


def current_actor() -> Actor:
    """Return who acts now."""
    return _actor.get(None) or Actor("process", f"{_user()}@{socket.gethostname()}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return str(os.getuid())
