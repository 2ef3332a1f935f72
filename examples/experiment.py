"""An A/B test from its plan to its verdict, on people whose truth is known: plan → serve → export-log → analyze, into
runs/experiment/.

Three ways to spend the same money on the habit campaign, about 1.5 yuan a user and day:

    old     predicts the next day's activity, then prices it (two-stage, 1-day labels)
    new     looks ahead (one training for every budget)
    flat    2 yuan to everyone
    even    drawn evenly from all coupons, so that the log stays explorable

A week is rehearsed in a minute behind a real `outlay serve`: users ask once a day, act as the simulator's people do,
and what they did is told to the server. Then the test is analysed as any other, and the truth stands beside it.

In this campaign coupons act through today's activity alone. So a 1-day rule is all but optimal, and the true lift of
`new` over `old` is near 0 (about 3% less is spent, and 0.4% less won): an honest test finds nothing there. What
`flat` loses, 3% of the active days for the same money, it can find.

Every arm has the same budget per user, and more than it can spend. So nobody is ever refused, and the truth is exact:
the sum over the ramp's days of what the model says of the arms' policies, as they were served.
"""

from __future__ import annotations

import argparse
import datetime
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

import outlay
from outlay.core.cmdp import TabularCMDP
from outlay.experiments.design import Arm, Experiment
from outlay.experiments.results import Analysis
from outlay.jobs.analyze_experiment import analyze_experiment
from outlay.ops.tabular import totals
from outlay.simulators import habit
from outlay.simulators.simulator import Simulator

FOLDER = Path("runs/experiment")
OUTLAY = Path(sys.executable).with_name("outlay")
LIMIT = 1.6  # yuan per decision: in the test, old then costs what 2 yuan for everyone cost
MONEY_PER_USER = 25.0  # yuan per user and week: no arm may ever be short
BATCH = 500  # decisions in a request
CHOSEN = {"policy", "random", "constant"}  # reasons of what an arm decided

TRAIN = f"""
outlay train {FOLDER}/campaign/campaign.toml --out {FOLDER}/old --method two-stage
outlay train {FOLDER}/campaign/campaign.toml --out {FOLDER}/new
"""
PLAN = f"""
outlay experiment plan {FOLDER}/campaign/campaign.toml --out {FOLDER}/experiment.toml --name rehearsal
 --start {{start}} --days 7 --ramp 0:0.2,2:1 --users {{users}}
 --arm old,bundle={FOLDER}/old/bundle,share=0.3,budget={{budget}}
 --arm new,bundle={FOLDER}/new/bundle,share=0.3,budget={{budget}}
 --arm flat,action=2,share=0.3,budget={{budget}} --arm even,random,share=0.1,budget={{even}}
"""
SERVE = f"""
outlay serve {FOLDER}/old/bundle --experiment {FOLDER}/experiment.toml --rehearse {{seconds}}
 --ledger sqlite:///{FOLDER}/ledger.db --cap {{cap}} --port 0
"""
LOOK = """
outlay export-log sqlite:///{folder}/ledger.db --out {folder}/closed --all-days
outlay experiment analyze {folder}/closed --experiment {folder}/experiment.toml --report {folder}/test.html
"""

Policy = NDArray[np.float64]  # [S, A] probabilities
Mixed = Sequence[tuple[float, Policy]]  # with the share of users who keep each


