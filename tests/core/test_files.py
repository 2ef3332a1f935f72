"""Files of arrays."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import numpy as np

from outlay.core.files import map_array
from outlay.core.parallel import in_threads


def test_arrays_are_mapped_in_many_threads(tmp_path: Path) -> None:
    """Also where the garbage collector calls others while a header is parsed, as it does once JAX is imported."""

    def let_others_run(*_: object) -> None:
        time.sleep(1e-6)

    np.save(tmp_path / "a.npy", np.arange(6).reshape(3, 2))
    before = gc.get_threshold()
    gc.callbacks.append(let_others_run)
    gc.set_threshold(20, 2, 2)
    try:
        found = list(in_threads(lambda path: map_array(path, "r").sum(), [tmp_path / "a.npy"] * 300, 8))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(let_others_run)
    assert found == [15] * 300
