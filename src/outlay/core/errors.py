"""Errors that a user can put right.

Every one says what was found, where, and the way out. The command line prints the message and exits with 2;
a program reads the fields. An exception of any other class is a bug of ours (exit 1).
"""

from __future__ import annotations

from pathlib import Path


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
        file: str | Path | None = None,
        where: str | None = None,
        way_out: str | None = None,
    ) -> None:
        self.file = None if file is None else str(file)
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
