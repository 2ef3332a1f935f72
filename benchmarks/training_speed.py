"""Gradient steps a second of the training loop, beside d3rlpy's DiscreteBCQ on the same log.

    python benchmarks/training_speed.py            # 600,000 users, 3 rounds; the peer's environment is made if absent

Three forms take turns (A B C A B C …), so that a machine that slows down slows all of them:

    A  as it runs: the network is evaluated once per distinct state
    B  that shortcut off: every row of a batch is evaluated, as a general log needs; the same work as the peer's
    C  d3rlpy 2.8.1, in a process of its own

Compile time is told separately and not counted. Results: Markdown on stdout, benchmarks/out/training_speed.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from outlay.core.campaign import Campaign
from outlay.core.mixture import Mixture
from outlay.core.transitions import LEARN, SELECT, Transitions
from outlay.jobs.prepare import prepare
from outlay.jobs.simulate import simulate
from outlay.learning.acting import Policy
from outlay.learning.fresh import settings_of
from outlay.learning.game import Game, play
from outlay.learning.heads import critic_coordinates
from outlay.learning.mixing import RULES
from outlay.learning.mixing.rule import Constraints, FinalWeights, Rule
from outlay.learning.tabular import counted_model
from outlay.ops.tabular import measure
from peers_environment import D3RLPY, THREADS, ask, peer_python
from results import OUT, head, keep

PEER_USERS = 60_000  # of the log that the peer gets: its speed does not depend on the number of rows, its start does
BLOCK = 100  # gradient steps a block of the paper's schedule


class TimedRule:
    """A mixing rule that counts the seconds spent in its geometry."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.FINAL_WEIGHTS: FinalWeights = rule.FINAL_WEIGHTS
        self.seconds = 0.0

    def _timed(self, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = call()
        self.seconds += time.perf_counter() - began
        return result

    def init(self, constraints: Constraints) -> Any:
        """As the rule."""
        return self.rule.init(constraints)

    def members(self, state: Any) -> tuple[Any, ...]:
        """As the rule."""
        return self.rule.members(state)

    def step(self, state: Any, member: Any, measurement: ArrayLike) -> Any:
        """As the rule, timed."""
        return self._timed(lambda: self.rule.step(state, member, measurement))

    def mixture(self, state: Any) -> Mixture[Any]:
        """As the rule, timed."""
        mixture: Mixture[Any] = self._timed(lambda: self.rule.mixture(state))
        return mixture


class Loop:
    """One of our forms: a game that goes on where it stopped."""

    def __init__(self, data: Transitions, campaign: Campaign) -> None:
        self.rule = TimedRule(RULES["aim-greedy"])
        rows = data.rows_of(LEARN)
        coords = critic_coordinates(campaign, data.outcome[rows], steady=data.steady)
        model = counted_model(data, SELECT)

        def fitted(policy: Policy) -> Any:
            assert model is not None
            assert data.states is not None
            return coords.of(measure(model, policy.choose(data.states)))

        game = Game(
            data=data,
            train=campaign.train,
            settings=settings_of(campaign.train, "bcq", campaign.meta.discount),
            coords=coords,
            bound=np.full(len(coords.limits), 10.0),
            rule=self.rule,
            measure=None if model is None else fitted,
            counted=model is not None,
            learn_rows=rows,
            seed=0,
        )
        self.blocks: Iterator[Any] = play(game)
        began = time.perf_counter()
        next(self.blocks)
        first = time.perf_counter() - began
        self.compile_seconds = first - self.seconds(1)  # the first block, less what a block takes
        self.seconds(1)
        self.rule.seconds = self.spent = 0.0

    def seconds(self, blocks: int) -> float:
        """Seconds that the next blocks take: gathering, training, measuring, mixing."""
        began = time.perf_counter()
        for _ in range(blocks):
            next(self.blocks)
        return time.perf_counter() - began

    def speed(self, blocks: int) -> float:
        """Steps a second over the next blocks."""
        seconds = self.seconds(blocks)
        self.spent += seconds
        return blocks * BLOCK / seconds


def dump(data: Transitions, path: Path) -> None:
    """The first users' rows for the peer: state codes as numbers, index of the action, reward, end of a user's rows."""
    assert data.state is not None
    assert data.states is not None
    rows = np.flatnonzero(np.asarray(data.user[:]) < PEER_USERS)
    np.savez(
        path,
        observation=data.states.codes[data.state[rows]].astype(np.float32),
        action=np.asarray(data.action[rows], np.int64),
        reward=data.outcome[rows, 0],
        timeout=np.asarray(data.next_row[rows]) < 0,
    )


def peer_speed(python: Path, log: Path, steps: int) -> float:
    """Steps a second of the peer, in fresh processes: the faster of one thread and as many as there are processors.

    On a machine that is not quite idle, PyTorch's threads wait for each other and it falls to a tenth of its speed.
    """
    return max(float(ask(python, "d3rlpy_bcq.py", log, steps, threads=n)["steps_per_second"]) for n in THREADS)


def main() -> None:
    """Prepare the log, let the three take turns, print and write the result."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--users", type=int, default=600_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--blocks", type=int, default=40, help="of A a round, each 100 steps; B makes a quarter")
    options.add_argument("--peer-steps", type=int, default=400, help="of C a round")
    given = options.parse_args()
    OUT.mkdir(exist_ok=True)
    python = peer_python(D3RLPY)
    path = simulate("habit", OUT / "habit", users=given.users)
    campaign = Campaign.load(path).with_train(preset="paper", epochs=100)  # more than will be played
    data = prepare(campaign, OUT / "habit-data")
    dump(data, OUT / "peer-log.npz")
    forms = {"A": Loop(data, campaign), "B": Loop(dataclasses.replace(data, state=None, states=None), campaign)}

    speeds: dict[str, list[float]] = {"A": [], "B": [], "C": []}
    for _ in range(given.rounds):
        speeds["A"].append(forms["A"].speed(given.blocks))
        speeds["B"].append(forms["B"].speed(max(1, given.blocks // 4)))
        speeds["C"].append(peer_speed(python, OUT / "peer-log.npz", given.peer_steps))
    ratios = {f: [a / c for a, c in zip(speeds[f], speeds["C"], strict=True)] for f in "AB"}
    geometry = {f: loop.rule.seconds / loop.spent for f, loop in forms.items()}

    keep(
        "training_speed",
        rows=len(data),
        users=given.users,
        batch=campaign.train.batch,
        layers=campaign.train.layers,
        steps_per_second=speeds,
        ratio_to_peer={f: statistics.median(r) for f, r in ratios.items()},
        compile_seconds={f: loop.compile_seconds for f, loop in forms.items()},
        geometry_share=geometry,
        peer=D3RLPY,
    )
    print(head("form", "steps a second, median (all rounds)", "times the peer", "compile", "geometry"))
    names = {"A": "outlay, as it runs", "B": "outlay, every row evaluated", "C": "d3rlpy 2.8.1 DiscreteBCQ"}
    for form, values in speeds.items():
        rounds = ", ".join(f"{v:,.0f}" for v in values)
        own = (
            f"{statistics.median(ratios[form]):.1f} | {forms[form].compile_seconds:.1f} s | {geometry[form]:.2%}"
            if form in forms
            else "1 | – | –"
        )
        print(f"| {names[form]} | {statistics.median(values):,.0f} ({rounds}) | {own} |")


if __name__ == "__main__":
    main()
