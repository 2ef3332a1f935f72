"""Starting a server: whatever can be wrong is found before anything is written; then one process serves, or several do.

serve(ServerOptions(bundle="run/bundle", ledger="sqlite:///ledger.db", config=ServeConfig(...)))
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from starlette.routing import Router
from uvicorn.supervisors import Multiprocess

from outlay.core.errors import OutlayError
from outlay.serve.application import ServerOptions, application, is_loopback
from outlay.serve.deciding.loaded_bundle import LoadedBundle, prepare_bundle
from outlay.serve.experiment import ServedExperiment
from outlay.serve.http.connections import Pieces
from outlay.serve.http.tokens import Tokens
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.clock import TOLERANCE
from outlay.serve.ledger.ledger import Ledger, NoLedgerError
from outlay.serve.log_format import log_to_stderr
from outlay.serve.rehearsal import check_rehearsal, clock_with, new_rehearsal, note_rehearsal
from outlay.serve.shared_settings import agree_settings

BACKLOG = 2_048  # connections that wait to be accepted
UVICORN: dict[str, Any] = {
    "log_config": None,  # as `log_format.py` says
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "ws": "none",
    "http": Pieces,
    "timeout_keep_alive": 75,  # seconds: longer than the minute for which proxies keep theirs
    "timeout_graceful_shutdown": 5,  # seconds for requests in progress when the server is told to stop
}
WORKER = "outlay.serve.launch:worker"  # makes the application of one of several workers
# Environment variables for workers: the file with their options, and what may not be on the disk.
WORKER_OPTIONS, WORKER_SECRETS = "OUTLAY_SERVE_SETTINGS", "OUTLAY_SERVE_SECRETS"

log = logging.getLogger("outlay.start")


def serve(options: ServerOptions, say: Callable[[str], None] = lambda _words: None) -> None:
    """Serve until interrupted. What the operator should know is logged as warnings once the port is open.

    Args:
        options: what to serve and how.
        say: called with what is served and where, once the port is open.

    Raises:
        OutlayError: if the bundle, the test, the ledger, the port or the tokens cannot be served.
    """
    options.tokens.check(options.host, loopback=is_loopback(options.host))
    with _worker_folder(options) as folder:
        if folder is not None:
            options = dataclasses.replace(options, shared=folder / "vocabularies")
        options, bundle, listener, notices = _started(options)
        with listener:
            options = dataclasses.replace(options, port=listener.getsockname()[1])
            say(f"bundle {bundle} on http://{options.host}:{options.port}")
            for line in notices:
                log.warning("%s", line)
            if folder is not None:
                _run_workers(options, listener, folder)
            else:
                with suppress(KeyboardInterrupt):
                    uvicorn.Server(uvicorn.Config(application(options), **UVICORN)).run(sockets=[listener])


@contextmanager
def _worker_folder(options: ServerOptions) -> Iterator[Path | None]:
    """A folder for what workers share, which only this user may read; None where there is one process."""
    if options.workers == 1:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _started(options: ServerOptions) -> tuple[ServerOptions, str, socket.socket, list[str]]:
    """Check what is to be served, open the port, and bring the settings into the ledger.

    The ledger comes last, in one transaction: a start that is refused has changed nothing. One that does not exist yet
    is created only if an empty one in its place would have agreed.

    The bundles that it loads are gone when it returns: the launcher of workers does not need them.

    Returns:
        The options to serve with, the bundle and its campaign in words, the port, and what the operator should know.
    """
    loaded = prepare_bundle(options.bundle, options.config, history=options.history, shared=options.shared)
    notices, is_new = list[str](), False
    try:
        with closing(open_ledger(options.ledger, create=False)) as ledger:
            if not options.change and (active := _in_service(ledger, loaded, options)) is not loaded:
                notices = [
                    f"the ledger's servers serve bundle {active.bundle.id} ({active.path}), and so does this one "
                    f"instead of {options.bundle}. To put that into service on all of them, start with "
                    "--change-settings."
                ]
                loaded, options = active, dataclasses.replace(options, bundle=active.path)
    except NoLedgerError:
        is_new = True
    trial = options.load_experiment(loaded)
    _check_history(options, loaded, trial)
    if is_new:
        with tempfile.TemporaryDirectory() as folder, closing(open_ledger(f"sqlite:///{folder}/ledger.db")) as empty:
            _agreed(empty, options, loaded, trial)
    listener = listening(options.host, options.port)
    try:
        with closing(open_ledger(options.ledger)) as ledger:
            notices += _agreed(ledger, options, loaded, trial)
    except BaseException:
        listener.close()
        raise
    options = dataclasses.replace(options, campaign=loaded.campaign)
    return options, f"{loaded.bundle.id} of campaign {loaded.campaign}", listener, notices


def _agreed(ledger: Ledger, options: ServerOptions, loaded: LoadedBundle, trial: ServedExperiment | None) -> list[str]:
    """Bring settings, caps, bundle, test and rehearsal into the ledger, in one transaction. Return notices."""
    zone = options.config.timezone
    with ledger.together(loaded.campaign):
        if options.change and abs(ledger.clock.ahead()) > TOLERANCE:
            ledger.forget_clock()
        seconds, now = options.rehearse, ledger.clock.seconds()
        requested = None if seconds is None else new_rehearsal(seconds, zone, now, _first_day(options, trial))
        rehearsal = check_rehearsal(ledger, loaded.campaign, requested)
        clock = clock_with(ledger, rehearsal, zone)
        notices = [*ledger.warnings]
        notices += agree_settings(ledger, loaded, options.config, trial, clock, change=options.change)
        if rehearsal is not None:
            notices = [*note_rehearsal(ledger, loaded.campaign, rehearsal), *notices]
    return notices


def worker() -> Router:
    """Return the application of one of several workers; the launcher left the options in a file."""
    log_to_stderr()
    options: ServerOptions = pickle.loads(Path(os.environ[WORKER_OPTIONS]).read_bytes())
    if (launcher := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_stop_with, args=(launcher,), daemon=True).start()
    use, admin, ledger = json.loads(os.environ[WORKER_SECRETS])
    return application(dataclasses.replace(options, tokens=Tokens(use, admin), ledger=ledger))


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises OutlayError if it may not."""
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


