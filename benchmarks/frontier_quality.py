"""The frontier against the exact optimum, on campaigns whose truth is known: how good one training is for every budget.

    python benchmarks/frontier_quality.py                         # both campaigns, 5 seeds, about 4 million rows each
    python benchmarks/frontier_quality.py --campaigns thirty-day --seeds 1 --small

Every method learns from the same log of each seed; all its policies are measured on the *select* users as `train` does.
For 21 budgets between the cheapest and the dearest constant coupon the mixture is solved on those measurements, without
the certificate's margin, and valued in the model that the log was drawn from:

    captured share    (value − best constant mixture) / (optimum − best constant mixture), all at its own true spend
    below             1 − value / optimum at its own true spend
    spend             true spend / limit − 1

The 1-day rule is the allocator of `myopic.py`, priced in every state, with true responses: what no method that
looks one day ahead can beat. The plug-in is the counted model without smoothing over amounts. aim-greedy is trained
again for each of three budgets, and judged with its margin, as it is served.

Results: Markdown on stdout, benchmarks/out/frontier_quality.json, and with --images the figure of docs/frontier.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import outlay
from charts import captured
from myopic import constant_points, one_day_points
from outlay.choosing.choose import Selection
from outlay.comparing.true_values import Truth
from outlay.core.campaign import Campaign
from outlay.core.cmdp import TabularCMDP
from outlay.core.progress import silent
from outlay.core.transitions import Transitions
from outlay.estimators.frontier import Points
from outlay.ops.mixture_lp import solve_mixture, value_at
from outlay.ops.tabular import constrained_optimum, measure
from outlay.training import every_budget as train_frontier
from outlay.training import log_game, two_stage
from results import keep

USERS: dict[Literal["thirty-day", "habit"], int] = {"thirty-day": 133_334, "habit": 600_000}  # about 4 million rows
BUDGETS = 21
AIM_BUDGETS = (5, 10, 15)  # which of them aim-greedy is trained for
LARGE = 5.0  # yuan: the second budget of `two_budgets` limits how often so much is given

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """One method on one log.

    Attributes:
        method, campaign, seed: which.
        seconds: of learning, measuring and choosing; of all trainings together for aim-greedy.
        parameters: stored.
        budgets, share, below, spend: `[B]`; NaN where no mixture keeps the budget.
    """

    method: str
    campaign: str
    seed: int
    seconds: float
    parameters: int
    budgets: list[float]
    share: list[float]
    below: list[float]
    spend: list[float]


class Exact:
    """What is true of a campaign with one budget."""

    def __init__(self, truth: Truth) -> None:
        self.truth, self.model = truth, truth.model
        self.constants = constant_points(self.model)
        self.one_day = one_day_points(self.model).measurements
        low, high = self.constants[:, 1].min(), self.constants[:, 1].max()
        self.budgets = np.linspace(low, high, BUDGETS + 2)[1:-1]

    def judged(self, x: Vector, budget: float) -> tuple[float, float, float]:
        """Captured share, below the optimum, spend against the budget, of a true `[2]`."""
        best = constrained_optimum(self.model, [x[1]]).value
        constant = value_at(self.constants, float(x[1]))
        return (x[0] - constant) / (best - constant), 1 - x[0] / best, x[1] / budget - 1


def result(method: str, name: str, seed: int, began: float, parameters: int, judged: list[Any]) -> Result:
    """From `(budget, share, below, spend)` of every budget."""
    columns = [[float(value) for value in column] for column in zip(*judged, strict=True)]
    return Result(method, name, seed, time.perf_counter() - began, parameters, *columns)


def of_policies(exact: Exact, chosen: Selection, data: Transitions) -> list[Any]:
    """Every budget's mixture, chosen by what was measured."""
    kept = [(i, k) for i, k in enumerate(chosen.measured) if k.withheld is None and k.policy.number is not None]
    truth, bundle = exact.truth, chosen.measure.served
    actions = [bundle.member_actions(i, truth.codes, truth.numbers) for i, _ in kept]
    true = np.array([measure(exact.model, policy) for policy in actions])
    points = Points.of([k.fitted for _, k in kept], data.campaign)
    judged = []
    for budget in exact.budgets:
        found = solve_mixture(points.value[:, :2], np.array([budget]), np.array([budget]))
        outcome = exact.judged(found.weights @ true, budget) if found.feasible else (np.nan,) * 3
        judged.append((budget, *outcome))
    return judged


