"""How long tests wait for what has to happen: far longer than it takes, on any machine.

A machine that has other work, or a disk that has, may take a hundred times as long as usual. A test that needs an
answer waits as long as this, and sets every limit of what it tests to at least this. A test *of* a limit does not
measure time: it stops the clock, or holds up what is waited for until it has seen what it came for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 300.0  # seconds
T = TypeVar("T")


def wait_until(look: Callable[[], T]) -> T:
    """Look again and again until something is there, or true: what was found."""
    until = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)
    return found
