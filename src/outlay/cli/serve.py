"""The command that answers over HTTP: serve."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from outlay.cli.console import Quiet, stderr
from outlay.core.errors import OutlayError


def serve(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle's folder (RUN/bundle).")],
    ledger: Annotated[
        str, typer.Option(help="sqlite:///FILE on one machine, postgresql://… for several servers.")
    ] = "sqlite:///ledger.db",
    cap: Annotated[float | None, typer.Option(help="The most that may be spent in total, in money.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; another than loopback needs OUTLAY_TOKEN.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes that answer.")] = 1,
    config: Annotated[Path | None, typer.Option(help="A serve.toml: limits, fallback, random slice, plan.")] = None,
    quiet: Quiet = False,
) -> None:
    """Decisions over HTTP under a hard budget, with a ledger and a decision log.

    The token of the admin routes is read from the environment variable OUTLAY_TOKEN.

    Example: outlay serve run/bundle --cap 50000 --ledger sqlite:///coupons.db
    """
    try:
        from outlay.server.config import ServeConfig
        from outlay.server.launch import Settings
        from outlay.server.launch import serve as run
    except ModuleNotFoundError as error:
        raise OutlayError(
            f"the package {error.name} is not installed.", way_out="Install it: pip install 'outlay[serve]'."
        ) from None

    settings = ServeConfig() if config is None else ServeConfig.load(config)
    if cap is not None:
        settings = settings.with_cap(cap)

    def say(words: str) -> None:
        if not quiet:
            stderr.print(words, markup=False, highlight=False, soft_wrap=True)

    run(
        Settings(
            bundle=bundle,
            ledger=ledger,
            config=settings,
            host=host,
            port=port,
            workers=workers,
            token=os.environ.get("OUTLAY_TOKEN") or None,
        ),
        say,
    )
