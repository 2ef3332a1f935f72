"""`outlay doctor`: what is installed, which devices there are, how fast the disk syncs."""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from outlay.core.machine import processors

PACKAGES = (
    "outlay",
    "numpy",
    "scipy",
    "pyarrow",
    "duckdb",
    "onnxruntime",
    "pydantic",
    "jax",
    "equinox",
    "optax",
    "onnx",
    "altair",
    "vl-convert-python",
)
SYNCS = 50


def doctor() -> dict[str, Any]:
    """Versions, processors, memory, JAX devices, and the median time of a synced 4 kB write in milliseconds."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": processors(),
        "memory (GB)": _memory(),
        **{name: _version(name) for name in PACKAGES},
        "devices": _devices(),
        "disk sync (ms)": round(_sync_milliseconds(), 3),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _devices() -> str:
    try:
        import jax
    except ImportError:
        return "JAX is not installed (needed for training only): pip install 'outlay[train]'"
    return ", ".join(str(device) for device in jax.devices())


def _sync_milliseconds() -> float:
    took = []
    with tempfile.NamedTemporaryFile(dir=".") as handle:
        for _ in range(SYNCS):
            began = time.perf_counter()
            handle.write(b"x" * 4096)
            handle.flush()
            os.fsync(handle.fileno())
            took.append(time.perf_counter() - began)
    return 1e3 * statistics.median(took)
