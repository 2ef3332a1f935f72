"""Work in parts, by several processes of this machine.

for result in in_processes(work, parts, workers):      in the order in which they are done
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import TypeVar

from outlay.core.errors import LostWorkerError

X = TypeVar("X")
Y = TypeVar("Y")


def in_processes(function: Callable[[X], Y], items: Iterable[X], workers: int) -> Iterator[Y]:
    """Results of a function, as they are done; each worker has one processor.

    Args:
        function: of a module, and `pickle` can write it, its items and its results. It is not interrupted by Ctrl-C;
            the processes end with this one.
        items: what it is called with.
        workers: processes, at least 1. They are started anew, so a script needs `if __name__ == "__main__":`.

    Raises:
        LostWorkerError: if a process was killed.
    """
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_start)
    left = iter(items)
    try:
        waiting = {pool.submit(function, item) for item in islice(left, 2 * workers)}
        while waiting:
            done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
            waiting |= {pool.submit(function, item) for item in islice(left, len(done))}
            for future in done:
                yield future.result()
    except BrokenProcessPool:
        raise LostWorkerError(
            "a process was killed from outside (was the memory full?).", where="workers",
            way_out="Run the command again: it goes on with what is left. Where memory is short, give fewer --threads.",
        ) from None  # fmt: skip
    finally:
        for process in list((pool._processes or {}).values()):  # what they are at is of no use any more
            process.terminate()
        pool.shutdown(cancel_futures=True)


def _start() -> None:
    """Prepare a worker: the first process alone hears Ctrl-C, and a worker does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
