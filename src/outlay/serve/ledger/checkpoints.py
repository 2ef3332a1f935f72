"""SQLite's write-ahead log goes back into its file in a thread of its own, so that no commit waits for it.

    commit ─▶ log ──passive, while others write──▶ file        log long ──full, before the next commit──▶ begins anew

SQLite itself does this inside every commit that finds 1,000 pages in the log, and that commit waits for the disk three
times. A passive checkpoint holds nobody up; but while somebody always writes it never comes to the log's end, and the
log would grow for ever. So where it was long, the next commit does the rest first: the few pages that came in between.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress

EVERY = 0.25  # seconds between two checkpoints while somebody writes
LONG = 8_192  # pages of the log: 32 MiB

# Pages at which SQLite does it after all: the thread does not come along, or a reader holds the log for long.
LONGEST = 65_536


class Checkpoints:
    """The thread.

    Args:
        connect: opens a connection of its own.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._written = threading.Event()
        self._ended = threading.Event()
        self._long = False
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def written(self) -> None:
        """Something is in the log."""
        self._written.set()

    def finish(self, writer: sqlite3.Connection) -> None:
        """Do the rest where the log is long. Called between two transactions."""
        if self._long:
            self._long = False
            with suppress(sqlite3.Error):  # another process writes; the thread sees a long log again
                writer.execute("pragma wal_checkpoint(full)").fetchone()

    def close(self) -> None:
        """End the thread. The last connection that closes empties the log."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            if self._written.is_set():
                self._written.clear()
                with suppress(sqlite3.Error), closing(self._connect()) as connection:  # the next one tries again
                    busy, pages, done = connection.execute("pragma wal_checkpoint(passive)").fetchone()
                    # Where less was done than is there, a reader holds an old state, and nobody is to wait for him.
                    self._long = not busy and done == pages > LONG
