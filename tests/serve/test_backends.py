"""A backend is one file and one row: everything else follows from the registry."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_ledger import MemoryLedger
from small_ledgers import PLACES, new_url

from outlay.core.errors import OutlayError
from outlay.serve.ledger.backends import BACKENDS, open_ledger
from outlay.serve.ledger.caps import Caps


def test_a_backend_of_its_own_is_opened_by_its_scheme(tmp_path: Path) -> None:
    """`memory_ledger.py` and its row in `small_ledgers.py` are all that was written for it."""
    url = new_url("memory", tmp_path)
    ledger = open_ledger(url)
    assert isinstance(ledger, MemoryLedger)
    ledger.set_caps("coupons", Caps(total=10))
    assert open_ledger(url, create=False).campaigns() == ["coupons"]


def test_an_unknown_scheme_is_told_all_that_are_known() -> None:
    examples = " or ".join(backend.example for backend in BACKENDS.values())
    assert "memory://name" in examples
    with pytest.raises(OutlayError, match=rf"is 'mysql://host', .*ledger.*{examples}"):
        open_ledger("mysql://host")


def test_the_conformance_tests_know_how_to_make_every_ledger() -> None:
    assert set(PLACES) == set(BACKENDS)


def test_no_scheme_hides_another() -> None:
    prefixes = [prefix for backend in BACKENDS.values() for prefix in backend.prefixes]
    assert not [(one, other) for one in prefixes for other in prefixes if one != other and one.startswith(other)]
