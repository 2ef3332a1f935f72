"""Errors that a user can put right.

Every one says what was found, where, and the way out. The command line prints the message and exits with 2;
a program reads the fields. An exception of any other class is a bug of ours (exit 1).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

MANY = 30  # names: no more are listed


class OutlayError(Exception):
    """Wrong input.

    Attributes:
        file: the file or folder it is about, if any.
        where: column, key or row, if any.
        found: what stood there, in words.
        way_out: what to do about it.
    """

    def __init__(
        self,
        found: str,
        *,
        file: str | Path | tuple[Path, ...] | None = None,
        where: str | None = None,
        way_out: str | None = None,
    ) -> None:
        self.file = ", ".join(map(str, file)) if isinstance(file, tuple) else None if file is None else str(file)
        self.where = where
        self.found = found
        self.way_out = way_out
        place = ", ".join(part for part in (self.file, where) if part)
        text = f"{place}: {found}" if place else found
        super().__init__(f"{text} {way_out}" if way_out else text)


class CampaignError(OutlayError):
    """The campaign file has an unknown key or an impossible value."""


class LogError(OutlayError):
    """The log, or a table of rows, does not hold what the campaign file says."""


class FolderError(OutlayError):
    """A DATA or RUN folder is missing, half-written, damaged or of another format version."""


class BundleError(OutlayError):
    """A bundle is missing, damaged or of another format version."""


class InfeasibleError(OutlayError):
    """No policy that the log can speak for keeps the limits."""


class LostWorkerError(OutlayError):
    """A process that was to do a part of the work is gone; what the others have done is kept."""


def nearest(name: str, known: Iterable[str], what: str = "Known", cutoff: float = 0.5) -> str:
    """A way out for a name that is not known: the known one that is spelt most like it, else all of them.

    Args:
        name: as it was written.
        known: the names there are.
        what: what these are called.
        cutoff: how like it must be, from 0 to 1 (`difflib`).
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return f"Did you mean {near[0]!r}?" if near else f"{what}: {listed(names)}."


def listed(names: Iterable[str]) -> str:
    """Names in a row, and how many there are if that is too many to list."""
    every = list(names)
    return ", ".join(every[:MANY]) + (f" … ({len(every)} in all)" if len(every) > MANY else "")
