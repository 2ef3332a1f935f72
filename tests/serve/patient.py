"""Limits that a slow machine keeps: every process of a server under test imports this before it starts.

The environment variable LIMITS has limits that a test is about, as JSON: names of modules, of constants in them and of
keys of those, like {"outlay.serve.http.connections:LINGER": 9, "outlay.serve.launch:UVICORN.timeout_keep_alive": 1}.
"""

from __future__ import annotations

import importlib
import json
import os

import ledger_waits  # noqa: F401  (for what it sets)

from outlay.serve import launch
from outlay.serve.http import connections
from patience import PATIENCE

connections.REQUEST = PATIENCE
launch.UVICORN["timeout_graceful_shutdown"] = int(PATIENCE)
launch.UVICORN["timeout_worker_healthcheck"] = 30  # seconds to start in; and until a death between two signs is noticed
launch.WORKER = f"{__name__}:worker"
for _name, _limit in json.loads(os.environ.get("LIMITS", "{}")).items():
    _module, _, _path = _name.partition(":")
    _constant, *_key = _path.split(".")
    if _key:
        getattr(importlib.import_module(_module), _constant)[_key[0]] = _limit
    else:
        setattr(importlib.import_module(_module), _constant, _limit)
worker = launch.worker
