"""A worker on its way into service."""

from __future__ import annotations

import asyncio
import gc
import shutil
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from small_servers import RESERVE

from outlay.bundles.decide import Bundle
from outlay.core.errors import BundleError
from outlay.serve.application import ServerOptions, _load, _loaded, application
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.loaded_bundle import prepare_bundle
from outlay.serve.handlers.service import Service
from outlay.serve.ledger.ledger import LedgerError, Note
from outlay.serve.ledger.sqlite import SqliteLedger
from outlay.serve.shared_settings import agree_settings
from patience import PATIENCE


@pytest.fixture
def collector() -> Iterator[None]:
    """As it was: a worker sets its own thresholds."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Loop:
    """Refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.own = self


def started_bundle(options: ServerOptions) -> str:
    """The id of the bundle that a worker serves once it has started."""

    async def start() -> str:
        async with asyncio.timeout(PATIENCE):
            app = application(options)
            async with app.lifespan_context(app) as state:
                assert state is not None
                service: Service = state["service"]
                return service.state.loaded.bundle.id

    return asyncio.run(start())


@pytest.mark.usefixtures("collector")
def test_a_worker_whose_folder_is_gone_serves_the_ledgers_bundle(bundle: Bundle, tmp_path: Path) -> None:
    config, path = ServeConfig.parse({"reserve": RESERVE}), tmp_path / "ledger.db"
    ledger = SqliteLedger(path)
    agree_settings(ledger, prepare_bundle(bundle.folder, config), config)
    campaign = bundle.manifest.name
    options = ServerOptions(tmp_path / "gone", f"sqlite:///{path}", config, workers=2, campaign=campaign)
    assert started_bundle(options) == bundle.id
    kept = ledger.config(campaign)
    assert kept is not None
    ledger.change_config(campaign, lambda _: msgspec.structs.replace(kept, bundle="another"))
    with pytest.raises(BundleError, match="gone: does not exist"):
        _loaded(options)
    ledger.close()


@pytest.mark.usefixtures("collector")
def test_a_worker_that_can_load_nothing_waits_instead_of_ending_the_others(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, path, place, away = ServeConfig.parse({"reserve": RESERVE}), *(tmp_path / name for name in "abc")
    shutil.copytree(bundle.folder, place)
    ledger = SqliteLedger(path)
    agree_settings(ledger, prepare_bundle(place, config), config)
    ledger.close()
    campaign = bundle.manifest.name
    options = ServerOptions(place, f"sqlite:///{path}", config, workers=2, campaign=campaign)
    waits: list[float] = []

    async def back(seconds: float) -> None:
        waits.append(seconds)
        away.rename(place)

    place.rename(away)
    with pytest.raises(BundleError, match="does not exist"):
        asyncio.run(_load(replace(options, workers=1)))
    monkeypatch.setattr("outlay.serve.application.asyncio.sleep", back)
    assert asyncio.run(_load(options)).loaded.bundle.id == bundle.id
    assert waits == [1]


@pytest.mark.usefixtures("collector")
def test_a_ledger_that_goes_away_between_two_questions_of_a_worker_that_starts_is_waited_for(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that ends before it serves would take the launcher and all other workers with it."""
    asked: list[str] = []

    class Away(SqliteLedger):
        """Is opened, and then gone, the first two times."""

        def notes(self, campaign: str, kind: str) -> list[Note]:
            asked.append(kind)
            if asked.count("bundle") in {1, 2} and kind == "bundle":
                raise LedgerError("the connection was lost.")
            return super().notes(campaign, kind)

    config, path = ServeConfig.parse({"reserve": RESERVE}), tmp_path / "ledger.db"
    first = SqliteLedger(path)
    agree_settings(first, prepare_bundle(bundle.folder, config), config)
    first.close()
    monkeypatch.setattr("outlay.serve.application.open_ledger", lambda _url, **_create: Away(path))

    async def start() -> tuple[str, ...]:
        app = application(ServerOptions(bundle.folder, f"sqlite:///{path}", config))
        async with app.lifespan_context(app) as state:
            assert state is not None
            service: Service = state["service"]
            return service.state.kinds

    assert "active" in asyncio.run(start())
    assert asked.count("bundle") == 3


@pytest.mark.usefixtures("collector")
def test_garbage_that_has_grown_old_is_freed(bundle: Bundle, tmp_path: Path) -> None:
    """After some millions of objects: each request in flight when the collector ran may be such garbage."""
    config, path = ServeConfig.parse({"reserve": RESERVE}), tmp_path / "ledger.db"
    ledger = SqliteLedger(path)
    agree_settings(ledger, prepare_bundle(bundle.folder, config), config)
    ledger.close()
    started_bundle(ServerOptions(bundle.folder, f"sqlite:///{path}", config))
    loop = Loop()
    for generation in (0, 1):
        gc.collect(generation)
    old, loop = weakref.ref(loop), Loop()
    rounds = 0
    while old() is not None and rounds < 100:
        kept = [Loop() for _ in range(50_000)]
        del kept
        rounds += 1
    assert rounds < 100
