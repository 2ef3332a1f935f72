"""Ctrl-C that a library swallows, or turns into an error of its own.

Extension modules do so while they are loaded: onnxruntime fails with an ImportError, others go on as if nothing had
been asked. So the signal is noted as well as raised, and work that reports its progress stops where it reports next.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_noted = threading.Event()


@contextmanager
def listening() -> Iterator[None]:
    """Note Ctrl-C while the block runs. Only the main thread can; elsewhere nothing changes."""
    _noted.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def noted() -> bool:
    """Whether Ctrl-C was pressed."""
    return _noted.is_set()


def stop_if_noted() -> None:
    """Raise KeyboardInterrupt once more, if it was raised and did not arrive."""
    if _noted.is_set():
        raise KeyboardInterrupt


def _note(_signal: int, _frame: FrameType | None) -> None:
    _noted.set()
    raise KeyboardInterrupt
