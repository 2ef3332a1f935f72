"""Files and folders that are whole or absent.

Everything is written under a temporary name in the same folder and renamed, so that a killed run leaves nothing that
reads as finished. A folder counts as ours when its manifest.json says so.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outlay.core.errors import FolderError, OutlayError
from outlay.core.machine import disk_way_out

MANIFEST = "manifest.json"
FRAME = ("format", "version", "sha256")  # what documents say besides their content
COMMANDS = {"run": "outlay train", "comparison": "outlay compare", "data": "outlay prepare"}  # by what they make
VERSIONS = {"bundle": 2}  # of the formats that have changed; all others are of version 1
_mapping = threading.Lock()


def beside(path: Path, ending: str) -> Path:
    """The hidden path beside `path` that has its name and this ending; `path` may be `.` or `..`."""
    named = path.resolve() if path.name in ("", "..") else path
    return named.parent / f".{named.name}.{ending}"


def map_array(path: Path, mode: Literal["r", "r+"]) -> NDArray[Any]:
    """The array of a .npy file, which stays on disk; safe in threads.

    NumPy reads the header of the file by Python's parser, which before Python 3.11.8 fails now and then where two
    threads parse at once (CPython issue 106905).

    Raises:
        OSError, ValueError, EOFError: if the file is missing or damaged.
    """
    with _mapping:
        return np.load(path, mmap_mode=mode)  # type: ignore[no-any-return]


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; renamed to `path` when the block ends well, removed otherwise.

    Raises:
        FolderError: if nothing can be written there, or the disk is full.
    """
    temporary = beside(path, f"{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    except OSError as error:
        about = {str(temporary), str(path), *map(str, path.parents)}
        if error.errno != errno.ENOSPC and error.filename not in about and temporary.name not in str(error):
            raise  # of something else that the block does
        raise unwritable(path, error) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def unwritable(path: Path, error: Exception) -> FolderError:
    """The error for a file or folder that the system does not let be written."""
    reason = getattr(error, "strerror", None) or (error if isinstance(error, OSError) else os.strerror(errno.ENOSPC))
    way_out = disk_way_out(error) or "Give another path."
    return FolderError(f"cannot be written ({reason}).", file=path, way_out=way_out)


def write_json(path: Path, value: object) -> None:
    """Write `value` as JSON, whole or not at all. NaN and infinities are refused: JSON has none."""
    with new_file(path) as temporary:
        temporary.write_text(document_text(value), encoding="utf-8")


def document_text(value: object) -> str:
    """The text of a file of JSON."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_path(value: object, name: str, expected: str) -> Path:
    """An argument that is a path.

    Args:
        value: of the argument.
        name: of it, by which errors call it.
        expected: what is taken, e.g. `the path of a RUN folder`.

    Raises:
        OutlayError: if it is none.
    """
    if not isinstance(value, str | os.PathLike) or not str(value):
        found = "is an empty text" if value == "" else f"is {repr(value)[:40]}"
        raise OutlayError(f"{found}; {expected} is expected.", where=name, way_out=f"Give {expected}.")
    return Path(value)


def kind_of(path: Path) -> str | None:
    """What outlay wrote into a folder (data, run, bundle, campaign, …), or None if it did not write it."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    found = str(manifest.get("format", "")) if isinstance(manifest, dict) else ""
    return found.removeprefix("outlay-") if found.startswith("outlay-") else None


def check_replaceable(path: Path, kind: str | None = None) -> None:
    """Raise FolderError unless `path` is free, empty, or a folder that outlay wrote (of this kind, if one is given)."""
    if not path.exists():
        return
    if not path.is_dir():
        raise FolderError("a file stands where a folder is to be written.", file=path, way_out="Give another --out.")
    found = kind_of(path)
    if found is not None and kind is not None and found != kind:
        raise FolderError(
            f"is {_folder(found)}; it is not replaced by {_folder(kind)}.",
            file=path,
            way_out="Give another --out, or remove the folder yourself.",
        )
    if any(path.iterdir()) and found is None:
        raise FolderError(
            "the folder exists and outlay did not write it (it has no manifest.json of outlay), so it is not replaced.",
            file=path,
            way_out="Give another --out, or remove the folder yourself.",
        )
    if path.resolve() == Path.cwd():
        raise FolderError(
            "is the folder that you are in, which is not replaced.", file=path, way_out="Give another --out."
        )


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path`; it takes the place of `path` when the block ends well.

    Raises:
        FolderError: if `path` holds something that outlay did not write, or nothing can be written there.
    """
    check_replaceable(path)
    temporary = beside(path, f"{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        put_in_place(temporary, path)
    except Exception as error:
        ours = isinstance(error, OSError) and error.filename in {str(temporary), *map(str, path.parents)}
        if isinstance(error, OutlayError) or not (ours or disk_way_out(error)):
            raise
        raise unwritable(path, error) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def partial_of(path: Path) -> Path:
    """Where a folder that takes long is made until it is finished."""
    return beside(path, "partial")


def put_in_place(finished: Path, path: Path) -> None:
    """Rename the folder `finished` to `path`, replacing an older folder of ours."""
    check_replaceable(path)
    old = beside(path, f"{os.getpid()}.old")
    if path.exists():
        path.rename(old)
    finished.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def write_document(path: Path, kind: str, content: Mapping[str, Any]) -> None:
    """Write a file of JSON that says what it is; `kind` is data, run, bundle, campaign, certificate or another."""
    write_json(path, {"format": f"outlay-{kind}", "version": VERSIONS.get(kind, 1), **content})


def write_manifest(folder: Path, kind: str, content: Mapping[str, Any]) -> None:
    """Write manifest.json (last, when all else in the folder is whole). `kind` is data, run, bundle or campaign."""
    write_document(folder / MANIFEST, kind, content)


def read_manifest(folder: Path, kind: str, *, unfinished: str = "Make it again.") -> dict[str, Any]:
    """The manifest of a folder of ours.

    Raises:
        FolderError: if it is missing, half-written, of another kind or of another format version.
    """
    if (partial := partial_of(folder)).is_dir() and not folder.exists():
        option = ", with --resume" if kind in ("run", "comparison") else ""
        command = COMMANDS.get(kind, "the command that makes it")
        raise FolderError(
            f"is not finished: what is done of it is in {partial}.",
            file=folder,
            way_out=f"If it was cut off, run {command} again{option}.",
        )
    if not folder.exists():
        raise FolderError("does not exist.", file=folder, way_out="Check the path.")
    if not folder.is_dir():
        raise FolderError(f"is a file; {_folder(kind)} is expected.", file=folder, way_out="Check the path.")
    try:
        return read_document(folder / MANIFEST, kind, unfinished=unfinished)
    except FileNotFoundError:
        raise FolderError(
            f"has no {MANIFEST}, so it is not {_folder(kind, 'finished')}.", file=folder, way_out=unfinished
        ) from None


def read_document(path: Path, kind: str, *, unfinished: str = "Make it again.") -> dict[str, Any]:
    """The content of a file of JSON that `write_document` wrote, with what it says of itself.

    Raises:
        FolderError: if it is half-written, of another kind or of another format version.
        FileNotFoundError: if there is none.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise FolderError("is not valid JSON: the folder is damaged.", file=path, way_out=unfinished) from None
    found = document.get("format") if isinstance(document, dict) else None
    if found != f"outlay-{kind}":
        inside = path.parent / kind
        here = f", such as {inside}" if (inside / MANIFEST).exists() else ""
        raise FolderError(
            f"format is {found!r}; expected 'outlay-{kind}'.", file=path, way_out=f"Give {_folder(kind)}{here}."
        )
    if document.get("version") != (wanted := VERSIONS.get(kind, 1)):
        raise FolderError(
            f"format version is {document.get('version')!r}; this outlay reads version {wanted}.",
            file=path,
            way_out="Make it again with this version, or install the version that wrote it.",
        )
    return dict(document)


def _folder(kind: str, state: str = "") -> str:
    """A kind of folder with its article: `a RUN folder`, `an EXPORT folder`, `a finished EXPORT folder`."""
    words = f"{state} {kind.upper()} folder".strip()
    return f"{'an' if words[0] in 'AEIOU' else 'a'} {words}"


def sha256(path: Path) -> str:
    """Hash of one file's bytes, hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
