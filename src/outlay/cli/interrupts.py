"""Ctrl-C that a library swallows, or turns into an error of its own.

Extension modules do so while they are loaded: onnxruntime fails with an ImportError, others go on as if nothing had
been asked. So the signal is noted as well as raised, and work that reports its progress stops where it reports next.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

_noted = threading.Event()
_quiet = threading.Event()  # while the command line itself is loaded: noted only


def listen(*, quietly: bool = False) -> None:
    """Note Ctrl-C from now on. Where it is ignored, as in a job of a script, it stays so.

    Args:
        quietly: raise nothing until `stop_if_noted` is called for the first time: an import that is broken off would
            end in a traceback.
    """
    (_quiet.set if quietly else _quiet.clear)()
    here = threading.current_thread() is threading.main_thread()
    if here and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)


def noted() -> bool:
    """Whether Ctrl-C was pressed."""
    return _noted.is_set()


def stop_if_noted() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed and did not arrive; from now on it is raised at once."""
    _quiet.clear()
    if _noted.is_set():
        raise KeyboardInterrupt


def forget() -> None:
    """What was pressed is dealt with."""
    _noted.clear()


def _note(_signal: int, _frame: FrameType | None) -> None:
    _noted.set()
    if not _quiet.is_set():
        raise KeyboardInterrupt
