"""The paper's own A/B test, on people whose truth is known: prepare → train → plan → serve → analyze, into
runs/paper-ab/.

    din     the classic way: DIN predicts what each coupon brings that day from a user's past week, and the linear
            program prices it under the budget (two-stage)
    rl      the paper's method with its preset: BCQ in the game with λ, mixed by AIM-greedy

Both learn from one log of the *thirty-day* campaign, as long as the paper's (4.2 million rows), where what a coupon
brings later differs from what it brings today, and keep the same limit. DIN serves everybody; then a tenth of the users
of each arm are let into the test, three days later a third, and all of them from the second week on, as the paper did.
Four weeks are rehearsed in nine minutes behind a real `outlay serve`, as in `experiment.py`: new users ask once a day,
the server takes their past days from its ledger, and is told what they did. No arm can run out of money, so the true
totals are those of the two policies.

Source: the paper (WSDM'23), section 6, on online experiments. It counted 5.5 million coupons an arm in a week; 12,000
users are what two cores serve in minutes, so the test lasts four weeks, in which users let habits form.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from experiment import LOOK, People, beside, command, rehearse, run, serving
from numpy.typing import NDArray

import outlay
from outlay.bundles.decide import Bundle
from outlay.choosing.run import Run
from outlay.comparing.true_values import SimulatedPaths, Truth
from outlay.core.looking_back import LagFields
from outlay.experiments.design import Experiment
from outlay.jobs.analyze_experiment import analyze_experiment
from outlay.simulators import thirty_day

FOLDER = Path("runs/paper-ab")
MONEY_PER_USER = 40.0  # yuan per user of the test: no arm may ever be short
RAMP = "0:0.1,3:0.33,7:1"
LIVES = 100_000  # users who are simulated for the truth of an arm
CHUNK = 20_000  # of them at a time

LEARN = f"""
outlay simulate thirty-day --out {FOLDER}/campaign --users {{logged}}
outlay prepare {FOLDER}/campaign/campaign.toml --out {FOLDER}/data
outlay train {FOLDER}/data --out {FOLDER}/din --method two-stage --response din
outlay train {FOLDER}/data --out {FOLDER}/rl --preset paper
"""
PLAN = f"""
outlay experiment plan {FOLDER}/campaign/campaign.toml --out {FOLDER}/experiment.toml --name paper-ab
 --start {{start}} --days {{days}} --users {{users}} --ramp {RAMP}
 --arm din,bundle={FOLDER}/din/bundle,share=0.5,budget={{half}}
 --arm rl,bundle={FOLDER}/rl/bundle,share=0.5,budget={{half}}
"""
SERVE = f"""
outlay serve {FOLDER}/din/bundle --experiment {FOLDER}/experiment.toml --rehearse {{seconds}}
 --ledger sqlite:///{FOLDER}/ledger.db --cap {{cap}} --port 0
"""


@dataclass(frozen=True)
class Served:
    """A bundle that decides for simulated people, told of past days what it reads of them; a user keeps a member."""

    truth: Truth
    bundle: Bundle
    lags: LagFields | None

    @classmethod
    def of(cls, name: str) -> Served:
        """The bundle of a run in FOLDER."""
        bundle, trained = outlay.load_bundle(FOLDER / name / "bundle"), Run.open(FOLDER / name)
        data = trained.data()
        truth = Truth.beside(trained.campaign, data)
        assert truth is not None
        return cls(truth, bundle, LagFields.of(data.schema, bundle.campaign, bundle.schema))

    def actions(self, paths: SimulatedPaths, day: int, member: NDArray[np.int64]) -> NDArray[np.int64]:
        """`[n]` what each user's member gives on a day."""
        codes, numbers = self.truth.features(paths.state[:, day])
        if self.lags is not None:
            numbers = np.hstack([numbers, paths.before(day, self.lags, self.truth)])
        given = np.empty(len(member), np.int64)
        for i in np.unique(member):
            mine = member == i
            given[mine] = self.bundle.member_actions(int(i), codes[mine], numbers[mine])
        return given


