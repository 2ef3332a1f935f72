"""The ledger's clock: one for all its servers, whatever their own clocks show.

    PostgreSQL    the database's clock, read in transactions that take place anyway
    SQLite        the machine's uptime, which nobody can set, counted from an anchor that is stored in the ledger

    between two readings    reading + uptime that has passed since

So a machine whose clock is wrong, or jumps, neither begins another day nor ends a reservation. The anchor follows small
corrections of the machine's clock, but no jump of more than `TOLERANCE`. After a restart of the machine, its clock is
all there is to go by, but the ledger's time never goes back before the anchor. A clock that is further ahead of it than
`AWAY` is not believed either: the ledger's goes on from the anchor, until an operator accepts the machine's
(`Ledger.forget_clock`).
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TOLERANCE = 5_000  # ms by which two clocks that are right may differ
KEEP = 60_000  # ms that an anchor is kept
AWAY = 86_400_000  # ms for which a ledger may have been unused when its machine starts: a day has its own cap
BOOT = Path("/proc/sys/kernel/random/boot_id")


def _boot() -> str:
    """Return an id of the machine's current boot."""
    with suppress(OSError, subprocess.SubprocessError):
        if sys.platform == "darwin":
            return subprocess.check_output(["sysctl", "-n", "kern.bootsessionuuid"], text=True).strip()
        return BOOT.read_text(encoding="ascii").strip()
    return "unknown"


def _ticks() -> int:
    """Return milliseconds since the machine booted, including sleep if the system counts it."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)  # only Linux has it
    return (time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)) // 1_000_000


def _wall() -> int:
    """Return epoch ms by the machine's clock, which people and programs may set."""
    return time.time_ns() // 1_000_000


class Machine(NamedTuple):
    """A machine's sources of time.

    Attributes:
        boot: id of its current boot.
        ticks: returns milliseconds since then.
        wall: returns epoch ms by its clock.
    """

    boot: str
    ticks: Callable[[], int] = _ticks
    wall: Callable[[], int] = _wall


HERE = Machine(_boot())


class ClockAnchor(NamedTuple):
    """A moment of a machine, and the ledger's time then (epoch ms)."""

    boot: str
    ticks: int
    ts: int

    def now(self, machine: Machine) -> int:
        """Return epoch ms by the ledger's clock."""
        if self.boot == machine.boot and (passed := machine.ticks() - self.ticks) >= 0:
            return self.ts + passed
        wall = machine.wall()
        believed = not self.ts or self.ts <= wall <= self.ts + AWAY  # the anchor of a new ledger is 0
        return wall if believed else self.ts

    def moved(self, machine: Machine) -> ClockAnchor:
        """Return the anchor for the next minute: this one, or a new one if it is old or of an earlier boot."""
        ticks = machine.ticks()
        if self.boot == machine.boot and 0 <= ticks - self.ticks < KEEP:
            return self
        now, wall = self.now(machine), machine.wall()
        return ClockAnchor(machine.boot, ticks, wall if abs(wall - now) <= TOLERANCE else now)


class LedgerClock:
    """The ledger's clock as one process knows it. Safe to use from any thread.

    Attributes:
        machine: the one that the process runs on.
        jumps: how many readings differed from the expected time; whatever was timed before a jump has a wrong time.
    """

    def __init__(self, machine: Machine = HERE) -> None:
        self.machine = machine
        self.jumps = 0
        self._lock = threading.Lock()
        self._offset: int | None = None  # of the ledger's time over the machine's ticks
        self._last = 0

    def take(self, reading: int, requested: int) -> None:
        """Set the clock from a reading.

        Args:
            reading: epoch ms by the ledger's clock.
            requested: ticks of the machine when the reading was requested; it was taken between then and now.
        """
        with self._lock:
            least, most = reading - self.machine.ticks(), reading - requested
            if self._offset is None:
                self._offset = (least + most) // 2
                return
            offset = min(max(self._offset, least), most)
            self.jumps += abs(offset - self._offset) > TOLERANCE
            self._offset = offset

    def now(self) -> int:
        """Return epoch ms. It stands still rather than go back a little; it goes back if the ledger's clock was set."""
        with self._lock:
            if self._offset is None:
                raise RuntimeError("the ledger's clock was never read")
            now = self.machine.ticks() + self._offset
            if self._last - TOLERANCE <= now < self._last:
                return self._last
            self._last = now
            return now

    def seconds(self) -> float:
        """Return epoch seconds."""
        return self.now() / 1000

    def ahead(self) -> int:
        """Return by how many milliseconds the machine's clock is ahead of the ledger's; negative if it is behind."""
        return self.machine.wall() - self.now()