def _check_history(options: ServerOptions, loaded: LoadedBundle, trial: ServedExperiment | None) -> None:
    """Raise OutlayError if users' past was given and no policy looks at it."""
    bundles = [loaded, *(arm.loaded for arm in (trial.arms if trial else ()))]
    if options.history is not None and all(each.summaries is None for each in bundles):
        raise OutlayError(
            "is not needed: the policy looks at no past days.", where="--history", way_out="Leave it out."
        )


def _first_day(options: ServerOptions, trial: ServedExperiment | None) -> datetime.date | None:
    """Return the first day of the test, or else of the plan; None without either."""
    if trial is not None:
        return trial.experiment.meta.start
    return None if options.config.plan is None else options.config.plan.start


def _in_service(ledger: Ledger, loaded: LoadedBundle, options: ServerOptions) -> LoadedBundle:
    """Return the bundle that the ledger's servers serve; `loaded` if they serve none yet, or the same one."""
    kept = ledger.config(loaded.campaign)
    if kept is None or kept.bundle in ("", loaded.bundle.id):
        return loaded
    way_out = (
        "Put it there, start with its folder, or put this one into service for all servers with --change-settings."
    )
    try:
        active = prepare_bundle(
            kept.path, options.config, campaign=loaded.campaign, history=options.history, shared=options.shared
        )
    except OutlayError as error:
        raise OutlayError(
            f"is {loaded.bundle.id}; the ledger's servers serve {kept.bundle}, which cannot be loaded: {error}",
            where="BUNDLE",
            way_out=way_out,
        ) from None
    if active.bundle.id != kept.bundle:
        raise OutlayError(
            f"is {loaded.bundle.id}; the ledger's servers serve {kept.bundle}; {kept.path} has {active.bundle.id}.",
            where="BUNDLE",
            way_out=way_out,
        )
    return active


class _Launcher(Multiprocess):
    """Closes the port before its workers do: nobody would accept what came after the last of them."""

    def terminate_all(self) -> None:
        """Tell all workers to stop."""
        for shared in self.sockets:
            shared.close()
        super().terminate_all()


def _stop_with(launcher: Any) -> None:
    """Stop when the launcher ends: without it, a worker would hold the port and go on spending for ever."""
    launcher.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _run_workers(options: ServerOptions, listener: socket.socket, folder: Path) -> None:
    file, meters = folder / "settings", folder / "meters"
    # Tokens and password stay off the disk: if the launcher is killed, the folder is left behind.
    file.write_bytes(pickle.dumps(dataclasses.replace(options, tokens=Tokens(), ledger="")))
    meters.mkdir()
    os.environ |= {
        WORKER_OPTIONS: str(file),
        WORKER_SECRETS: json.dumps([options.tokens.use, options.tokens.admin, options.ledger]),
        "PROMETHEUS_MULTIPROC_DIR": str(meters),
    }
    _Launcher(uvicorn.Config(WORKER, factory=True, workers=options.workers, **UVICORN), [listener]).run()
