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
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, TypeVar

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


def in_processes(
    function: Callable[[X], Y], items: Iterable[X], workers: int, meanwhile: Callable[[], None] | None = None
) -> Iterator[Y]:
    """Map over processes, which share the processors of this machine.

    Args:
        function: of a module, and `pickle` can write it, its items and its results. It is not interrupted by Ctrl-C;
            the processes end with this one.
        items: what it is called with.
        workers: processes, at least 1, and no more than processors. They are started anew, so a script needs
            `if __name__ == "__main__":`.
        meanwhile: called every second while a result is waited for.

    Raises:
        LostWorkerError: if a process was killed.
    """
    context = multiprocessing.get_context("spawn")  # JAX and DuckDB have threads, which do not survive a fork
    shares: Any = context.SimpleQueue()
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    for number in range(workers):
        shares.put(cores[number::workers])
    pool = ProcessPoolExecutor(workers, context, initializer=_start, initargs=(shares,))
    try:
        yield from _in_order(pool, function, items, workers, meanwhile)
    except BrokenProcessPool:
        raise LostWorkerError(
            "a process was killed from outside (was the memory full?).",
            where="workers",
            way_out="Run the command again, with --resume if it has that: it goes on with what is left. If memory is "
            "short, give fewer --threads.",
        ) from None
    finally:
        for process in list((pool._processes or {}).values()):  # what they are at is of no use any more
            process.terminate()
        pool.shutdown(cancel_futures=True)


def _in_order(
    pool: Executor,
    function: Callable[[X], Y],
    items: Iterable[X],
    workers: int,
    meanwhile: Callable[[], None] | None = None,
) -> Iterator[Y]:
    waiting: deque[Future[Y]] = deque()

    def first() -> Y:
        while meanwhile is not None and not wait(list(waiting)[:1], timeout=1.0).done:
            meanwhile()
        return waiting.popleft().result()

    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * workers:
                yield first()
        while waiting:
            yield first()
    finally:
        for future in waiting:
            future.cancel()


def _start(shares: Any) -> None:
    """Prepare a worker: processors of its own, no Ctrl-C, which the first process hears, and no life without that."""
    if share := shares.get():
        os.sched_setaffinity(0, share)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
