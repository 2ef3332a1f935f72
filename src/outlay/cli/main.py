"""The `outlay` command."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, Any, NoReturn

# One BLAS thread, unless the user says otherwise: our matrices are small, and on a busy machine two threads that spin
# for each other were ten times slower than one. It must be set before NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from outlay.cli import interrupts

interrupts.listen(quietly=True)  # before the libraries are loaded that swallow it

import typer

from outlay.cli import experiment, judge, learn, use
from outlay.cli.console import print_json, warn
from outlay.cli.dialect import Command
from outlay.cli.serve import export_log, serve
from outlay.core.errors import OutlayError
from outlay.core.machine import in_words
from outlay.core.version import __version__

BUG, WRONG, INTERRUPTED, CLOSED = 1, 2, 130, 141  # exit codes; the last two as shells count Ctrl-C and SIGPIPE
USAGE: Any = typer.BadParameter.__mro__[2]  # what Typer raises for wrong options, wherever it keeps its classes

app = typer.Typer(
    name="outlay",
    help="Learn from a log which incentive each user should get, so that a budget buys the most lasting activity.",
    epilog="Start with: outlay init LOG, or outlay simulate habit --out campaign. "
    "Exit codes: 0 done, 1 a bug in outlay, 2 wrong input or an infeasible limit, 3 a result that evaluate "
    "--fail-on names, 130 stopped with Ctrl-C, 141 the reader of a pipe closed it. "
    "With --json, an error is one JSON document on stdout.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"outlay {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


for command in (
    learn.init,
    learn.check,
    learn.plan_log,
    learn.prepare,
    learn.train,
    judge.evaluate,
    judge.frontier,
    judge.report,
    judge.index,
    judge.compare,
    use.score,
    use.allocate,
    serve,
    export_log,
    use.simulate,
    use.doctor,
    use.mcp,
):
    app.command(cls=Command)(command)
app.add_typer(experiment.app, name="experiment")


def run() -> None:
    """Run the command line; every wrong input is one message and exit code 2, and with `--json` one document."""
    try:
        _run()
    except (BrokenPipeError, SystemExit) as error:
        if not isinstance(error if isinstance(error, BrokenPipeError) else error.__context__, BrokenPipeError):
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)  # for what is still to be flushed
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        sys.exit(CLOSED)  # Click and Rich end with 1
    finally:
        interrupts.forget()


def _run() -> None:
    try:
        interrupts.stop_if_noted()
        code = app(standalone_mode=False)
    except OutlayError as error:
        _refuse(error)
    except typer.Abort:  # a question was not answered
        _end_interrupted()
    except KeyboardInterrupt:
        _end_interrupted()
    except USAGE as error:
        if not _as_json():
            error.show()
        _end(error.exit_code, "input", error.format_message(), where="command line", way_out="See outlay COMMAND -h.")
    except (PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError) as error:
        _refuse(OutlayError(f"{error.strerror}.", file=error.filename, way_out="Give another path."))
    except Exception as error:
        # DuckDB has its own word for Ctrl-C, and a library that was being loaded makes an error of it.
        if interrupts.noted() or (isinstance(error, RuntimeError) and str(error) == "Query interrupted"):
            _end_interrupted()
        if (told := in_words(error)) is not None:
            _refuse(told)
        traceback.print_exc()
        way_out = "Please report it with the lines above."
        warn(f"This is a bug in outlay, not in your input. {way_out}")
        _end(BUG, "bug", f"{type(error).__name__}: {error}", way_out=way_out)
    else:
        if code == INTERRUPTED:
            _end_interrupted()
        sys.stdout.flush()
        sys.exit(code or 0)


def _refuse(error: OutlayError) -> NoReturn:
    """Wrong input: one message on stderr, or one document on stdout."""
    if not _as_json():
        warn(f"error: {error}")
    _end(WRONG, "input", error.found, file=error.file, where=error.where, way_out=error.way_out)


def _end_interrupted() -> NoReturn:
    words = "interrupted; nothing half-written was left as finished."
    warn(words)
    _end(INTERRUPTED, "interrupted", words)


def _end(
    code: int, kind: str, what: str, *, file: str | None = None, where: str | None = None, way_out: str | None = None
) -> NoReturn:
    """End with that code; with `--json`, say so in the one document on stdout."""
    if _as_json():
        error = {"kind": kind, "what": what, "file": file, "where": where, "way_out": way_out}
        print_json({"error": error, "exit_code": code})
    sys.exit(code)


def _as_json() -> bool:
    """Whether the command line has `--json`; it is read here since the error may be one of its options."""
    given = sys.argv[1:]
    return "--json" in (given[: given.index("--")] if "--" in given else given)
