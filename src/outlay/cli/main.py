"""The `outlay` command."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

# One BLAS thread, unless the user says otherwise: our matrices are small, and on a busy machine two threads that spin
# for each other were ten times slower than one. It must be set before NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from outlay.cli import interrupts

interrupts.listen(quietly=True)  # before the libraries are loaded that swallow it

import typer

from outlay.cli import experiment, judge, learn, use
from outlay.cli.console import warn
from outlay.cli.serve import export_log, serve
from outlay.core.errors import OutlayError
from outlay.core.machine import in_words
from outlay.core.version import __version__

INTERRUPTED = 130  # as shells count Ctrl-C

app = typer.Typer(
    name="outlay",
    help="Which incentive each user should get, day by day, so that a budget buys the most lasting activity.",
    epilog="Start with: outlay init LOG, or outlay simulate habit --out campaign. "
    "Exit codes: 0 done, 2 wrong input or an infeasible limit, 1 a bug in outlay.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"outlay {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
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
    judge.compare,
    use.score,
    use.allocate,
    serve,
    export_log,
    use.simulate,
    use.doctor,
    use.mcp,
):
    app.command()(command)
app.add_typer(experiment.app, name="experiment")


def run() -> None:
    """Run the command line; every wrong input is one message and exit code 2."""
    try:
        _run()
    finally:
        interrupts.forget()


def _run() -> None:
    try:
        interrupts.stop_if_noted()
        app()  # ends in SystemExit; wrong options are told, with code 2, by Typer
    except OutlayError as error:
        warn(f"error: {error}")
        sys.exit(2)
    except (PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError) as error:
        warn(f"error: {error.filename}: {error.strerror}. Give another path.")
        sys.exit(2)
    except KeyboardInterrupt:
        _say_interrupted()
        sys.exit(INTERRUPTED)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            _say_interrupted()
        raise
    except Exception as error:
        # DuckDB has its own word for Ctrl-C, and a library that was being loaded makes an error of it.
        if interrupts.noted() or (isinstance(error, RuntimeError) and str(error) == "Query interrupted"):
            _say_interrupted()
            sys.exit(INTERRUPTED)
        if (told := in_words(error)) is not None:
            warn(f"error: {told}")
            sys.exit(2)
        traceback.print_exc()
        warn("This is a bug in outlay, not in your input. Please report it with the lines above.")
        sys.exit(1)


def _say_interrupted() -> None:
    warn("interrupted; nothing half-written was left as finished.")
