"""`outlay allocate`: one day's decisions for a fixed list of users under a hard total.

    result = allocate_users("runs/first", "today.parquet", 50_000, "decisions.parquet")

    max  Σ_i Σ_k α_k Q_k,r(s_i, a_i)     s.t.     Σ_i c(s_i, a_i) ≤ total

Q_k,r is the reward head of the run's members (the value in the long run, or the k-day total of a response model), α
their weights, c what an action is expected to cost that day, or what has to be set aside for it. All users are
decided together, so a decision depends on who else is on the list; `score` decides everyone alone.

Source: the paper's budget control (WSDM'23, section 6.2), by `response/allocation.py`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.bundles.read import load_bundle
from outlay.bundles.rows import eligible_actions, users_of
from outlay.choosing.reserve import usable_reserves
from outlay.choosing.run import Run
from outlay.core.actions import Given
from outlay.core.errors import InfeasibleError, LogError, OutlayError
from outlay.core.files import new_file
from outlay.core.progress import Progress, telling
from outlay.core.schema import Encoded
from outlay.core.wording import counted
from outlay.jobs.tables import checked_out, needed_batches, read_past, table_writer
from outlay.response.allocation import allocate

Cost = Literal["expected", "reserve"]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class AllocateResult:
    """What was decided.

    Attributes:
        path: the file of decisions.
        rows: users decided.
        total: the hard total, in units of money.
        cost: what the decisions add up to, never above it.
        value: what they are worth, in (1−γ)·J of the reward or, from a response model, its k-day total.
        bound: no decisions within the total are worth more.
        unknown: values that the vocabulary does not know.
        unseen: users in a state that the log never showed, where the run's policies are tables of states.
        shares: action → share of users who get it.
        others: the budgets beside that of money, with their limits, which the total says nothing of.
        forced: by what the log says that a row had no choice (`log.forced`); here every user is decided.
    """

    path: Path
    rows: int
    total: float
    cost: float
    value: float
    bound: float
    unknown: int
    unseen: int
    shares: dict[Given, float]
    others: tuple[str, ...] = ()
    forced: str | None = None

    @property
    def gap(self) -> float:
        """At most this share of the bound is lost."""
        return (self.bound - self.value) / abs(self.bound) if self.bound else 0.0

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        shares = [{"action": action, "share": share} for action, share in self.shares.items()]
        return {**asdict(self), "path": str(self.path), "shares": shares}


def allocate_users(
    run: str | Path | Run,
    users: str | Path,
    total: float,
    out: str | Path,
    *,
    cost: Cost = "expected",
    history: str | Path | None = None,
    progress: Progress | None = None,
) -> AllocateResult:
    """Decide for a list of users under a hard total of the money budget.

    Args:
        run: a RUN folder.
        users: Parquet or CSV (.gz) with the feature columns, one row a user.
        total: the most that may be spent, in units of money.
        out: .parquet or .csv with `row`, `user` (where known), `action`, `action_index`, `value`, `cost`.
        cost: `expected`, what an action costs that day on average, as the run's networks learned it; `reserve`, what
            has to be set aside for it (`reserve` of the budget, else the largest cost seen), so that even the worst
            day keeps the total.
        history: the users' past days, as for `score`.
        progress: called with the fraction done and what is being done.

    Raises:
        OutlayError: if the total is no number of 0 or more, or what an action costs is not known, to the run's networks
            or, with `reserve`, from the campaign file and the log.
        InfeasibleError: if even the cheapest decisions cost more than the total; it says how much.
        LogError: if there are no users, a user stands in the table more than once, or a column is missing.
    """
    report = telling(progress)
    if not total >= 0:
        raise OutlayError(f"is {total:g}.", where="total", way_out="Give an amount of money, 0 or more.")
    out = checked_out(out, users)
    run = run if isinstance(run, Run) else Run.open(run)
    bundle = load_bundle(run.bundle)
    reserved = usable_reserves(run.data(), run.campaign) if cost == "reserve" else None
    report(0.05, "values and costs")
    read = _read(bundle, users, run, reserved, history)
    report(0.6, "allocating")
    try:
        found = allocate(read.value, read.cost, total, read.allowed)
    except InfeasibleError as error:
        raise InfeasibleError(error.found, file=users, where="total", way_out=error.way_out) from None
    _write(out, bundle, read, found.action_index)
    shares = np.bincount(found.action_index, minlength=len(bundle.actions)) / len(found.action_index)
    return AllocateResult(
        path=out,
        rows=len(found.action_index),
        total=float(total),
        cost=float(found.cost),
        value=found.value,
        bound=found.bound,
        unknown=read.unknown,
        unseen=read.unseen,
        shares=dict(zip(map(bundle.names.given, bundle.actions.tolist()), shares.tolist(), strict=True)),
        others=tuple(f"{b.name} {b.words}" for j, b in enumerate(run.campaign.budgets) if j != run.campaign.money),
        forced=run.campaign.log.forced,
    )


class _Users(NamedTuple):
    """The users of a file: names (None where not known), value, cost and what is allowed `[N, K]`, and the counts."""

    names: Any
    value: Floats
    cost: NDArray[np.floating]
    allowed: NDArray[np.bool_] | None
    unknown: int
    unseen: int


def _write(out: Path, bundle: Bundle, users: _Users, action: NDArray[np.integer]) -> None:
    """Write the decisions, a row a user."""
    rows = np.arange(len(action))
    table = pa.table(
        {
            "row": rows,
            **({} if users.names is None else {"user": users.names}),
            **bundle.called(action),
            "action_index": action,
            "value": users.value[rows, action],
            "cost": users.cost[rows, action],
        }
    )
    with new_file(out) as temporary, table_writer(temporary, out.suffix) as write:
        write(table)


def _read(
    bundle: Bundle, users: str | Path, run: Run, reserved: NDArray[np.float64] | None, history: str | Path | None
) -> _Users:
    name = bundle.manifest.eligible
    names: list[Any] = []
    values: list[Floats] = []
    costs: list[Floats] = []
    allowed: list[NDArray[np.bool_]] = []
    largest = bundle.manifest.largest_costs
    free = np.zeros(len(bundle.actions), np.bool_) if largest is None else np.array(largest) <= 0  # in every row
    done = unknown = unseen = 0
    for batch in needed_batches(bundle, users, read_past(bundle, users, history)):
        encoded = bundle.schema.encode(batch, file=users)
        unknown += encoded.unknown
        unseen += int(bundle.unseen(encoded.codes, encoded.numbers).sum())
        if name is not None:
            allowed.append(eligible_actions(batch, name, bundle.actions, bundle.names, first_row=done, file=users))
        names.append(users_of(batch, bundle.manifest.user, first_row=done, file=users))
        values.append(_mean(bundle, run, "q", 0, encoded))
        if reserved is None:
            costs.append(np.maximum(_mean(bundle, run, "outcome", 1 + run.campaign.money, encoded), 0))
            costs[-1][:, free] = 0
        done += batch.num_rows
    if not done:
        raise LogError("has no rows.", file=users, way_out="Give a file with at least one user to decide for.")
    known = None if any(part is None for part in names) else pa.chunked_array(names)
    if known is not None:
        _check_once(known, users)
    every = np.concatenate(allowed) if allowed else None
    value = np.concatenate(values)
    # What is set aside is money, to the cent: float64, which float32 would not be.
    cost = np.concatenate(costs) if reserved is None else np.broadcast_to(reserved, value.shape)
    return _Users(known, value, cost, every, unknown, unseen)


def _check_once(names: Any, file: str | Path) -> None:
    """Raise LogError if a user stands in the table more than once: two incentives would be paid to one user."""
    code = names.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    first = np.unique(code, return_index=True)[1]
    if len(first) == len(code):
        return
    again = np.ones(len(code), np.bool_)
    again[first] = False
    row = int(again.argmax())
    raise LogError(
        f"user {names[row].as_py()!r} stands in the table more than once, first in row {first[code[row]] + 1}; "
        f"{counted(int(again.sum()), 'row', 'are')} repeated.",
        file=file,
        where=f"row {row + 1}",
        way_out="Keep one row per user, with what is known of the user today.",
    )


def _mean(bundle: Bundle, run: Run, output: str, head: int, encoded: Encoded) -> Floats:
    """`[N, K]` one head of an output, averaged over the members that have it, with their weights."""
    total, weight = np.zeros((len(encoded.codes), len(bundle.actions)), np.float32), 0.0
    for member, about in zip(bundle.members, run.manifest["members"], strict=True):
        # A constant action was not learned: it has no values of its own.
        if about["number"] is not None and output in member.shapes:
            (found,) = member.run([output], encoded.codes, encoded.numbers)
            total += np.float32(member.weight) * (member.own(found) if output == "q" else found)[:, :, head]
            weight += member.weight
    if weight == 0:
        raise OutlayError(
            "its networks do not know what an action costs on the day itself (ddqn learns long-run costs only)."
            if output == "outcome"
            else "it serves constant actions only, which have no values.",
            file=bundle.folder,
            way_out="Train with --oracle orthogonal, bcq or edrr, or --method two-stage; or take --cost reserve.",
        )
    return total / np.float32(weight)