def lived(arm: Served, before: Served, experiment: Experiment, seed: int) -> NDArray[np.float64]:
    """`[3]` active days and yuan that a user brings and costs in the test, and whether active on the first day of it.

    Until the ramp lets a user in, another bundle decides. What happens is drawn; what counts is its expectation.
    """
    people, days, rng = arm.truth.people, experiment.meta.days, np.random.default_rng(seed)
    assert people is not None
    coverage = [step.coverage for step in experiment.ramp]
    since = rng.choice([step.day for step in experiment.ramp], CHUNK, p=np.diff(coverage, prepend=0.0))
    weights = [served.bundle.weights for served in (arm, before)]
    inside, outside = (rng.choice(len(each), CHUNK, p=each) for each in weights)
    shape = CHUNK, days
    paths = SimulatedPaths(np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros((*shape, 2), np.float32))
    state, found = people.newcomers(rng, CHUNK), np.zeros(3)
    for day in range(days):
        paths.state[:, day], counts = state, since <= day
        action = arm.actions(paths, day, inside)
        if not counts.all():
            action = np.where(counts, action, before.actions(paths, day, outside))
        likely = people.active_prob[state, action] * counts
        found += [likely.mean(), (likely * people.coupons[action]).mean(), (likely * (since == day)).mean()]
        active, state = people.day(rng, state, action)
        paths.action[:, day] = action
        paths.outcome[:, day, 0], paths.outcome[:, day, 1] = active, active * people.coupons[action]
    return found


def main() -> None:
    """Train, plan, rehearse, analyse, and compare with the truth."""
    parser = argparse.ArgumentParser(description="The paper's A/B test on people whose truth is known.")
    parser.add_argument("--users", type=int, default=12_000, help="in the test")
    parser.add_argument("--logged", type=int, default=140_000, help="users of the log that both learn from")
    parser.add_argument("--days", type=int, default=28, help="of the test")
    parser.add_argument("--seconds", type=float, default=18.0, help="that a day lasts")
    parser.add_argument("--json", type=Path, help="a file for what was found and what is true")
    asked = parser.parse_args()
    began = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    run(LEARN.format(logged=asked.logged))
    start = datetime.datetime.now(datetime.UTC).date()  # the rehearsal begins on the day before
    run(PLAN.format(start=start, days=asked.days, users=asked.users, half=round(MONEY_PER_USER * asked.users / 2)))
    experiment = Experiment.load(FOLDER / "experiment.toml")
    people = People(asked.users, 0, thirty_day.simulator())
    serve = command(SERVE.format(seconds=asked.seconds, cap=round(MONEY_PER_USER * 2 * asked.users)))
    with serving(serve, FOLDER / "serve.txt") as http:
        for line in rehearse(http, people, start, asked.days):
            print(line, flush=True)
    run(LOOK.format(folder=FOLDER))
    analysis = analyze_experiment(FOLDER / "closed", experiment)
    din = Served.of("din")
    true = {
        arm.name: np.mean([lived(Served.of(arm.name), din, experiment, seed) for seed in range(LIVES // CHUNK)], axis=0)
        for arm in experiment.arms
    }
    print("\nThe truth beside it; of 20 intervals 19 hold it:\n")
    print("\n".join(beside(analysis, experiment.control.name, true)))
    if asked.json:
        lift = {metric: analysis.comparisons[0].lift(metric) for metric in ("active", "cost")}
        truth = dict(zip(("active", "cost", "first day"), true["rl"] / true["din"] - 1, strict=True))
        found = {
            metric: {**{end: getattr(each.relative, end) for end in ("value", "low", "high")}, "truth": truth[metric]}
            for metric, each in lift.items()
            if each is not None
        }
        told = vars(asked) | {"ramp": RAMP, "verdict": analysis.verdict, "json": None}
        asked.json.write_text(json.dumps({**told, "lifts": found, "first_day": truth["first day"]}), encoding="utf-8")
    print(f"\nDone in {time.monotonic() - began:.0f} s. Open {FOLDER}/test.html in a browser.")


if __name__ == "__main__":
    main()
