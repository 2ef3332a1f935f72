"""`outlay serve --workers 2`: two processes that answer as one, on one ledger in a file."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from small_processes import Process, outlay_serve, workers
from small_servers import request

from outlay.bundles.decide import Bundle
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.serve.ledger.backends import open_ledger
from patience import PATIENCE, wait_until

CAMPAIGN = "coupons"


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def served(bundle: Bundle, ledger: str, tmp_path: Path) -> Iterator[Process]:
    with outlay_serve(bundle.folder, ledger, tmp_path, "--cap", "60", "--workers", "2") as process:
        yield process


@pytest.fixture
def others(tmp_path: Path, make_spec: Callable[..., BundleSpec]) -> list[Path]:
    """Two more bundles of the same campaign."""
    for name, share in (("second", 0.1), ("third", 0.3)):
        write_bundle(tmp_path / name, make_spec(weights=(share, 1 - share)))
    return [tmp_path / "second", tmp_path / "third"]


def bundles(process: Process, first: int) -> set[str]:
    """Who answers many single requests, each on a connection of its own: both workers do."""
    with ThreadPoolExecutor(8) as pool:
        return {answer["bundle"] for answer in pool.map(process.decide, (request(first + i) for i in range(60)))}


def meter(process: Process, name: str) -> float:
    return sum(
        float(line.rpartition(" ")[2]) for line in process.get("/metrics").text.splitlines() if line.startswith(name)
    )


def test_both_share_the_cap_and_a_pause_and_end_together_and_their_meters_add_up(served: Process, ledger: str) -> None:
    wait_until(lambda: len(workers(served)) == 2)
    asked = [request(i % 40, eligible=[3]) for i in range(80)]  # everything twice
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(served.decide, asked))
    assert found[:40] == found[40:]
    assert sum(answer["action"] for answer in found[:40]) == 60
    for name, wanted in (("outlay_decisions_total", 40), ("outlay_decision_seconds_count", 80), ("outlay_paused", 0)):
        assert meter(served, name) == wanted
    assert meter(served, 'outlay_budget_reserved_units{scope="total"}') == 60
    assert served.post("/v1/decisions", {}).status_code == served.post("/v1/decisions", {}).status_code == 422
    assert meter(served, 'outlay_refused_requests_total{status="422"}') == 2
    assert served.post("/v1/admin/pause", None).status_code == 200
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(served.decide, (request(100 + i, eligible=[3]) for i in range(60))))
    assert {answer["reason"] for answer in found} == {"paused"}
    busy = [child.cpu_times().user for child in workers(served)]
    assert min(busy) > 0
    assert served.post("/v1/admin/resume", None).status_code == 200
    end_under_load(served, ledger, signal.SIGINT)


def end_under_load(served: Process, ledger: str, number: signal.Signals) -> None:
    """A signal ends them all, with every answer given."""
    family = psutil.Process(served.popen.pid).children(recursive=True)
    answers: list[Any] = []

    def ask(first: int) -> None:
        for i in range(first, first + 1000):
            try:
                answers.append(served.decide(request(i, eligible=[3])))
            except Exception:  # it has ended
                return

    with ThreadPoolExecutor(4) as pool:
        for first in range(10**6, 10**6 + 4000, 1000):
            pool.submit(ask, first)
        wait_until(lambda: len(answers) > 40)
        served.popen.send_signal(number)
        served.popen.wait(PATIENCE)
    wait_until(lambda: not any(map(_lives, family)))
    assert "Traceback" not in served.said(), served.said()
    books = open_ledger(ledger)
    stored = {row.decision_id for row in books.rows(CAMPAIGN, 0, 2**47)}
    assert {answer["decision_id"] for answer in answers} - {None} <= stored
    assert books.check() == []
    books.close()


@pytest.mark.slow
def test_a_new_bundle_reaches_both_and_a_worker_in_place_of_a_dead_one_and_nothing_is_lost(
    served: Process, bundle: Bundle, ledger: str, others: list[Path]
) -> None:
    wait_until(lambda: len(workers(served)) == 2)
    kept = {i: served.decide(request(i)) for i in range(10)}
    wait_until(lambda: all(any("ledger.db" in f.path for f in child.open_files()) for child in workers(served)))
    served_ids, number = [bundle.id], 0
    for folder in (others[0], bundle.folder, others[1]):
        found = served.post("/v1/admin/bundle", {"path": str(folder)})
        assert found.status_code == 200, found.text
        served_ids.append(found.json()["bundle"])
        seen: set[str] = set()

        def settled(wanted: str = served_ids[-1]) -> bool:
            nonlocal number, seen
            number += 100
            seen = bundles(served, number)
            return seen == {wanted}

        wait_until(settled)
        if folder == others[0]:
            _replace(served)
            assert {i: served.decide(request(i)) for i in range(10)} == kept
            wait_until(settled)  # the newcomer is told, too
    assert len(set(served_ids)) == 3
    shown = [line for line in served.get("/metrics").text.splitlines() if line.startswith("outlay_bundle_info{")]
    wait_until(lambda: meter(served, "outlay_bundle_info{") == 1)  # the dead show nothing
    assert any(served_ids[-1] in line and line.endswith(" 1.0") for line in shown)
    broken = served.post("/v1/admin/bundle", {"path": str(others[0] / "nowhere")})
    assert broken.status_code == 422
    assert bundles(served, number + 100) == {served_ids[-1]}
    assert {i: served.decide(request(i)) for i in range(10)} == kept
    end_under_load(served, ledger, signal.SIGTERM)


def _replace(served: Process) -> None:
    """Kill a worker, and wait for another in its place."""
    dead = workers(served)[0]
    dead.kill()
    wait_until(lambda: len([child for child in workers(served) if child.pid != dead.pid]) == 2)


@pytest.mark.slow
def test_workers_do_not_outlive_their_parent(served: Process) -> None:
    wait_until(lambda: len(workers(served)) == 2)
    assert served.get("/v2/health/live").status_code == 200
    orphans = workers(served)
    served.popen.kill()
    try:
        wait_until(lambda: not any(map(_lives, orphans)))
    finally:
        for orphan in orphans:
            with suppress(psutil.NoSuchProcess):
                orphan.kill()


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)  # nobody may be there to bury it
    except psutil.NoSuchProcess:
        return False
