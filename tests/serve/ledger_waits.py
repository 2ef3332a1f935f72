"""Ledgers that wait for a lock, a connection, a statement or a server longer than any test waits for an answer.

It holds in every process that imports this: the one of the tests, which import it with their ledgers and servers, and
those of servers (`patient.py`).
"""

from __future__ import annotations

import re

from outlay.serve.ledger import postgres, sqlite
from patience import PATIENCE

LONG = int(2 * PATIENCE)  # seconds

sqlite.WAIT = LONG
WRITE = postgres._WRITE  # with the limits that it has for users
for _name in ("_READ", "_LOOK", "_WRITE"):
    setattr(postgres, _name, re.sub(r"'\d+s'", f"'{LONG}s'", getattr(postgres, _name)))
postgres.WAIT = LONG
postgres.ALIVE |= {"keepalives_idle": LONG}
