"""The machine: its processors, and what it may lack: packages of an extra, room on a disk that can be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from outlay.core.errors import OutlayError

EXTRAS = {
    "train": ("jax", "jaxlib", "equinox", "optax", "onnx", "lightgbm"),
    "report": ("altair", "jinja2", "vl_convert"),
    "serve": ("starlette", "uvicorn", "msgspec", "prometheus_client"),
    "postgres": ("psycopg", "adbc_driver_postgresql", "adbc_driver_manager"),
    "excel": ("python_calamine",),
    "gym": ("gymnasium",),
    "minari": ("minari", "h5py", "PIL"),
    "mcp": ("mcp", "mcp_types"),
    "cluster": ("ray",),
}  # top-level packages of each, as in pyproject.toml
DISK = {  # errno → the way out
    errno.ENOSPC: "Free some space, or give another path.",
    errno.EDQUOT: "Free some space, or give another path.",
    errno.EROFS: "Give a path that can be written.",
    errno.EFBIG: "Give a path on another disk.",
}
# As libraries say it in their texts; the last one is NumPy's word for an array that was written in part.
FULL = "no space left on device", "disk quota exceeded", "read-only file system", "file too large", "requested and"


def processors() -> int:
    """How many processors this process may use (`--threads` takes others away)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def optional() -> Iterator[None]:
    """Around the import of an optional package: where it is missing, the error names the extra to install.

    Raises:
        OutlayError: if it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (told := in_words(error)) is None:
            raise
        raise told from None


def in_words(error: BaseException) -> OutlayError | None:
    """The error as one that a user can put right; None for all that may be a bug."""
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        extra = next((extra for extra, packages in EXTRAS.items() if package in packages), None)
        return (
            None
            if extra is None
            else OutlayError(
                f"the package {package} is not installed.", way_out=f"Install it: pip install 'outlay[{extra}]'."
            )
        )
    if isinstance(error, OSError) and error.errno in DISK:
        return OutlayError(f"cannot be written ({error.strerror}).", file=error.filename, way_out=DISK[error.errno])
    if (way_out := disk_way_out(error)) is not None:
        return OutlayError(f"a file cannot be written ({str(error).strip()}).", way_out=way_out)
    return None


def disk_way_out(error: BaseException | None) -> str | None:
    """What to do about a disk that is full or cannot be written; None if neither an error nor its causes are of one."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in DISK:
            return DISK[error.errno]
        if says_full(error):
            return DISK[errno.ENOSPC]
        error = error.__cause__
    return None


def says_full(error: BaseException) -> bool:
    """Whether a library's error is about a disk that is full or cannot be written."""
    text = str(error).lower()
    return any(words in text for words in FULL)
