"""Work in parts, by several threads or processes of this machine.

    for result in in_threads(work, parts, threads):        in the order of the parts
    for result in in_processes(work, parts, workers):

Machines of a cluster do the same in `outlay.cluster`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol, TypeVar

from outlay.core.errors import LostWorkerError

X = TypeVar("X")
Y = TypeVar("Y")


class Mapper(Protocol):
    """Calls a function of many items, and gives the results in their order; only a few are computed ahead."""

    def __call__(self, function: Callable[[X], Y], items: Iterable[X], /) -> Iterator[Y]:
        """The results."""


def in_threads(function: Callable[[X], Y], items: Iterable[X], threads: int) -> Iterator[Y]:
    """Map over threads of this process."""
    with ThreadPoolExecutor(threads) as pool:
        yield from _in_order(pool, function, items, threads)


def in_processes(function: Callable[[X], Y], items: Iterable[X], workers: int) -> Iterator[Y]:
    """Map over processes; each has one processor.

    Args:
        function: of a module, and `pickle` can write it, its items and its results. It is not interrupted by Ctrl-C;
            the processes end with this one.
        items: what it is called with.
        workers: processes, at least 1. They are started anew, so a script needs `if __name__ == "__main__":`.

    Raises:
        LostWorkerError: if a process was killed.
    """
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_start)
    try:
        yield from _in_order(pool, function, items, workers)
    except BrokenProcessPool:
        raise LostWorkerError(
            "a process was killed from outside (was the memory full?).", where="workers",
            way_out="Run the command again: it goes on with what is left. Where memory is short, give fewer --threads.",
        ) from None  # fmt: skip
    finally:
        for process in list((pool._processes or {}).values()):  # what they are at is of no use any more
            process.terminate()
        pool.shutdown(cancel_futures=True)


def _in_order(pool: Executor, function: Callable[[X], Y], items: Iterable[X], workers: int) -> Iterator[Y]:
    waiting: deque[Future[Y]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _start() -> None:
    """Prepare a worker: the first process alone hears Ctrl-C, and a worker does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
