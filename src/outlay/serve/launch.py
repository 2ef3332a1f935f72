"""Starting a server: everything that can be wrong is found before the port opens, and said in words.

serve(Settings(bundle="run/bundle", ledger="sqlite:///ledger.db", config=ServeConfig(...)))
"""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable
from contextlib import closing

from outlay.core.errors import OutlayError
from outlay.serve.application import ServerOptions, is_loopback
from outlay.serve.deciding.loaded_bundle import LoadedBundle, prepare_bundle
from outlay.serve.experiment.rehearsal import check_rehearsal, clock_with, new_rehearsal, note_rehearsal
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.clock import TOLERANCE
from outlay.serve.ledger.ledger import Ledger
from outlay.serve.shared_settings import agree_settings
from outlay.serve.workers import run

BACKLOG = 2_048  # connections that wait to be taken


def serve(settings: ServerOptions, say: Callable[[str], None] = lambda _words: None) -> None:
    """Serve until interrupted.

    Args:
        settings: what and how.
        say: called with what is served and where, once the port is open.

    Raises:
        OutlayError: if the bundle, the test, the ledger, the port or the token is not as it must be.
    """
    if not is_loopback(settings.host) and not settings.token:
        raise OutlayError(
            f"is {settings.host}: other machines could spend the budget, and there is no token.", where="--host",
            way_out="Set OUTLAY_TOKEN to a long random text, or listen on 127.0.0.1.",
        )  # fmt: skip
    loaded = prepare_bundle(settings.bundle, settings.config)
    zone = settings.config.timezone
    with closing(open_ledger(settings.ledger)) as ledger:
        words = []
        if settings.change and abs(ledger.clock.ahead()) > TOLERANCE:
            ledger.forget_clock()
        elif not settings.change and (active := _active(ledger, loaded, settings)) is not loaded:
            words = [
                f"the ledger's servers serve bundle {active.bundle.id} ({active.path}), and so does this one instead "
                f"of {settings.bundle}. To put that into service on all of them, start with --change-settings."
            ]
            loaded, settings = active, dataclasses.replace(settings, bundle=active.path)
        trial = settings.trial(loaded)
        seconds, now = settings.rehearse, ledger.clock.seconds()
        wanted = None if seconds is None else new_rehearsal(seconds, zone, now)
        rehearsal = check_rehearsal(ledger, loaded.campaign, wanted)
        clock = clock_with(ledger, rehearsal, zone)
        words += agree_settings(ledger, loaded, settings.config, trial, clock, change=settings.change)
        if rehearsal is not None:
            words = [*note_rehearsal(ledger, loaded.campaign, rehearsal), *words]
    with listening(settings.host, settings.port) as listener:
        settings = dataclasses.replace(settings, port=listener.getsockname()[1])
        say(f"bundle {loaded.bundle.id} of campaign {loaded.campaign} on http://{settings.host}:{settings.port}")
        for line in words:
            say(line)
        run(settings, listener)


def _active(ledger: Ledger, loaded: LoadedBundle, settings: ServerOptions) -> LoadedBundle:
    """The bundle that the ledger's servers serve; the one at hand where they serve none yet, or the same."""
    terms = ledger.config(loaded.campaign)
    if terms is None or terms.bundle in ("", loaded.bundle.id):
        return loaded
    way_out = (
        "Put it there, start with its folder, or put this one into service for all servers with --change-settings."
    )
    try:
        found = prepare_bundle(terms.path, settings.config, campaign=loaded.campaign)
    except OutlayError as error:
        raise OutlayError(
            f"is {loaded.bundle.id}; the ledger's servers serve {terms.bundle}, which cannot be loaded: {error}",
            where="BUNDLE", way_out=way_out,
        ) from None  # fmt: skip
    if found.bundle.id != terms.bundle:
        raise OutlayError(
            f"is {loaded.bundle.id}; the ledger's servers serve {terms.bundle}; {terms.path} has {found.bundle.id}.",
            where="BUNDLE", way_out=way_out,
        )  # fmt: skip
    return found


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises OutlayError if it may not."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise OutlayError(
            f"cannot listen on {host}:{port} ({error}).", where="--port", way_out="Give another --port or --host."
        ) from None
    # Connections inherit it. Without it an answer in two packets waits 40 ms for the first one's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