class People:
    """Users of a simulated campaign, who ask once a day.

    Attributes:
        arms: `[n]` where each was on the last day.
    """

    def __init__(self, count: int, seed: int, made: Simulator | None = None) -> None:
        self._rng = np.random.default_rng(seed)
        self._made = made or habit.simulator()
        self._model = self._made.model
        self._state = self._model.newcomers(self._rng, count)
        self.arms = np.full(count, "", object)

    def live(self, http: httpx.Client, day: int) -> float:
        """All of them ask, act, and tell; the share that was active.

        Raises:
            RuntimeError: if the server refused somebody, so that the truth would be another.
        """
        active = 0
        for some in np.array_split(np.arange(len(self.arms)), -(-len(self.arms) // BATCH)):
            answers = _post(http, "decisions", requests=[self._question(user, day) for user in some.tolist()])
            self.arms[some] = [answer["arm"] for answer in answers]
            if refused := {answer["reason"] for answer in answers} - CHOSEN:
                raise RuntimeError(f"the server refused somebody: {refused}")
            action = np.array([answer["action_index"] for answer in answers])
            came, self._state[some] = self._model.day(self._rng, self._state[some], action)
            told = [
                {"decision_id": answer["decision_id"], "kind": kind, "event_id": "1"}
                for answer, did in zip(answers, came, strict=True)
                for kind in ("active", "redeemed")
                if did
            ]
            for first in range(0, len(told), BATCH):
                _post(http, "outcomes", outcomes=told[first : first + BATCH])
            active += int(came.sum())
        return active / len(self.arms)

    def _question(self, user: int, day: int) -> dict[str, Any]:
        codes = self._made.codes[:, self._state[user]]
        features = {
            field.name: field.values[code].item() for field, code in zip(self._made.features, codes, strict=True)
        }
        return {"request_id": f"{day}-{user}", "user_id": f"fresh-{user}", "features": features}


def _post(http: httpx.Client, what: str, **body: list[dict[str, Any]]) -> list[Any]:
    while (answer := http.post(f"/v1/{what}", json=body)).status_code == 503:
        time.sleep(0.1)  # what the ledger could not answer in time may be asked again with the same ids
    answer.raise_for_status()
    found: list[Any] = answer.json()[what]
    return found


@contextmanager
def serving(command: Sequence[str | Path], said: Path) -> Iterator[httpx.Client]:
    """A server; what it says goes to a file."""
    with said.open("wb") as file:
        server = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        while " on http://" not in said.read_text():
            if server.poll() is not None:
                sys.exit(said.read_text())
            time.sleep(0.05)
        url = said.read_text().split(" on ", 1)[1].split()[0]
        with httpx.Client(base_url=url, timeout=300, trust_env=False) as http:
            yield http
    finally:
        server.terminate()
        server.wait()


def until(http: httpx.Client, date: datetime.date) -> None:
    """Wait until it is that day by the server's clock.

    Raises:
        RuntimeError: if it is later.
    """
    while (today := _today(http)) < date:
        time.sleep(0.05)
    if today > date:
        raise RuntimeError(f"it is already {today}: a day was too short for its questions; give more seconds")


def _today(http: httpx.Client) -> datetime.date:
    return datetime.date.fromisoformat(http.get("/v2/health/ready").raise_for_status().json()["day"])


def rehearse(http: httpx.Client, people: People, start: datetime.date, days: int) -> Iterator[str]:
    """Live the days of a test: after each, what happened, in words.

    Raises:
        RuntimeError: if a day was too short.
    """
    for day in range(days):
        date = start + datetime.timedelta(days=day)
        until(http, date)
        began = time.monotonic()
        active = people.live(http, day)
        until(http, date)  # all of it fell on this day
        arms = ", ".join(f"{name} {count:,}" for name, count in sorted(Counter(people.arms).items()))
        yield f"{date}: {active:.1%} active; {arms}; in {time.monotonic() - began:.1f} s"


def truths(experiment: Experiment, outside: Path, states: Path, days: int) -> dict[str, NDArray[np.float64]]:
    """What the users of each arm bring and cost in expectation, from the day on which the ramp lets them in.

    A user keeps a member of a bundle: where an arm has the bundle that decides outside, it is the same member before
    and after. The draws of two bundles are independent.

    Args:
        experiment: its arms and ramp.
        outside: the bundle that decides until the ramp lets a user in.
        states: states.parquet of the campaign.
        days: of the test that count.

    Returns:
        `[2]` active days and yuan per user, by arm.
    """
    ramp = [step for step in experiment.ramp if step.day < days]
    came = np.diff([step.coverage for step in ramp], prepend=0.0) / ramp[-1].coverage
    before, found = members(outside, states), {}
    for arm in experiment.arms:
        inside = _policies(arm, experiment.path or Path(), states)
        same = arm.bundle_id == outlay.load_bundle(outside).id
        found[arm.name] = np.zeros(2)
        for share, step in zip(came, ramp, strict=True):
            for weight, policy in inside:
                for part, first in [(1.0, policy)] if same else before:
                    model = _later(first, step.day)
                    found[arm.name] += share * weight * part * totals(model, policy, days - step.day)[-1]
    return found


def members(bundle: Path, states: Path) -> Mixed:
    """What a bundle's members do in each of the model's states, and the shares of users who keep them."""
    found = outlay.load_bundle(bundle)
    encoded = found.schema.encode(pq.read_table(states))
    actions = [found.member_actions(i, encoded.codes, encoded.numbers) for i in range(len(found.members))]
    return [(float(weight), one_hot(chosen)) for weight, chosen in zip(found.weights, actions, strict=True)]


def one_hot(actions: NDArray[np.int64]) -> Policy:
    """A rule without chance."""
    return np.eye(len(habit.COUPONS))[actions]


def _policies(arm: Arm, file: Path, states: Path) -> Mixed:
    shape = habit.model().active_prob.shape
    if arm.bundle is not None:
        return members(file.parent / arm.bundle, states)
    if arm.action is not None:
        return [(1.0, one_hot(np.full(shape[0], np.searchsorted(habit.COUPONS, arm.action))))]
    return [(1.0, np.full(shape, 1 / shape[1]))]


def _later(policy: Policy, days: int) -> TabularCMDP:
    """The campaign, with the people as they are after some days of a policy."""
    model = habit.model().cmdp()
    start = model.start @ np.linalg.matrix_power(np.einsum("sa,sat->st", policy, model.transition), days)
    return replace(model, start=start)


def beside(analysis: Analysis, control: str, truth: dict[str, NDArray[np.float64]]) -> Iterator[str]:
    """The lifts that were found and the true ones, a line each."""
    yield f"{'':26}{'found':>10}{'95% at one look':>24}{'truth':>10}"
    for comparison in analysis.comparisons:
        for place, metric in enumerate(("active", "cost")):
            lift = comparison.lift(metric)
            if lift is None or lift.relative is None:
                continue
            true = truth[comparison.arm][place] / truth[control][place] - 1
            low, value, high = lift.relative.low, lift.relative.value, lift.relative.high
            yield (
                f"{f'{comparison.arm} against {control}, {metric}':26}{value:>10.2%}{f'{low:.2%} to {high:.2%}':>24}"
                f"{true:>10.2%}  {'inside' if low <= true <= high else 'OUTSIDE'}"
            )


def command(line: str) -> list[str | Path]:
    """A command in words that can be copied, printed, as a list."""
    words = " ".join(line.split())
    print(f"\n$ {words}", flush=True)
    return [OUTLAY, *shlex.split(words)[1:]]


def run(lines: str) -> None:
    """Run commands one after another; stop at the first that fails."""
    for line in lines.strip().replace("\n ", " ").splitlines():
        result = subprocess.run(command(line), check=False)
        if result.returncode:
            sys.exit(result.returncode)


def main() -> None:
    """Plan, rehearse, analyse, and compare with the truth."""
    parser = argparse.ArgumentParser(description="An A/B test whose truth is known, from its plan to its verdict.")
    parser.add_argument("--users", type=int, default=20_000, help="in the test")
    parser.add_argument("--seconds", type=float, default=8.0, help="that a day lasts")
    parser.add_argument("--seed", type=int, default=0, help="of what the users do")
    asked = parser.parse_args()
    began = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    run(f"outlay simulate habit --out {FOLDER}/campaign --users 20000")
    campaign = FOLDER / "campaign" / "campaign.toml"
    campaign.write_text(campaign.read_text().replace("at_most = 2.2", f"at_most = {LIMIT}"))
    run(TRAIN)
    start = datetime.datetime.now(datetime.UTC).date()  # the rehearsal begins on the day before
    budget, even = round(MONEY_PER_USER * 0.3 * asked.users), round(MONEY_PER_USER * 0.1 * asked.users)
    run(PLAN.format(start=start, users=asked.users, budget=budget, even=even))
    experiment = Experiment.load(FOLDER / "experiment.toml")
    people = People(asked.users, asked.seed)
    serve = command(SERVE.format(seconds=asked.seconds, cap=round(MONEY_PER_USER * 2 * asked.users)))
    with serving(serve, FOLDER / "serve.txt") as http:
        for line in rehearse(http, people, start, experiment.meta.days):
            print(line, flush=True)
    run(LOOK.format(folder=FOLDER))
    analysis = analyze_experiment(FOLDER / "closed", experiment)
    states = FOLDER / "campaign" / "states.parquet"
    truth = truths(experiment, FOLDER / "old" / "bundle", states, experiment.meta.days)
    print("\nThe truth beside it, from the model and the policies as they were served; of 20 intervals 19 hold it:\n")
    print("\n".join(beside(analysis, experiment.control.name, truth)))
    print(f"\nDone in {time.monotonic() - began:.0f} s. Open {FOLDER}/test.html in a browser.")


if __name__ == "__main__":
    main()
