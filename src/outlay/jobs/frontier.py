"""`outlay frontier`: what every budget buys, from one training.

    found = frontier("run")                              # the curve
    found = frontier("run", budgets=[1.5, 2.0])          # and the mixtures for these
    found = frontier("run", budgets=[1.5], export="bundles/1.5")      # the bundle of one, certified

The budget that moves is the money budget; the others keep the limits of the campaign file. Everything comes from what
the training measured on *select* users; only an export looks at the *certify* users, and is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.write import BundleSpec, MemberSpec, write_bundle
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError, InfeasibleError, OutlayError
from outlay.core.files import check_replaceable, new_file, read_manifest, write_json
from outlay.core.network import NetworkArrays, read_network
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.frontier import Points, solve
from outlay.estimators.units import objective
from outlay.jobs.evaluate import Evaluation, evaluate_bundle
from outlay.jobs.looks import next_alpha
from outlay.jobs.run import Run
from outlay.ops.intervals import interval
from outlay.reports.frontier import render

CURVE = 101  # budgets of the curve
ROUNDING = 1e-9  # a smaller weight is none
HALVINGS = 50  # of the interval that holds the least budget

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """What one budget buys, as measured on *select* users.

    Attributes:
        budget: limit of the money budget, in its unit.
        value: the objective of the mixture; `low`, `high`: its interval.
        spend: `[m]` costs in their budgets' units; `spend_low`, `spend_high`: their intervals.
        marginal: what one more unit of the money budget buys of the objective: the dual.
        margin: by how much the limit was lowered when choosing.
        slack: whether more is allowed than the dearest useful policy spends.
        members: `[{multiplier [m], weight}]`.
    """

    budget: float
    value: float
    low: float
    high: float
    spend: list[float]
    spend_low: list[float]
    spend_high: list[float]
    marginal: float
    margin: float
    slack: bool
    members: list[dict[str, Any]]


@dataclass(frozen=True)
class Frontier:
    """The frontier of a run; `to_dict` is frontier.json.

    Attributes:
        campaign, unit, reward_label: for words.
        objective: `reward`, per decision, or `reward@30`, a total per user.
        money: the budget that moves.
        budgets: `[{name, limit, sign, per, words}]` as in the campaign file.
        least, most: spend of the cheapest mixture that keeps the other limits, margin included, and of the dearest
            useful one.
        confidence: of the intervals.
        users: select users that it rests on.
        curve: from the least to the most.
        asked: for the budgets asked for; else for the campaign's own.
        old: where the log's policy stands: `{value, low, high, spend}`.
        policies: `[{multiplier, value, spend}]` measured.
        check: whether costs fall as λ grows, in words.
        export: `{path, id, budget, verdict, look, certificate}` of the bundle that was written, or None.
    """

    campaign: str
    unit: str
    reward_label: str
    objective: str
    money: str
    budgets: list[dict[str, Any]]
    least: float
    most: float
    confidence: float
    users: int
    curve: list[Point]
    asked: list[Point]
    old: dict[str, Any]
    policies: list[dict[str, Any]]
    check: str
    export: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _Stored:
    """RUN/frontier, read."""

    network: NetworkArrays
    points: Points
    old: Points
    multiplier: Vector
    head_weights: Vector
    scale: Vector
    manifest: dict[str, Any]


def frontier(
    run: str | Path | Run,
    budgets: Sequence[float] = (),
    *,
    export: str | Path | None = None,
    confidence: float | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Frontier:
    """The budget curve of a run, and the mixture for any budget.

    Args:
        run: a RUN folder that `--method frontier` made.
        budgets: limits of the money budget, in its unit; default: the campaign's.
        export: a folder for the bundle of the one budget asked for, which is then certified: a look at *certify*.
        confidence: of intervals and certificate; default as in the campaign file.
        progress: called with the fraction done and what is being done.

    Raises:
        FolderError: if the run has no frontier, or it is damaged.
        InfeasibleError: if a budget lies below the curve.
        OutlayError: for wrong input.
    """
    report = progress or (lambda _fraction, _text: None)
    run = run if isinstance(run, Run) else Run.open(run)
    if confidence is not None and not 0.5 < confidence < 1:
        raise OutlayError(f"is {confidence:g}.", where="confidence",
                          way_out="Give a share above 0.5 and below 1: 0.95.")  # fmt: skip
    if export is not None:
        if len(budgets) > 1:
            raise OutlayError(f"{len(budgets)} budgets are given.", where="export",
                              way_out="Give the one budget that the bundle is for.")  # fmt: skip
        check_replaceable(Path(export), "bundle")
    campaign = run.campaign.with_train(confidence=confidence)
    if campaign.budgets[campaign.money].sign < 0:
        raise OutlayError("is a floor, so there is no curve of what more money buys.", file=campaign.path,
                          where=f"budget {campaign.budgets[campaign.money].name}",
                          way_out="Mark a ceiling with money = true, and train again.")  # fmt: skip
    for budget in budgets:
        if not (np.isfinite(budget) and budget >= 0):
            raise OutlayError(f"is {budget:g}.", where="budget", way_out="Give a limit of 0 or more.")
    stored, data = _read(run.folder / "frontier"), run.data()
    solver = _Solver(stored, campaign, data)
    least, most = solver.ends()
    wanted = list(budgets) or [campaign.budgets[campaign.money].limit]
    asked = [solver.point(budget) for budget in wanted]
    found = Frontier(
        campaign=campaign.meta.name,
        unit=campaign.meta.unit,
        reward_label=campaign.reward_label,
        objective=objective(campaign),
        money=campaign.budgets[campaign.money].name,
        budgets=[{"name": b.name, "limit": b.limit, "sign": b.sign, "per": b.per, "words": b.words}
                 for b in campaign.budgets],
        least=least,
        most=most,
        confidence=campaign.train.confidence,
        users=stored.points.users,
        curve=[solver.point(budget) for budget in np.linspace(least, most, CURVE)],
        asked=asked,
        old=_old(stored, campaign),
        policies=[
            {"multiplier": multiplier.tolist(), "value": float(shown[0]), "spend": shown[1:].tolist()}
            for multiplier, shown in zip(
                stored.multiplier, (stored.points.shown(unit, campaign)[0] for unit in np.eye(len(stored.points))),
                strict=True,
            )
        ],
        check=stored.manifest["check"],
    )  # fmt: skip
    if export is not None:
        report(0.3, "writing the bundle")
        found = replace(found, export=_exported(solver, wanted[0], Path(export), report))
    write_json(run.folder / "frontier.json", found.to_dict())
    with new_file(run.folder / "frontier.html") as temporary:
        temporary.write_text(render(found.to_dict()), encoding="utf-8")
    report(1.0, "done")
    return found


class _Solver:
    """Mixtures under any limit of the money budget."""

    def __init__(self, stored: _Stored, campaign: Campaign, data: Transitions) -> None:
        self.stored, self.campaign, self.data = stored, campaign, data
        self.certify_users = len(data.users_of(CERTIFY))
        self.confidence = 1 - next_alpha(data.folder, campaign.train.confidence)

    def under(self, budget: float) -> Campaign:
        """The campaign with this limit of the money budget."""
        money = self.campaign.budgets[self.campaign.money]
        changed = [b.model_copy(update={"at_most": float(budget)}) if b is money else b for b in self.campaign.budgets]
        return self.campaign.model_copy(update={"budgets": tuple(changed)})

    def solved(self, budget: float) -> tuple[Vector, Vector, Vector] | None:
        """`[L]` weights, `[m]` duals and `[m]` margin; None where no mixture keeps the limits."""
        solution, margin = solve(self.stored.points, self.under(budget), self.stored.scale, confidence=self.confidence,
                                 certify_users=self.certify_users)  # fmt: skip
        if not solution.feasible:
            return None
        weights = np.where(solution.weights > ROUNDING, solution.weights, 0)
        weights /= weights.sum()
        return weights, solution.duals, weights @ margin

    def weights(self, budget: float) -> tuple[Vector, Vector, Vector]:
        """As `solved`.

        Raises:
            InfeasibleError: if no mixture keeps the limits.
        """
        if (found := self.solved(budget)) is not None:
            return found
        money = self.campaign.budgets[self.campaign.money]
        least, _ = self.ends()
        others = "" if len(self.campaign.budgets) == 1 else " that keeps the other limits"
        raise InfeasibleError(
            f"lies below the curve: the cheapest mixture{others} needs {money.name} {least:.4g} per {money.per}, the "
            "margin for the certificate included.",
            file=self.stored.manifest["folder"], where=f"budget {budget:g}", way_out=f"Give {_up(least)} or more.",
        )  # fmt: skip

    def ends(self) -> tuple[float, float]:
        """The least limit that can be kept, and what is spent where money is no object, both with their margin."""
        points, place = self.stored.points, self.campaign.money
        far = 1e3 * float(np.abs(points.value[:, 1 + place]).max() + 1)  # a limit that never binds
        if (free := self.solved(far)) is None:
            raise InfeasibleError("no mixture keeps the other limits.", file=self.stored.manifest["folder"],
                                  way_out="Change them in the campaign file, and train again.")  # fmt: skip
        weights, _, margin = free
        most = float(points.shown(weights, self.under(far))[0][1 + place] + margin[place])
        low, high = 0.0, most
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.solved(middle) is None else (low, middle)
        return high, most

    def point(self, budget: float) -> Point:
        """What a budget buys."""
        weights, duals, margin = self.weights(budget)
        campaign, place = self.under(budget), self.campaign.money
        value, error = self.stored.points.shown(weights, campaign)
        low, high = interval(value, error, campaign.train.confidence)
        used = np.flatnonzero(weights > 0)
        return Point(
            budget=float(budget),
            value=float(value[0]), low=float(low[0]), high=float(high[0]),
            spend=value[1:].tolist(), spend_low=low[1:].tolist(), spend_high=high[1:].tolist(),
            marginal=float(duals[place]),
            margin=float(margin[place]),
            slack=bool(duals[place] <= 0 and value[1 + place] + margin[place] < budget - 1e-9),
            members=[{"multiplier": self.stored.multiplier[i].tolist(), "weight": float(weights[i])} for i in used],
        )  # fmt: skip

    def spec(self, budget: float) -> BundleSpec:
        """The bundle for a budget: the network with the heads of the members alone."""
        weights, _, _ = self.weights(budget)
        campaign, stored = self.under(budget), self.stored
        used = np.flatnonzero(weights > 0).tolist()
        network = stored.network.only(used)
        units = np.eye(len(stored.points))
        return BundleSpec(
            campaign=campaign,
            schema=self.data.schema,
            actions=self.data.actions,
            heads=tuple(stored.manifest["heads"]),
            members=tuple(
                MemberSpec(
                    network=network,
                    weight=float(weights[i]),
                    multiplier=stored.multiplier[i],
                    head_weights=stored.head_weights[i],
                    measurement=stored.points.shown(units[i], campaign)[0],
                    policy=place,
                )
                for place, i in enumerate(used)
            ),
            imitation_threshold=stored.manifest["imitation_threshold"],
            data_hash=stored.manifest["data_hash"],
            seed=int(stored.manifest["seed"]),
        )


def _up(value: float) -> str:
    """Rounded up in the fourth digit, so that what is advised is enough."""
    size = 10.0 ** (np.floor(np.log10(max(abs(value), 1e-12))) - 3)
    return f"{np.ceil(value / size - 1e-9) * size:.6g}"


def _read(folder: Path) -> _Stored:
    if not folder.is_dir():
        raise FolderError("this run has no frontier: it was trained for one budget.", file=folder.parent,
                          way_out="Train with --method frontier.")  # fmt: skip
    again = "Train again with --method frontier."
    manifest = read_manifest(folder, "frontier", unfinished=again)
    try:
        with np.load(folder / "points.npz") as file:
            part = {name: file[name] for name in file.files}
        users = int(manifest["users"])
        return _Stored(
            network=read_network(folder / "network.npz"),
            points=Points(part["value"], part["covariance"], users),
            old=Points(part["old"], part["old_covariance"], users),
            multiplier=part["multiplier"],
            head_weights=part["head_weights"],
            scale=part["scale"],
            manifest={**manifest, "folder": str(folder)},
        )
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise FolderError(f"is damaged ({error}).", file=folder, way_out=again) from None


def _old(stored: _Stored, campaign: Campaign) -> dict[str, Any]:
    value, error = stored.old.shown(np.ones(1), campaign)
    low, high = interval(value, error, campaign.train.confidence)
    return {"value": float(value[0]), "low": float(low[0]), "high": float(high[0]), "spend": value[1:].tolist()}


def _exported(solver: _Solver, budget: float, folder: Path, report: Callable[[float, str], None]) -> dict[str, Any]:
    identity = write_bundle(folder, solver.spec(budget))
    report(0.5, "certifying it")
    found: Evaluation = evaluate_bundle(
        solver.data, folder, solver.under(budget), lambda f, text: report(0.5 + 0.5 * f, text)
    )
    return {"path": str(folder), "id": identity, "budget": float(budget), "verdict": found.verdict, "look": found.look,
            "certificate": found.to_dict()["certificate"]}  # fmt: skip
