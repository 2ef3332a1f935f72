"""When to try again what failed: after 1 second, then after 2, 4, 8 and so on, a minute at most."""

from __future__ import annotations

FIRST = 1_000  # ms
LONGEST = 60_000  # ms


class Backoff:
    """Of one thing at a time; another thing starts anew. Moments are epoch ms of one clock."""

    def __init__(self) -> None:
        self._thing: object = None
        self._since = 0
        self._wait = 0

    def due(self, thing: object, now: int) -> bool:
        """Whether it may be tried now: at once where it has not failed, and where the clock was put back."""
        return thing != self._thing or not 0 <= now - self._since < self._wait

    def failed(self, thing: object, now: int) -> None:
        """It did."""
        self._wait = min(2 * self._wait, LONGEST) if thing == self._thing and self._wait else FIRST
        self._thing, self._since = thing, now

    def forget(self) -> None:
        """It went well, or is no longer wanted."""
        self._thing, self._wait = None, 0
