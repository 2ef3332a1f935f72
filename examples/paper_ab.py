"""The paper's own A/B test, on people whose truth is known: prepare → train → plan → serve → analyze, into
runs/paper-ab/.

    din     the classic way: DIN predicts what each coupon brings that day from a user's past week, and the linear
            program prices it under the budget (two-stage)
    rl      looks ahead: one training for every budget, mixed by the linear program under the same budget (frontier)

Both learn from one log of the *thirty-day* campaign, where what a coupon brings later differs from what it brings
today, and keep the same limit. Four weeks are rehearsed in nine minutes behind a real `outlay serve`, as in
`experiment.py`: new users ask once a day, the server takes their past days from its ledger, and is told what they did.
No arm can run out of money, so the true totals are those of the two policies.

Source: the paper (WSDM'23), section 6, on online experiments.
"""

from __future__ import annotations

import argparse
import datetime
import shutil
import time
from functools import partial
from pathlib import Path

import numpy as np
from experiment import LOOK, People, beside, command, rehearse, run, serving
from numpy.typing import NDArray

import outlay
from outlay.choosing.run import Run
from outlay.comparing.true_values import true_values
from outlay.core.looking_back import LagFields
from outlay.experiments.design import Experiment
from outlay.jobs.analyze_experiment import analyze_experiment
from outlay.simulators import thirty_day

FOLDER = Path("runs/paper-ab")
MONEY_PER_USER = 40.0  # yuan per user of the test: no arm may ever be short

LEARN = f"""
outlay simulate thirty-day --out {FOLDER}/campaign --users {{logged}}
outlay prepare {FOLDER}/campaign/campaign.toml --out {FOLDER}/data
outlay train {FOLDER}/data --out {FOLDER}/din --method two-stage --response din
outlay train {FOLDER}/data --out {FOLDER}/rl
"""
PLAN = f"""
outlay experiment plan --log {FOLDER}/campaign/campaign.toml --out {FOLDER}/experiment.toml --name paper-ab
 --start {{start}} --days {{days}} --users {{users}}
 --arm din,bundle={FOLDER}/din/bundle,share=0.5,budget={{half}}
 --arm rl,bundle={FOLDER}/rl/bundle,share=0.5,budget={{half}}
"""
SERVE = f"""
outlay serve {FOLDER}/din/bundle --experiment {FOLDER}/experiment.toml --rehearse {{seconds}}
 --ledger sqlite:///{FOLDER}/ledger.db --cap {{cap}} --port 0
"""


def truth(name: str, days: int) -> NDArray[np.float64]:
    """`[2]` active days and yuan that a user brings and costs in the first days under an arm's policy.

    That of DIN is simulated on people of the model, since it depends on their past days; the other is exact.
    """
    bundle, trained = outlay.load_bundle(FOLDER / name / "bundle"), Run.open(FOLDER / name)
    data, members = trained.data(), range(len(bundle.members))
    known = true_values(trained.campaign, data)
    assert known is not None
    lags = LagFields.of(data.schema, bundle.campaign, bundle.schema)
    value = known.mixture([partial(bundle.member_actions, i) for i in members], bundle.weights, lags=lags, days=(days,))
    assert value is not None
    return np.array([value[f"reward@{days}"], value[f"coupon_cost@{days}"]])


def main() -> None:
    """Train, plan, rehearse, analyse, and compare with the truth."""
    parser = argparse.ArgumentParser(description="The paper's A/B test on people whose truth is known.")
    parser.add_argument("--users", type=int, default=12_000, help="in the test")
    parser.add_argument("--logged", type=int, default=12_000, help="users of the log that both learn from")
    parser.add_argument("--days", type=int, default=28, help="of the test")
    parser.add_argument("--seconds", type=float, default=18.0, help="that a day lasts")
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
    true = {arm.name: truth(arm.name, asked.days) for arm in experiment.arms}
    print("\nThe truth beside it; of 20 intervals 19 hold it:\n")
    print("\n".join(beside(analysis, experiment.control.name, true)))
    print(f"\nDone in {time.monotonic() - began:.0f} s. Open {FOLDER}/test.html in a browser.")


if __name__ == "__main__":
    main()
