"""Folders that take long to make: a run that was killed goes on with what is left.

    with resumable_folder(path, about) as (folder, done):
        for part in parts:
            if part not in done:
                write(folder, part)         # on disk, before
                done.add(part)              # it counts as done

The folder lies beside `path` under the name of `partial_of` and is renamed when all is done, so nothing in it reads as
finished. Its journal begins with `about`, what the folder is made of; each later line names what is done.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from outlay.core.errors import FolderError, LostWorkerError, OutlayError
from outlay.core.files import beside, check_replaceable, partial_of, put_in_place, unwritable
from outlay.core.machine import DISK, disk_way_out

if sys.platform != "win32":  # there, nothing keeps two runs apart
    import fcntl

JOURNAL = "journal.jsonl"


class Journal:
    """What is done of a long task; a line that was not written to its end does not count."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_bytes() if path.exists() else b""
        self._length = text.rfind(b"\n") + 1
        lines = [json.loads(line) for line in text[: self._length].splitlines()]
        self.about: Any = lines[0] if lines else None
        self._done: set[str] = set(lines[1:])

    def __contains__(self, name: str) -> bool:
        return name in self._done

    def add(self, *names: str) -> None:
        """Write that these are done."""
        self._write(*names)
        self._done.update(names)

    def begin(self, about: Any) -> None:
        """Begin a new journal."""
        self.path.unlink(missing_ok=True)
        self._length, self._done, self.about = 0, set(), about
        self._write(about)

    def _write(self, *lines: Any) -> None:
        text = "".join(json.dumps(line) + "\n" for line in lines).encode()
        with self.path.open("r+b" if self.path.exists() else "xb") as file:
            file.seek(self._length)
            file.truncate()
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self._length += len(text)


@contextmanager
def unfinished_folder(path: Path, about: dict[str, Any]) -> Iterator[tuple[Path, Journal]]:
    """A folder beside `path` for what is done of it, and its journal; removed when the block ends well.

    Where the block is cut off (killed, Ctrl-C, a worker lost, a full disk), the folder stays for the next run with the
    same `about`; after any other error it is removed, as the same input would fail again.

    Args:
        path: the file or folder to be made.
        about: what it is made of, as JSON would give it back; a folder begun with anything else is emptied.

    Raises:
        FolderError: if nothing can be written there, or another run is making it.
    """
    try:
        with _alone(path) as folder:
            try:
                journal = Journal(folder / JOURNAL)
                if journal.about != about:
                    _empty(folder)
                    journal.begin(about)
                yield folder, journal
            except Exception as error:
                if not isinstance(error, LostWorkerError) and disk_way_out(error) is None:
                    shutil.rmtree(folder, ignore_errors=True)
                raise
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        if error.errno not in DISK:
            raise
        raise unwritable(path, error) from None


@contextmanager
def resumable_folder(path: Path, about: dict[str, Any]) -> Iterator[tuple[Path, Journal]]:
    """`unfinished_folder`, which takes the place of `path` when the block ends well.

    Raises:
        FolderError: if `path` holds something that outlay did not write, nothing can be written there, or another run
            is making it.
    """
    check_replaceable(path)
    with unfinished_folder(path, about) as (folder, journal):
        yield folder, journal
        journal.path.unlink()
        put_in_place(folder, path)


@contextmanager
def partial_folder(path: Path, kind: str, *, resume: bool) -> Iterator[Path]:
    """A new folder beside `path` to make it in, or with `resume` the one that an unfinished run of the block left.

    It stays where the block is cut off, and where it was resumed, which may only have met a wrong option; after any
    other error it is removed, as the same input would fail again.

    Args:
        path: what is made.
        kind: of thing it is: `run`, `comparison`.
        resume: whether to go on.

    Raises:
        FolderError: if there is nothing to go on with, nothing can be written there, or another run is making it.
    """
    if resume and not partial_of(path).is_dir():
        raise FolderError(f"there is no unfinished {kind} to resume.", file=path, way_out="Leave out --resume.")
    with _alone(path) as folder:
        if not resume:
            _empty(folder)
        for left_over in folder.glob(".*.tmp"):  # of a process that was killed while writing
            shutil.rmtree(left_over, ignore_errors=True)
        try:
            yield folder
        except OutlayError as error:
            if not resume and not isinstance(error, LostWorkerError) and disk_way_out(error) is None:
                shutil.rmtree(folder, ignore_errors=True)
            raise


@contextmanager
def _alone(path: Path) -> Iterator[Path]:
    """The folder beside `path` in which it is made, held against other processes for as long as this one lives.

    Raises:
        FolderError: if another one holds it, or nothing can be written there.
    """
    folder, lock = partial_of(path), beside(path, "lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        if sys.platform != "win32":
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ours = os.path.samestat(os.fstat(held), lock.stat())
            except (BlockingIOError, FileNotFoundError):
                ours = False
            if not ours:  # a lock that its owner has removed keeps nobody out
                raise FolderError(
                    f"another outlay is writing to it (process {os.read(held, 20).decode().strip()}).",
                    file=path,
                    way_out="Wait until it ends, or give another --out.",
                )
        os.write(held, f"{os.getpid():<20}".encode())
        try:
            folder.mkdir(exist_ok=True)  # it may have been renamed meanwhile
            yield folder
        finally:
            with suppress(OSError):
                lock.unlink()
    finally:
        os.close(held)


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
