"""Does the spend follow the plan? Four weeks of a campaign, by a virtual clock, with and without pacing.

    python benchmarks/pacing.py            # --users-a-day --minutes --seed

The thirty-day campaign with coupons that 70% of the active redeem, as its log says, and the bundle learns. Then
it is served for 28 days: 91% redeem (30% above forecast), and traffic is as expected, or up to half more or less.

    steady                  as expected                 weekly      a wave between half and half more
    growing, shrinking      from half to half more      random      every day anew, between half and half more
    busy                    half more all the time      quiet       half less all the time

The busiest hour of a day has 40 times the traffic of the quietest. Requests go through the server's own desk: pacing,
draw, ledger in a file, expiry after 24 hours; only HTTP is left out. The budget is what the bundle is measured to spend
on the decisions that were expected, and the total cap is hard for both. Episodes last a week.

Only a third of what is granted is redeemed here, so a day holds twice what it spends beyond that, and the last days of
the plan must taper off for all money to be spent; days off the plan are told of the first three weeks.

Results: Markdown on stdout, benchmarks/out/pacing.json.
"""

from __future__ import annotations

import argparse
import datetime
import heapq
import json
import logging
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import outlay
from outlay.serve.clock import EPOCH, Clock
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.decider import EncodedRequest
from outlay.serve.deciding.loaded_bundle import prepare_bundle
from outlay.serve.handlers.decisions import PendingRequest
from outlay.serve.handlers.messages import DecisionAnswer, DecisionRequest, Feature
from outlay.serve.handlers.metrics import Metrics
from outlay.serve.handlers.service import Service
from outlay.serve.handlers.state import ServingState
from outlay.serve.ledger.records import Outcome
from outlay.serve.ledger.sqlite import SqliteLedger
from outlay.serve.pacing.mixing import PolicyPool
from outlay.serve.shared_settings import agree_settings
from outlay.simulators import thirty_day
from results import head, keep

DAYS, EPISODE = 28, 7
START = datetime.date(2026, 3, 2)
DAY = 86_400_000
LOGGED, REAL = 0.7, 0.91  # redemptions of an active user

Shape = NDArray[np.float64]  # [28] traffic over what was expected


@dataclass
class Result:
    """How a campaign ended.

    Attributes:
        shape: of the traffic.
        paced: or only capped.
        spend: settled in the end, over the budget.
        highest: reserved and settled, at the most, over the budget.
        active_days: of all users who came.
        requests: decisions.
        none: share that the total cap refused.
        off_plan: mean of |settled − planned| / planned over the days of the first three weeks.
        price: lowest and highest in these 28 days.
        seconds: of the machine.
    """

    shape: str
    paced: bool
    spend: float
    highest: float
    active_days: int
    requests: int
    none: float
    off_plan: float
    price: tuple[float, float]
    seconds: float


def shapes(seed: int) -> dict[str, Shape]:
    """Traffic of each day over what was expected."""
    day = np.arange(DAYS)
    return {
        "steady": np.ones(DAYS),
        "weekly": 1 + 0.5 * np.sin(2 * np.pi * day / 7),
        "growing": 0.5 + day / (DAYS - 1),
        "shrinking": 1.5 - day / (DAYS - 1),
        "random": np.random.default_rng(seed).uniform(0.5, 1.5, DAYS),
        "busy": np.full(DAYS, 1.5),
        "quiet": np.full(DAYS, 0.5),
    }


def train(folder: Path, seed: int) -> Path:
    """A bundle learned from a log in which 70% of the active redeem."""
    outlay.simulate("thirty-day", folder / "campaign", users=20_000, days=10, seed=seed)
    log = folder / "campaign" / "log.parquet"
    table = pq.read_table(log)
    redeems = np.random.default_rng(seed).random(len(table)) < LOGGED
    cost = table.column("cost").to_numpy() * redeems
    pq.write_table(table.set_column(table.schema.get_field_index("cost"), "cost", pa.array(cost)), log)
    file = folder / "campaign" / "campaign.toml"
    file.write_text(file.read_text().replace("at_most = 0.4", "at_most = 0.3"))
    outlay.train(file, folder / "run", seed=seed)
    return folder / "run" / "bundle"


