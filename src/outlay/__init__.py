"""outlay: which incentive each user should get, so that a budget buys the most lasting activity.

    import outlay

    outlay.init("log.csv", "campaign.toml")          # what each column is; look at it, and change what is wrong
    outlay.check("campaign.toml")                    # is the log fit to learn from?
    run = outlay.train("campaign.toml", "run")
    outlay.evaluate(run)                             # the verdict: switch, test it first, or keep what you have
    outlay.frontier(run, [1.5, 2.0])                 # what other budgets would buy
    outlay.report(run)                               # run/report.html, for people

A table in memory (pandas, polars, pyarrow, DuckDB) may stand for "log.csv", with `campaign="campaign.toml"` beside it.
Results show themselves in a line, and in a notebook as a table; `result.to_pandas("estimates")` gives a data frame.
What is wrong with an input is an OutlayError: what was found, where, and the way out.

The functions are the files of `jobs/`; they are loaded when they are first asked for, so that `import outlay` is light
and only training loads JAX.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from outlay.core.version import __version__

if TYPE_CHECKING:
    from outlay.bundles.read import load_bundle
    from outlay.core.campaign import Campaign
    from outlay.core.cmdp import TabularCMDP
    from outlay.core.errors import OutlayError
    from outlay.jobs.analyze_experiment import analyze_experiment
    from outlay.jobs.assign_users import assign_users
    from outlay.jobs.check import check
    from outlay.jobs.compare import compare
    from outlay.jobs.evaluate import evaluate
    from outlay.jobs.frontier import frontier
    from outlay.jobs.index import index
    from outlay.jobs.init import init
    from outlay.jobs.plan_experiment import plan_experiment
    from outlay.jobs.plan_log import plan_log
    from outlay.jobs.prepare import prepare
    from outlay.jobs.report import report
    from outlay.jobs.score import score
    from outlay.jobs.simulate import simulate
    from outlay.jobs.train import train
    from outlay.jobs.train_seeds import train_seeds
    from outlay.learning.exact import solve
    from outlay.response.allocation import allocate

_HOMES = {
    "Campaign": "outlay.core.campaign",
    "OutlayError": "outlay.core.errors",
    "TabularCMDP": "outlay.core.cmdp",
    "allocate": "outlay.response.allocation",
    "analyze_experiment": "outlay.jobs.analyze_experiment",
    "assign_users": "outlay.jobs.assign_users",
    "check": "outlay.jobs.check",
    "compare": "outlay.jobs.compare",
    "evaluate": "outlay.jobs.evaluate",
    "frontier": "outlay.jobs.frontier",
    "index": "outlay.jobs.index",
    "init": "outlay.jobs.init",
    "load_bundle": "outlay.bundles.read",
    "plan_experiment": "outlay.jobs.plan_experiment",
    "plan_log": "outlay.jobs.plan_log",
    "prepare": "outlay.jobs.prepare",
    "report": "outlay.jobs.report",
    "score": "outlay.jobs.score",
    "simulate": "outlay.jobs.simulate",
    "solve": "outlay.learning.exact",
    "train": "outlay.jobs.train",
    "train_seeds": "outlay.jobs.train_seeds",
}

__all__ = [
    "Campaign",
    "OutlayError",
    "TabularCMDP",
    "__version__",
    "allocate",
    "analyze_experiment",
    "assign_users",
    "check",
    "compare",
    "evaluate",
    "frontier",
    "index",
    "init",
    "load_bundle",
    "plan_experiment",
    "plan_log",
    "prepare",
    "report",
    "score",
    "simulate",
    "solve",
    "train",
    "train_seeds",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'outlay' has no attribute {name!r}")
    from outlay.core.machine import optional

    with optional():
        value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
