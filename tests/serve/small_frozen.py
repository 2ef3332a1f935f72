"""Processes that stand still in the middle of a transaction, by SIGSTOP of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil  # type: ignore[import-untyped]
from small_processes import HERE

from patience import PATIENCE, wait_until

# Stops itself while it holds the campaign, in `what`. Then it tells what came of it, and tries again.
STANDS_STILL = f"""
import os, signal, sys
sys.path[:0] = ["{HERE}", "{HERE.parent}", "{HERE.parents[1] / "benchmarks"}"]
import ledger_waits
from small_ledgers import proposal
from outlay.serve.ledger import postgres, sql_ledger
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.ledger import LedgerError

def stopping(function):
    def stopped(*values):
        found = function(*values)
        os.kill(os.getpid(), signal.SIGSTOP)
        return found
    return stopped

_, url, what = sys.argv
postgres._WRITE = ledger_waits.WRITE
ledger = open_ledger(url)
place, name = {{"record": (sql_ledger, "admit"), "caps": (sql_ledger.campaign_rows, "set_caps")}}[what]
own = getattr(place, name)
setattr(place, name, stopping(own))
do = {{
    "record": lambda: ledger.record([proposal("frozen")])[0].status,
    "caps": lambda: ledger.change_caps("coupons", lambda caps: caps),
}}[what]
try:
    print(do(), flush=True)
except LedgerError:
    print("nothing", flush=True)
setattr(place, name, own)
for _ in range(100):  # this machine may be slower than the limits for users
    try:
        print(ledger.record([proposal("frozen")])[0].status, flush=True)
        break
    except LedgerError:
        pass
"""


@contextmanager
def frozen(url: str, what: str = "record") -> Iterator[subprocess.Popen[str]]:
    """A process that stands still on the ledger at a URL."""
    command = [sys.executable, "-c", STANDS_STILL, url, what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: stands_still(process))
            yield process
        finally:
            process.kill()


def stands_still(process: subprocess.Popen[str]) -> bool:
    assert process.poll() is None, "it has ended"
    return bool(psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)


def awake(process: subprocess.Popen[str]) -> list[str]:
    """What it says once it may go on."""
    process.send_signal(signal.SIGCONT)
    return process.communicate(timeout=PATIENCE)[0].split()