class Crowd:
    """Users whose habits are the simulator's truth."""

    def __init__(self, count: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.model = thirty_day.model()
        self.state = self.model.newcomers(self.rng, count)
        self.kind, self.level = thirty_day.states()
        hours = 1.05 + np.sin(2 * np.pi * (np.arange(24) - 9) / 24)  # the evening is 20 times the night
        self.hours = hours / hours.sum()

    def arrivals(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Who comes on a day, and when (part of the day, ascending)."""
        who = self.rng.choice(len(self.state), min(count, len(self.state)), replace=False)
        hour = self.rng.choice(24, len(who), p=self.hours)
        return who, np.sort((hour + self.rng.random(len(who))) / 24)

    def day(self, users: NDArray[np.int64], action: NDArray[np.int64]) -> NDArray[np.int8]:
        """Whether they are active; their habits move on."""
        active, after = self.model.day(self.rng, self.state[users], action)
        self.state[users] = after
        return active


def play(bundle: Path, shape: str, traffic: Shape, paced: bool, a_day: int, minutes: int, seed: int) -> Result:
    """One campaign from its first day until its last reservation has expired."""
    begin = time.perf_counter()
    first = (START - EPOCH).days
    now = [first * DAY]
    clock = Clock("UTC", lambda: now[0] / 1000)
    settings: dict[str, object] = {"episode": {"days": EPISODE}}
    if paced:
        settings["plan"] = {"start": START, "days": DAYS, "correct_minutes": minutes}
    loaded = prepare_bundle(bundle, ServeConfig.parse(settings))
    policies = PolicyPool.of(loaded.decider.pool, 100)
    budget = round(policies.spend(policies.own, 1.0) * a_day * DAYS)
    config = ServeConfig.parse({**settings, "caps": {"total": budget / 100}})
    crowd, money, prices = Crowd(2 * a_day, seed), _Purse(seed), []
    active, requests, refused, highest = 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        ledger = SqliteLedger(Path(folder) / "ledger.db")
        agree_settings(ledger, loaded, config)
        service = Service(ServingState(loaded, config), ledger, clock, Metrics())
        for day in range(DAYS + 2):
            who, when = crowd.arrivals(round(a_day * traffic[day])) if day < DAYS else (np.empty(0, int), np.empty(0))
            for part in range(0, 1440, minutes):
                now[0] = (first + day) * DAY + part * 60_000
                ledger.outcomes(money.due(now[0]))
                service.maintain()
                here = who[(when >= part / 1440) & (when < (part + minutes) / 1440)]
                if len(here):
                    found = service.decisions.answer_group(_asked(service, crowd, here, day))
                    answers = [answer for answer in found if isinstance(answer, DecisionAnswer)]
                    is_active = crowd.day(here, np.array([answer.action_index for answer in answers], np.int64))
                    money.promise(answers, is_active, now[0])
                    active, requests = active + int(is_active.sum()), requests + len(here)
                    refused += sum(answer.reason == "total_cap" for answer in answers)
                if paced and day < DAYS:
                    prices.append(service.state.decider(loaded, service.state.episode(first + day), now[0]).price)
                total = ledger.totals(loaded.campaign).total if part % 360 == 0 else None
                highest = max(highest, total.reserved + total.settled if total else 0)
        ledger.outcomes(money.due(now[0] + DAY))
        ledger.release(loaded.campaign, now[0] + 2 * DAY)
        totals = ledger.totals(loaded.campaign)
        assert totals.total.reserved == 0
        assert not ledger.check()
        ledger.close()
    daily = np.array([totals.days[first + day].settled if first + day in totals.days else 0 for day in range(DAYS)])
    return Result(
        shape=shape,
        paced=paced,
        spend=totals.total.settled / budget,
        highest=highest / budget,
        active_days=active,
        requests=requests,
        none=refused / requests,
        off_plan=float(np.abs(daily / (budget / DAYS) - 1)[: 3 * EPISODE].mean()),
        price=(min(prices, default=1.0), max(prices, default=1.0)),
        seconds=time.perf_counter() - begin,
    )


class _Purse:
    """Coupons that will be redeemed: within 4 hours on average, all before they expire."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed + 1)
        self._due: list[tuple[int, str]] = []

    def promise(self, answers: list[DecisionAnswer], active: NDArray[np.int8], now: int) -> None:
        """What the active will redeem."""
        redeems = (active > 0) & (self._rng.random(len(answers)) < REAL)
        after = np.minimum(self._rng.exponential(4 / 24, len(answers)), 0.95) * DAY
        for answer, wait in zip(
            (answer for answer, redeem in zip(answers, redeems, strict=True) if redeem), after[redeems], strict=True
        ):
            if float(answer.action) > 0 and answer.decision_id is not None:
                heapq.heappush(self._due, (now + int(wait), answer.decision_id))

    def due(self, now: int) -> list[Outcome]:
        """What is redeemed by now."""
        found = []
        while self._due and self._due[0][0] <= now:
            ts, decision_id = heapq.heappop(self._due)
            found.append(Outcome(decision_id=decision_id, kind="redeemed", event_id="1", ts=ts, received=ts))
        return found


def _asked(service: Service, crowd: Crowd, users: NDArray[np.int64], day: int) -> list[PendingRequest]:
    loaded, found = service.state.loaded, []
    for user in users.tolist():
        state = crowd.state[user]
        features: dict[str, Feature] = {"type": thirty_day.TYPES[crowd.kind[state]], "level": int(crowd.level[state])}
        request = DecisionRequest(request_id=f"{day}-{user}", user_id=user, features=features)
        row = loaded.decider.encoder.encode(features)
        encoded = EncodedRequest(request.request_id, str(user), row)
        found.append(PendingRequest(request, encoded, loaded, json.dumps(features).encode()))
    return found


def main() -> None:
    """Play every shape twice, print, write."""
    parser = argparse.ArgumentParser(description="Pacing over four weeks, by a virtual clock.")
    parser.add_argument("--users-a-day", type=int, default=1_000)
    parser.add_argument("--minutes", type=int, default=30, help="between two corrections")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shapes", default="", help="some of them, with commas")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    wanted = {name: shape for name, shape in shapes(asked.seed).items() if name in (asked.shapes or name).split(",")}
    results = []
    with tempfile.TemporaryDirectory() as folder:
        bundle = train(Path(folder), asked.seed)
        for name, shape in wanted.items():
            for paced in (True, False):
                results.append(play(bundle, name, shape, paced, asked.users_a_day, asked.minutes, asked.seed))
    print(head("traffic", "pacing", "settled / budget", "active days", "refused by the cap", "off the plan", "price"))
    for one in results:
        print(
            f"| {one.shape} | {'yes' if one.paced else 'no'} | {one.spend:.1%} | {one.active_days:,} "
            f"of {one.requests:,} | {one.none:.1%} | {one.off_plan:.0%} | {one.price[0]:.2f} to {one.price[1]:.2f} |"
        )
    print(f"\nThe most ever held: {max(one.highest for one in results):.2%} of the budget.", end=" ")
    print(f"{sum(one.seconds for one in results):.0f} s.")
    keep("pacing", results=[asdict(one) for one in results])


if __name__ == "__main__":
    main()
