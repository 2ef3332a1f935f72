"""Group commit: many requests, one transaction.

    record = GroupCommit(ledger.record)
    [answer] = await record([proposal])

What arrives while the disk is busy is the next group, and a group goes as soon as the disk is free. There is no timer:
waiting 1 or 2 ms for company made every load slower, since under load the disk itself gathers the company.

* An answer leaves only after its group is committed.
* If the commit fails, everyone in the group gets the failure, and the next group is tried anew. Nobody hangs.
* Who is cancelled in line is left out. Who is cancelled while the group is written has a row, and gets its answer when
  the request is repeated.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from outlay.server.ledger import LedgerError

LARGEST = 1024  # items from which on a group takes nobody else, so that nobody waits for a giant

In = TypeVar("In")
Out = TypeVar("Out")


class GroupCommit(Generic[In, Out]):
    """Collects items and hands them to `work` in groups, in one thread of its own. Belongs to one event loop.

    Args:
        work: a group in, as many answers out: `ledger.record` or `ledger.outcomes`.
    """

    def __init__(self, work: Callable[[list[In]], list[Out]]) -> None:
        self._work = work
        self._line: deque[tuple[Sequence[In], asyncio.Future[list[Out]]]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._writing: asyncio.Task[None] | None = None
        self._closed = False

    async def __call__(self, items: Sequence[In]) -> list[Out]:
        """The answers to `items`, in order, once all of them are committed.

        Raises:
            LedgerError: if they may not be, or `close` came first.
        """
        if self._closed:
            raise LedgerError("the ledger is closed.")
        if not items:
            return []
        future: asyncio.Future[list[Out]] = asyncio.get_running_loop().create_future()
        self._line.append((items, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await future

    async def close(self) -> None:
        """Take nothing more, commit what is in line, and end the thread."""
        self._closed = True
        if self._writing is not None:
            await asyncio.wait({self._writing})
        self._thread.shutdown()

    async def _write(self) -> None:
        """Commit group after group until nobody is in line."""
        loop = asyncio.get_running_loop()
        while self._line:
            group = self._next_group()
            items = [item for items, _ in group for item in items]
            try:
                answers = await loop.run_in_executor(self._thread, self._work, items)
                assert len(answers) == len(items)
            except Exception as error:
                _fail(group, error)
            except BaseException:  # the event loop ends
                _fail([*group, *self._line], LedgerError("the server stopped while it was writing."))
                raise
            else:
                rest = iter(answers)
                for asked, future in group:
                    own = [next(rest) for _ in asked]
                    if not future.done():
                        future.set_result(own)

    def _next_group(self) -> list[tuple[Sequence[In], asyncio.Future[list[Out]]]]:
        group: list[tuple[Sequence[In], asyncio.Future[list[Out]]]] = []
        size = 0
        while self._line and size < LARGEST:
            items, future = self._line.popleft()
            if not future.done():
                group.append((items, future))
                size += len(items)
        return group


def _fail(group: Sequence[tuple[object, asyncio.Future[list[Out]]]], error: Exception) -> None:
    for _, future in group:
        if not future.done():
            future.set_exception(error)
