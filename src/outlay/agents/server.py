"""A server of the Model Context Protocol: the verbs of outlay as tools, with their typed results.

    outlay mcp                 # over standard input and output, as an agent's client starts it

A tool takes paths, as the command of the same name does, and gives what the command prints with `--json`, less what
only a page needs. What is wrong with an input comes back as the error that a person would read. A training reports how
far it is. The text beside it (`skill.md`) says how to get from a log to a verdict, and when to refuse.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import anyio.from_thread
import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from outlay.core.campaign import Campaign, Hold
from outlay.core.errors import OutlayError
from outlay.core.files import new_file
from outlay.core.progress import Progress
from outlay.core.version import __version__

Found = dict[str, Any]
JUDGED = ("grade", "verdict", "certificate", "policies", "window", "test", "settling", "randomising", "condition")
MOST_ROWS = 40  # of a table; an agent reads every one
TOLD = 0.01  # of a job, between two reports


def skill() -> str:
    """How to get from a log to a verdict, and when to refuse."""
    return resources.files("outlay.agents").joinpath("skill.md").read_text(encoding="utf-8")


def server() -> MCPServer:
    """The server with all of its tools."""
    served = MCPServer("outlay", instructions=skill(), version=__version__)
    for tool in (init, edit, check, plan_log, train, evaluate, frontier, report, score, simulate):
        served.tool(description=_told_of(tool))(tool)
    return served


async def init(log: str, out: str = "campaign.toml") -> Found:
    """Look at what a log's columns do, and write a campaign file that says what each is; it is checked too.

    Args:
        log: a file (CSV, Parquet, JSON lines, Excel, Arrow, SQLite), a glob, or an address.
        out: the campaign file to write; must not exist.
    """
    from outlay.jobs.init import guide

    found = await _run(guide, log, out)
    return {"written": out, "read": found.read, "columns": [asdict(each) for each in found.looked], "text": found.text}


async def edit(campaign: str, text: str) -> Found:
    """Replace the text of a campaign file; a text that is no campaign file is refused, and the old one stays.

    Args:
        campaign: path of a campaign file.
        text: the whole new text: the old one with what the person said of its columns and the budget.
    """
    found = await _run(_edited, Path(campaign), text)
    return {"written": campaign, "changed": found}


async def check(campaign: str) -> Found:
    """Data quality, how actions were assigned, overlap, effects, and whether the state says enough; writes nothing.

    Args:
        campaign: path of a campaign file.
    """
    from outlay.jobs.check import check as job

    found = await _run(job, campaign)
    return dict(found.to_dict())


async def plan_log(
    campaign: str, gain: float | None = None, users: int | None = None, days: int | None = None
) -> Found:
    """How large the next log must be to prove a gain, how much of it random, and what drawing costs meanwhile.

    Args:
        campaign: path of a campaign file with any past log of the customers.
        gain: a relative gain to find, as 0.02.
        users: of the next log; default: as many as this one has.
        days: of the next log; default: as many as this one has.
    """
    from outlay.jobs.plan_log import plan_log as job

    found = await _run(job, campaign, gain=gain, users=users, days=days)
    return dict(found.to_dict())


async def train(context: Context, campaign: str, out: str, hold: Hold | None = None, seed: int = 0) -> Found:
    """Learn a policy that keeps the budgets; writes the folder `out`. Takes minutes.

    Args:
        context: of the call.
        campaign: path of a campaign file.
        out: the RUN folder to write; must not exist.
        hold: "certified" keeps a margin below the budget as proof; "serving" spends it behind a server's cap.
        seed: of everything random.
    """
    from outlay.jobs.train import train as job

    run = await _run(job, campaign, out, hold=hold, seed=seed, context=context)
    manifest = run.manifest
    return {"run": out, "notes": manifest["notes"], "members": manifest["members"]}


async def evaluate(context: Context, run: str) -> Found:
    """Estimate what a run's policy brings and costs, certify it, and give the verdict. Each call is a counted look.

    Args:
        context: of the call.
        run: a RUN folder that `train` wrote.
    """
    from outlay.jobs.evaluate import evaluate as job

    found = await _run(job, run, context=context)
    told = {name: value for name, value in found.to_dict().items() if name in JUDGED}
    rows = [e for e in (*found.estimates, *found.beside) if e.estimator in ("fqe", "observed")]
    return told | {"estimates": [asdict(e) for e in rows][:MOST_ROWS]}


async def frontier(context: Context, run: str, budgets: list[float | str] | None = None) -> Found:
    """What every budget buys, from one training.

    Args:
        context: of the call.
        run: a RUN folder of the method `frontier`.
        budgets: limits of the money budget to answer, or "+20%" of the campaign's; default: those of the curve.
    """
    from outlay.jobs.frontier import frontier as job

    return asdict(await _run(job, run, budgets or (), context=context))


async def report(run: str) -> Found:
    """Write a run's page for people, RUN/report.html.

    Args:
        run: a RUN folder, evaluated.
    """
    from outlay.jobs.report import report as job

    return {"page": str(await _run(job, run))}


async def score(bundle: str, rows: str, out: str) -> Found:
    """Decide for many rows; writes a table of decisions.

    Args:
        bundle: RUN/bundle, or one that was exported.
        rows: Parquet or CSV with the feature columns.
        out: where to write: .parquet or .csv.
    """
    from outlay.jobs.score import score as job

    found = await _run(job, bundle, rows, out)
    return dict(found.to_dict())


async def simulate(
    campaign: Literal["habit", "wide", "thirty-day", "city"], out: str, users: int = 20_000, seed: int = 0
) -> Found:
    """Write a campaign whose truth is known, to try the other tools on.

    Args:
        campaign: which world.
        out: the folder to write.
        users: how many.
        seed: of everything random.
    """
    from outlay.jobs.simulate import simulate as job

    await _run(job, campaign, out, users=users, seed=seed)
    return {"campaign": str(Path(out) / "campaign.toml")}


def _edited(path: Path, text: str) -> list[str]:
    """Write it, if it is a campaign file; the lines that went (`-`) and came (`+`)."""
    old = Campaign.load(path).path.read_text(encoding="utf-8")
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
        Campaign.load(temporary)
    compared = difflib.unified_diff(old.splitlines(), text.splitlines(), lineterm="", n=0)
    return [line for line in compared if not line.startswith(("---", "+++", "@@"))]


def _told_of(tool: Callable[..., Any]) -> str:
    """What a client reads of a tool; the call's context is not its business."""
    return (inspect.getdoc(tool) or "").replace("    context: of the call.\n", "")


async def _run(job: Callable[..., Any], *given: Any, context: Context | None = None, **options: Any) -> Any:
    """Run a job in a thread; what is wrong with its input is the answer's error."""
    if context is not None:
        options["progress"] = _told(context)
    try:
        return await anyio.to_thread.run_sync(partial(job, *given, **options))
    except OutlayError as error:
        raise ToolError(str(error)) from None


def _told(context: Context) -> Progress:
    """Report to the client each time another hundredth is done; from threads of the job's own, nothing."""
    before = -1.0

    def tell(done: float, words: str) -> None:
        nonlocal before
        if done - before >= TOLD:
            before = done
            with suppress(RuntimeError):
                anyio.from_thread.run(context.report_progress, done, 1.0, words)

    return tell
