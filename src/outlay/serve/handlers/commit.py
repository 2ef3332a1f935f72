"""Group commit: many requests, one transaction.

    record = GroupCommit(ledger.record, seconds=1.0)
    [answer] = await record([proposal])

One thread writes. Requests that arrive meanwhile form the next group, which it takes as soon as the disk is free. There
is no timer: waiting 1 or 2 ms for more requests was slower at any load, since under load they gather during the write.

* An answer is sent only after its group is committed.
* If the commit fails, every caller in the group gets the error, and the next group is attempted as usual.
* A caller that is cancelled in the queue is skipped. If it is cancelled while its group is being written, its decision
  is recorded, and a retry gets the answer.
* A caller that has waited `seconds` in the queue is skipped and gets a TimeoutError: none of its items are written. If
  its group is already being written, it gets an UndecidedError: only the ledger will know the outcome.
* Once the group being written has waited half as long, new callers are refused at once. Under overload, or if the disk
  hangs, the callers in the queue then still get their answers in time; otherwise none would.
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

LARGEST = 1024  # a group with this many items takes no further callers, to bound the wait
SLOW = "the ledger has not finished writing."
CHECK = 0.1  # interval between checks of waiting callers, as a share of `seconds`

In = TypeVar("In")
Out = TypeVar("Out")


class QueuedItems(NamedTuple, Generic[In, Out]):
    """The items of one caller in the queue, and where their answers go.

    Attributes:
        items: what to write.
        future: gets their answers.
        since: time of arrival, by the monotonic clock.
        turn: acquired by whichever takes them out of the queue: the writing thread, or the loop on a timeout.
    """

    items: Sequence[In]
    future: asyncio.Future[list[Out]]
    since: float
    turn: threading.Lock


class GroupCommit(Generic[In, Out]):
    """Collects items and hands them to `work` in groups, in a thread of its own. Belongs to one event loop.

    Args:
        work: takes a group of items and returns as many answers, e.g. `ledger.outcomes`.
        seconds: how long a caller waits for its answers.
    """

    def __init__(self, work: Callable[[list[In]], list[Out]], seconds: float = math.inf) -> None:
        self._work = work
        self._seconds = seconds
        self._arrived: list[QueuedItems[In, Out]] = []
        self._inbox: SimpleQueue[list[QueuedItems[In, Out]] | None] = SimpleQueue()  # None: the end
        self._waiting: deque[QueuedItems[In, Out]] = deque()  # oldest first; some may have their answers already
        self._oldest = math.inf  # since when the oldest caller of the group that is being written has waited
        self._ended: asyncio.Future[None] | None = None
        self._closed = False

    async def __call__(self, items: Sequence[In]) -> list[Out]:
        """Return the answers to `items`, in order, once all of them are committed.

        Raises:
            LedgerError: if the commit failed, too many callers wait, or the queue was closed: no item is written.
            TimeoutError: if they waited too long in the queue: no item is written.
            UndecidedError: if writing takes too long, or it is not known how the transaction ended.
        """
        if self._closed:
            raise LedgerError("the ledger is closed.")
        if not items:
            return []
        now = time.monotonic()
        if now - self._oldest > self._seconds / 2:
            raise LedgerError("more requests are waiting than the ledger can write in time.", way_out="Retry later.")
        loop = asyncio.get_running_loop()
        if self._ended is None:
            self._ended = loop.create_future()
            threading.Thread(target=self._write, args=(loop,), name="ledger", daemon=True).start()
        if not self._arrived:  # what arrives in one turn of the loop goes together: the thread is woken once
            loop.call_soon(self._send)
        waiting = QueuedItems(items, loop.create_future(), now, threading.Lock())
        self._arrived.append(waiting)
        if self._seconds < math.inf:
            if not self._waiting:
                loop.call_later(self._seconds * CHECK, self._give_up, loop)
            self._waiting.append(waiting)
        return await waiting.future

    async def close(self) -> None:
        """Accept no more items, commit those in the queue, and end the thread."""
        self._closed = True
        if self._ended is not None:
            self._send()
            self._inbox.put(None)
            await asyncio.shield(self._ended)

    def _send(self) -> None:
        if self._arrived:
            self._inbox.put(self._arrived)
            self._arrived = []

    def _give_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Withdraw callers that have waited too long; a timer for each would cost more than the queue itself."""
        late = time.monotonic() - self._seconds
        while self._waiting and (self._waiting[0].future.done() or self._waiting[0].since < late):
            waiting = self._waiting.popleft()
            if not waiting.future.done():
                in_line = waiting.turn.acquire(blocking=False)
                waiting.future.set_exception(TimeoutError() if in_line else UndecidedError(SLOW))
        if self._waiting:
            loop.call_later(self._seconds * CHECK, self._give_up, loop)

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit group after group; the thread runs this."""
        queue: deque[QueuedItems[In, Out]] = deque()
        going = True
        with suppress(RuntimeError):  # the event loop has ended, and all callers with it
            while going or queue:
                going = self._fetch(queue) and going
                group = _next_group(queue)
                if group:
                    self._oldest = group[0].since
                    answers = self._answers(group)
                    self._oldest = math.inf
                    loop.call_soon_threadsafe(_hand_out, group, answers)
            loop.call_soon_threadsafe(self._end)

    def _fetch(self, queue: deque[QueuedItems[In, Out]]) -> bool:
        """Move new arrivals to the thread's queue, waiting if it is empty; return False at the end."""
        try:
            while (arrived := self._inbox.get(block=not queue)) is not None:
                queue.extend(arrived)
        except Empty:
            return True
        return False

    def _answers(self, group: list[QueuedItems[In, Out]]) -> list[Out] | Exception:
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


def _next_group(queue: deque[QueuedItems[In, Out]]) -> list[QueuedItems[In, Out]]:
    group: list[QueuedItems[In, Out]] = []
    size = 0
    while queue and size < LARGEST:
        waiting = queue.popleft()
        if not waiting.future.done() and waiting.turn.acquire(blocking=False):
            group.append(waiting)
            size += len(waiting.items)
    return group


def _hand_out(group: list[QueuedItems[In, Out]], answers: list[Out] | Exception) -> None:
    start = 0
    for items, future, _, _ in group:
        if not future.done():
            if isinstance(answers, Exception):
                future.set_exception(answers)
            else:
                future.set_result(answers[start : start + len(items)])
        start += len(items)