def methods(
    data: Transitions, exact: Exact, seed: int, folder: Path, oracles: list[str]
) -> Iterator[tuple[str, Callable[[], tuple[list[Any], int]]]]:
    """Name and what to run; it gives what was judged, and how many parameters are stored."""

    def quiet(_share: float, _text: str) -> None:
        pass

    def frontier(oracle: str, degree: int | None = None) -> tuple[list[Any], int]:
        # All methods learn from the same users: no folds.
        campaign = data.campaign.with_train(action_degree=degree, folds=1)
        learned = train_frontier.learn(data, campaign, oracle, seed, folder, False, quiet)
        return of_policies(exact, learned.chosen, data), learned.figures.parameters

    yield "frontier, counted", lambda: frontier("tabular")
    yield "plug-in (counted, not smoothed)", lambda: frontier("tabular", 0)
    for oracle in oracles:
        yield f"frontier, {oracle}", lambda oracle=oracle: frontier(oracle)  # type: ignore[misc]

    def classic(days: int) -> tuple[list[Any], int]:
        learned = two_stage.learn(data, data.campaign, "deepfm", days, seed, folder, quiet)
        return of_policies(exact, learned.chosen, data), learned.figures.parameters

    for days in (1, 3, 7):
        yield f"DeepFM, {days}-day label", lambda days=days: classic(days)  # type: ignore[misc]

    def aim() -> tuple[list[Any], int]:
        judged, parameters = [], 0
        for budget in exact.budgets[list(AIM_BUDGETS)]:
            limits = (data.campaign.budgets[0].model_copy(update={"at_most": float(budget)}),)
            campaign = data.campaign.model_copy(update={"budgets": limits})
            learned = log_game.learn(data, campaign, "aim-greedy", "bcq", seed, folder, False, quiet)
            bundle, weights = learned.chosen.measure.served, learned.chosen.weights
            place = [learned.chosen.measured.index(kept) for kept in learned.chosen.members]
            actions = [bundle.member_actions(i, exact.truth.codes, exact.truth.numbers) for i in place]
            x = weights @ np.array([measure(exact.model, policy) for policy in actions])
            judged.append((budget, *exact.judged(x, budget)))
            parameters += sum(kept.policy.network.num_parameters for kept in learned.chosen.members)
        return judged, parameters

    yield "aim-greedy, bcq (3 budgets)", aim


def one_log(name: Literal["thirty-day", "habit"], users: int, seed: int, oracles: list[str]) -> Iterator[Result]:
    """Every method on the log of one seed."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path = outlay.simulate(name, folder / "log", users=users, seed=seed)
        outlay.prepare(path, folder / "data")
        data = Transitions.open(folder / "data")
        truth = Truth.beside(Campaign.load(path), data)
        assert truth is not None
        exact = Exact(truth)
        began = time.perf_counter()
        rule = []
        for budget in exact.budgets:
            at = max(budget, float(exact.one_day[:, 1].min()))
            rule.append((budget, *exact.judged(np.array([value_at(exact.one_day, at), at]), budget)))
        yield result("1-day rule, true responses", name, seed, began, 0, rule)
        for method, run in methods(data, exact, seed, folder, oracles):
            began = time.perf_counter()
            judged, parameters = run()
            yield result(method, name, seed, began, parameters, judged)
        if name == "habit":
            yield from two_budgets(path, folder, seed, oracles)


def two_budgets(path: Path, folder: Path, seed: int, oracles: list[str]) -> Iterator[Result]:
    """Coupon cost and the share of large coupons: against the exact program, at the limits and at the spend."""
    second = f"""
[[budget]]
name = "large_coupons"
cost = "case when coupon >= {LARGE} then 1.0 else 0.0 end"
at_most = 0.15
per = "decision"
"""
    both = path.with_name("two.toml")
    both.write_text(path.read_text().replace("at_most = 2.2 ", "at_most = 2.4 ") + second)
    outlay.prepare(both, folder / "two")
    data = Transitions.open(folder / "two")
    with np.load(path.with_name("truth.npz")) as file:
        arrays = {part: file[part] for part in ("transition", "reward", "cost", "start", "actions")}
    large = np.broadcast_to((arrays.pop("actions") >= LARGE)[None, :, None], arrays["cost"].shape)
    arrays["cost"] = np.concatenate([arrays["cost"], large], axis=2)
    model = TabularCMDP(**arrays, discount=data.campaign.meta.discount)
    limits = np.array([budget.limit for budget in data.campaign.budgets])
    states = outlay_states(path, data)
    campaign = data.campaign.with_train(folds=1)
    for oracle in ("tabular", *oracles):
        began = time.perf_counter()
        learned = train_frontier.learn(data, campaign, oracle, seed, folder, False, silent)
        kept = [(i, k) for i, k in enumerate(learned.chosen.measured) if k.withheld is None]
        true = np.array([measure(model, learned.chosen.measure.served.member_actions(i, *states)) for i, _ in kept])
        points = Points.of([k.fitted for _, k in kept], data.campaign)
        found = solve_mixture(points.value[:, :3], limits, limits)
        x = found.weights @ true
        below = 1 - x[0] / constrained_optimum(model, x[1:]).value
        judged = [(limits[j], np.nan, below, x[1 + j] / limits[j] - 1) for j in range(2)]
        name = "counted" if oracle == "tabular" else oracle
        yield result(f"frontier, {name}", "habit, two budgets", seed, began, learned.figures.parameters, judged)


def outlay_states(path: Path, data: Transitions) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The true model's states, encoded as the log was."""
    import pyarrow.parquet as pq

    encoded = data.schema.encode(pq.read_table(path.with_name("states.parquet")))
    return encoded.codes, encoded.numbers


