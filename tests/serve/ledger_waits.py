"""Ledgers that wait for a lock, a connection or a statement for longer than any test waits for an answer.

It holds in every process that imports this: the one of the tests, which import it with their ledgers and servers, and
those of servers (`patient.py`).
"""

from __future__ import annotations

from outlay.serve.ledger import postgres, sqlite
from patience import PATIENCE

LONG = int(2 * PATIENCE)  # seconds

sqlite.WAIT = LONG
_begins = postgres._LOOK, postgres._WRITE
postgres._LOOK, postgres._WRITE = (text.replace(f"'{postgres.WAIT}s'", f"'{LONG}s'") for text in _begins)
postgres.WAIT = LONG
