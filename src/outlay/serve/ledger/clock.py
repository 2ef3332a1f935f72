"""The ledger's clock: one for all its servers, whatever their own clocks say.

    PostgreSQL    the database's clock, read in the transaction that is there anyway
    SQLite        the machine's: time since its start, which nobody sets, from an anchor that the ledger holds

    between two readings    reading + what has passed since, by time since the machine's start

So a machine whose clock is wrong, or jumps, neither opens another day nor ends a reservation. The anchor follows the
machine's clock over small corrections; a jump of more than `TOLERANCE` it does not follow. After a restart of the
machine there is only its clock to believe, but no time before the anchor.
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
BOOT = Path("/proc/sys/kernel/random/boot_id")


def _boot() -> str:
    """Names the time since the machine's last start."""
    with suppress(OSError, subprocess.SubprocessError):
        if sys.platform == "darwin":
            return subprocess.check_output(["sysctl", "-n", "kern.bootsessionuuid"], text=True).strip()
        return BOOT.read_text(encoding="ascii").strip()
    return "unknown"


def _ticks() -> int:
    """Milliseconds since the machine's start, sleep included where the system counts it."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)  # Linux alone has it
    return (time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)) // 1_000_000


def _wall() -> int:
    """Epoch ms by the machine's clock, which people and programs may set."""
    return time.time_ns() // 1_000_000


class Machine(NamedTuple):
    """What a machine knows of time.

    Attributes:
        boot: names the time since its last start.
        ticks: milliseconds since then.
        wall: epoch ms by its clock.
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
        """Epoch ms by the ledger's clock."""
        if self.boot == machine.boot and (passed := machine.ticks() - self.ticks) >= 0:
            return self.ts + passed
        return max(self.ts, machine.wall())

    def moved(self, machine: Machine) -> ClockAnchor:
        """One for the next minute: this one, or a new one where it is old or of another start of the machine."""
        ticks = machine.ticks()
        if self.boot == machine.boot and 0 <= ticks - self.ticks < KEEP:
            return self
        now, wall = self.now(machine), machine.wall()
        return ClockAnchor(machine.boot, ticks, wall if abs(wall - now) <= TOLERANCE else now)


class LedgerClock:
    """The ledger's clock as one process knows it. May be asked from any thread.

    Attributes:
        machine: that the process runs on.
        jumps: how often a reading was not where the clock stood: what was timed before has a wrong time.
    """

    def __init__(self, machine: Machine = HERE) -> None:
        self.machine = machine
        self.jumps = 0
        self._lock = threading.Lock()
        self._offset: int | None = None  # of the ledger's time over the machine's ticks
        self._last = 0

    def take(self, told: int, asked: int) -> None:
        """Learn from a reading.

        Args:
            told: epoch ms by the ledger's clock.
            asked: ticks of the machine when it was asked for; it was read between then and now.
        """
        with self._lock:
            least, most = told - self.machine.ticks(), told - asked
            if self._offset is None:
                self._offset = (least + most) // 2
                return
            offset = min(max(self._offset, least), most)
            self.jumps += abs(offset - self._offset) > TOLERANCE
            self._offset = offset

    def now(self) -> int:
        """Epoch ms. It waits rather than goes back by a few; it goes back where the ledger's own clock was set."""
        with self._lock:
            if self._offset is None:
                raise RuntimeError("the ledger's clock was never read")
            found = self.machine.ticks() + self._offset
            if self._last - TOLERANCE <= found < self._last:
                return self._last
            self._last = found
            return found

    def seconds(self) -> float:
        """The same as epoch seconds."""
        return self.now() / 1000

    def ahead(self) -> int:
        """Milliseconds by which the machine's clock is ahead of the ledger's; below 0 it is behind."""
        return self.machine.wall() - self.now()