def table(results: list[Result], campaign: str) -> str:
    """Medians over seeds and budgets, with the worst, a line a method."""
    lines = [
        "| method | captured share, median (least) | below optimum, median (worst) | spend against limit, median of "
        "sizes (worst) | seconds | parameters |",
        "|---|---|---|---|---|---|",
    ]
    for method in dict.fromkeys(r.method for r in results if r.campaign == campaign):
        rows = [r for r in results if (r.campaign, r.method) == (campaign, method)]
        share, below, spend = (np.array([getattr(r, what) for r in rows]) for what in ("share", "below", "spend"))
        seconds, parameters = np.median([r.seconds for r in rows]), int(np.median([r.parameters for r in rows]))
        known = bool(np.isfinite(share).any())
        lines.append(
            f"| {method} | {f'{np.nanmedian(share):.2f} ({np.nanmin(share):.2f})' if known else '–'} "
            f"| {100 * np.nanmedian(below):.2f} % ({100 * np.nanmax(below):.2f}%) "
            f"| {100 * np.nanmedian(np.abs(spend)):.2f} % ({100 * spend.flat[np.nanargmax(np.abs(spend))]:+.2f}%) "
            f"| {seconds:.0f} | {parameters:,} |"
        )
    return "\n".join(lines)


def by_budget(results: list[Result], campaign: str) -> str:
    """Captured share by budget, median over seeds: a column for every fifth budget."""
    places = range(0, BUDGETS, 4)
    budgets = next(r.budgets for r in results if r.campaign == campaign)
    lines = ["| captured share at a budget of | " + " | ".join(f"{budgets[i]:.2f}" for i in places) + " |"]
    lines.append("|---|" + "---|" * len(places))
    for method in dict.fromkeys(r.method for r in results if r.campaign == campaign):
        rows = np.array([r.share for r in results if (r.campaign, r.method) == (campaign, method)])
        if rows.shape[1] == BUDGETS:
            cells = [f"{np.nanmedian(rows[:, i]):.2f}" for i in places]
            if len(rows) > 1:
                cells = [f"{cell} ±{np.nanstd(rows[:, i], ddof=1):.2f}" for cell, i in zip(cells, places, strict=True)]
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--campaigns", nargs="+", default=list(USERS), choices=list(USERS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--oracles", nargs="*", default=["bcq"], choices=["ddqn", "edrr", "bcq"])
    parser.add_argument("--images", type=Path, help="a folder for the figure")
    parser.add_argument("--small", action="store_true", help="a tenth of the users: a quick look")
    options = parser.parse_args()
    results: list[Result] = []
    for name in options.campaigns:
        for seed in range(options.seeds):
            users = USERS[name] // (10 if options.small else 1)
            for found in one_log(name, users, seed, options.oracles):
                results.append(found)
                print(
                    f"{name}, seed {seed}: {found.method}, share {np.nanmedian(found.share):.3f}, "
                    f"{found.seconds:.0f} s",
                    file=sys.stderr,
                )
    print(f"{os.cpu_count()} cores, {platform.machine()}; {options.seeds} seeds\n")
    for campaign in dict.fromkeys(r.campaign for r in results):
        print(f"\n**{campaign}**\n\n{table(results, campaign)}\n")
        if "," not in campaign:
            print(by_budget(results, campaign))
    keep("frontier_quality", results=[asdict(r) for r in results])
    if options.images is not None:
        draw(results, options.images)


def draw(results: list[Result], folder: Path) -> None:
    """The figure of the campaign where looking ahead pays."""
    rows = [
        {"method": r.method, "budget": budget, "share": share}
        for r in results
        if r.campaign == "thirty-day"
        for budget, share in zip(r.budgets, r.share, strict=True)
    ]
    title = "thirty-day: one training for every budget, and methods trained for one or for k-day labels"
    (folder / "frontier-thirty-day.svg").write_text(captured(rows, title), encoding="utf-8")


if __name__ == "__main__":
    main()
