"""Group commit: many requests, one transaction.

    record = GroupCommit(ledger.record, seconds=1.0)
    [answer] = await record([proposal])

One thread writes. What arrives while it does is its next group, which it takes itself as soon as the disk is free.
There is no timer: waiting 1 or 2 ms for company made every load slower, since under load the disk gathers the company.

* An answer leaves only after its group is committed.
* If the commit fails, everyone in the group gets the failure, and the next group is tried anew. Nobody hangs.
* Who is cancelled in line is left out. Who is cancelled while the group is written has a row, and gets its answer when
  the request is repeated.
* Who has waited for `seconds` in line is left out and gets a TimeoutError: nothing of it is written. Who has waited so
  long while the group is written gets an UndecidedError: what comes of it, only the ledger will know.
* Who comes while the group that is written has waited half as long is refused at once: under more load than the disk
  can take, or before a disk that hangs, the others then get their answers in time, where otherwise everyone would wait
  and nobody would.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeVar

from outlay.serve.ledger.ledger import LedgerError, UndecidedError

LARGEST = 1024  # items from which on a group takes nobody else, so that nobody waits for a giant
SLOW = "the ledger has not finished writing."
LOOK = 0.1  # of `seconds`: so often those who wait are looked at

In = TypeVar("In")
Out = TypeVar("Out")


class WaitingGroup(NamedTuple, Generic[In, Out]):
    """Items in line since a moment, and where their answers go.

    Attributes:
        items: to be written.
        future: their answers.
        since: when they came, by the monotonic clock.
        turn: held by whoever takes them out of the line: the thread that writes, or the loop that gives them up.
    """

    items: Sequence[In]
    future: asyncio.Future[list[Out]]
    since: float
    turn: threading.Lock


class GroupCommit(Generic[In, Out]):
    """Collects items and hands them to `work` in groups, in one thread of its own. Belongs to one event loop.

    Args:
        work: a group in, as many answers out: `ledger.record` or `ledger.outcomes`.
        seconds: how long an answer is waited for.
    """

    def __init__(self, work: Callable[[list[In]], list[Out]], seconds: float = math.inf) -> None:
        self._work = work
        self._seconds = seconds
        self._arrived: list[WaitingGroup[In, Out]] = []
        self._line: SimpleQueue[list[WaitingGroup[In, Out]] | None] = SimpleQueue()  # None: it ends
        self._waiting: deque[WaitingGroup[In, Out]] = (
            deque()
        )  # by age; those who have their answer are not yet taken out
        self._oldest = math.inf  # since when the first of the group that is being written has waited
        self._ended: asyncio.Future[None] | None = None
        self._closed = False

    async def __call__(self, items: Sequence[In]) -> list[Out]:
        """The answers to `items`, in order, once all of them are committed.

        Raises:
            LedgerError: if they may not be, too many wait, or `close` came first: nothing of them is written.
            TimeoutError: if it took too long in line: the same.
            UndecidedError: if it takes too long to write them, or the end of their transaction is not known.
        """
        if self._closed:
            raise LedgerError("the ledger is closed.")
        if not items:
            return []
        now = time.monotonic()
        if now - self._oldest > self._seconds / 2:
            raise LedgerError("more is waiting for the ledger than it can write in time.", way_out="Ask again later.")
        loop = asyncio.get_running_loop()
        if self._ended is None:
            self._ended = loop.create_future()
            threading.Thread(target=self._write, args=(loop,), name="ledger", daemon=True).start()
        if not self._arrived:  # those that the loop finds in one turn go together: the thread is woken once for them
            loop.call_soon(self._send)
        waiting = WaitingGroup(items, loop.create_future(), now, threading.Lock())
        self._arrived.append(waiting)
        if self._seconds < math.inf:
            if not self._waiting:
                loop.call_later(self._seconds * LOOK, self._give_up, loop)
            self._waiting.append(waiting)
        return await waiting.future

    async def close(self) -> None:
        """Take nothing more, commit what is in line, and end the thread."""
        self._closed = True
        if self._ended is not None:
            self._send()
            self._line.put(None)
            await asyncio.shield(self._ended)

    def _send(self) -> None:
        if self._arrived:
            self._line.put(self._arrived)
            self._arrived = []

    def _give_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """One look at everybody now and then; a timer for each would cost more than the line itself."""
        late = time.monotonic() - self._seconds
        while self._waiting and (self._waiting[0].future.done() or self._waiting[0].since < late):
            waiting = self._waiting.popleft()
            if not waiting.future.done():
                in_line = waiting.turn.acquire(blocking=False)
                waiting.future.set_exception(TimeoutError() if in_line else UndecidedError(SLOW))
        if self._waiting:
            loop.call_later(self._seconds * LOOK, self._give_up, loop)

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit group after group; what the thread does."""
        line: deque[WaitingGroup[In, Out]] = deque()
        going = True
        with suppress(RuntimeError):  # the event loop has ended, and with it everyone who waits
            while going or line:
                going = self._fetch(line) and going
                group = _next_group(line)
                if group:
                    self._oldest = group[0].since
                    found = self._answers(group)
                    self._oldest = math.inf
                    loop.call_soon_threadsafe(_hand_out, group, found)
            loop.call_soon_threadsafe(self._end)

    def _fetch(self, line: deque[WaitingGroup[In, Out]]) -> bool:
        """Move what has come into the thread's own line; waits where there is nobody. False once it is the end."""
        try:
            while (arrived := self._line.get(block=not line)) is not None:
                line.extend(arrived)
        except Empty:
            return True
        return False

    def _answers(self, group: list[WaitingGroup[In, Out]]) -> list[Out] | Exception:
        items = [item for waiting in group for item in waiting.items]
        try:
            answers = self._work(items)
            assert len(answers) == len(items)
        except Exception as error:
            return error
        return answers

    def _end(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


def _next_group(line: deque[WaitingGroup[In, Out]]) -> list[WaitingGroup[In, Out]]:
    group: list[WaitingGroup[In, Out]] = []
    size = 0
    while line and size < LARGEST:
        waiting = line.popleft()
        if not waiting.future.done() and waiting.turn.acquire(blocking=False):
            group.append(waiting)
            size += len(waiting.items)
    return group


def _hand_out(group: list[WaitingGroup[In, Out]], found: list[Out] | Exception) -> None:
    start = 0
    for items, future, _, _ in group:
        if not future.done():
            if isinstance(found, Exception):
                future.set_exception(found)
            else:
                future.set_result(found[start : start + len(items)])
        start += len(items)
