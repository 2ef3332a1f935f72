"""How often `outlay init` guesses the roles of columns, and how often a guess that it calls sure is wrong.

    .venv/bin/python benchmarks/init_roles.py                 # --logs 400 --seed 1 --public FOLDER
    .venv/bin/python benchmarks/init_roles.py --fit --logs 500    # draws others, fits src/outlay/logs/weights.py

Logs are drawn (`init_logs.py`), and shaped like public ones (`tests/public_shapes.py`), with names and without.
FOLDER holds CSV files and `truth.json`: name → [actions, rewards, user], each the columns that may be taken.
The weights are a softmax over the columns of each log with a ridge; public files are never fitted to.
"""

from __future__ import annotations

import argparse
import collections
import csv
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from init_logs import Drawn, draw
from outlay.logs import clues, guess, what, who
from outlay.logs.columns import describe
from outlay.logs.guess import guess_roles
from outlay.logs.looked import Looked
from outlay.logs.source import Copying, Source, open_recognised
from public_shapes import SHAPES
from results import head, keep

RIDGE = 0.6  # of a weight: as if half a log more spoke against each
WEIGHTS = Path(clues.__file__).with_name("weights.py")


@dataclass
class Sample:
    """Clues of the columns that could have a role, log by log; and which have it (None among them: no column)."""

    logs: list[tuple[dict[str, clues.Clues], set[str | None]]] = field(default_factory=list)


def shapes(seed: int) -> Iterator[Drawn]:
    """Logs in the shape of public ones, with their names and with none."""
    for name, make in SHAPES.items():
        for bare in (False, True):
            shape = make(np.random.default_rng(seed))
            to = {c: f"c{i + 1}" if bare else c for i, c in enumerate(shape.columns)}
            user = next(
                (
                    to[u]
                    for u in shape.user
                    if u is not None and u in to and len(set(shape.columns[u])) < len(shape.columns[u])
                ),
                None,
            )
            yield Drawn(
                {to[c]: values for c, values in shape.columns.items()},
                user,
                to[shape.action[0]],
                tuple(to[r] for r in shape.reward),
                tuple(to[o] for o in {*shape.outcomes, *shape.reward}),
                f"{'c1, c2 …' if bare else 'English'}|shape {name}|{'path' if user else 'one step'}|500 rows and more",
            )


class Opened:
    """A drawn log as `init` opens it."""

    def __init__(self, columns: dict[str, list[Any]] | Path) -> None:
        self.columns = columns

    def __enter__(self) -> Source:
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        path = self.columns if isinstance(self.columns, Path) else folder / "log.csv"
        if not isinstance(self.columns, Path):
            with path.open("w", newline="", encoding="utf-8") as file:
                rows = csv.writer(file)
                rows.writerow(self.columns)
                rows.writerows(zip(*self.columns.values(), strict=True))
        self.opened = open_recognised(path, folder, Copying(None, folder / "fetched"))
        return self.opened.__enter__()[0]

    def __exit__(self, *error: Any) -> None:
        self.opened.__exit__(*error)
        self.folder.cleanup()


def collect(log: Drawn, samples: dict[str, Sample]) -> None:
    """The clues of every role, each with the roles before it as they are in truth."""
    with Opened(log.columns) as source:
        rows, columns = describe(source)
        bare = Looked(source, rows, columns, {})
        able = [c for c in columns if who.may_name(c, rows)]
        samples["user"].logs.append(({c.name: who.clues_of_user(bare, c) for c in able}, {log.user}))
        fixed = {} if log.user is None else {"user": log.user}
        try:
            known = guess.look(source, rows, columns, fixed, alone=log.user is None)
        except LookupError:
            return
        found = what.clues_of_actions(known)
        if log.action is not None and log.action not in found:
            return
        samples["action"].logs.append((found, {log.action}))
        if log.action is None:
            return
        action = known.give("action", known.by_name[log.action], "")
        able = [c for c in known.free.values() if what.may_reward(known, c)]
        if rewards := {r for r in log.rewards if r in {c.name for c in able}}:
            samples["reward"].logs.append(
                ({c.name: what.clues_of_reward(known, c, action) for c in able}, set(rewards))
            )
            reward = known.give("reward", known.by_name[next(iter(sorted(rewards)))], "")
            for c in known.free.values():
                if what.may_follow(known, c):
                    samples["outcome"].logs.append(
                        (
                            {c.name: what.clues_of_outcome(known, c, action, reward)},
                            {c.name if c.name in log.outcomes else None},
                        )
                    )


def fit(sample: Sample, *, none: bool) -> dict[str, float]:
    """Weights of a role: the penalised likelihood of the columns that have it."""
    names = sorted({clue for found, _ in sample.logs for each in found.values() for clue in each})
    at = {clue: i for i, clue in enumerate(names)}
    matrices, rights = [], []
    for found, right in sample.logs:
        X = np.zeros((len(found) + none, len(names) + none))
        for row, each in enumerate(found.values()):
            for clue, (strength, _) in each.items():
                X[row, at[clue]] = strength
        if none:
            X[-1, -1] = 1
        good = np.array([*(name in right for name in found), *([None in right] if none else [])])
        if good.any() and len(X) > 1:
            matrices.append(X)
            rights.append(good)
    starts = np.cumsum([0, *(len(X) for X in matrices)])[:-1]
    X, good = np.concatenate(matrices), np.concatenate(rights)
    of = np.repeat(np.arange(len(matrices)), [len(m) for m in matrices])

    def loss(w: Any) -> tuple[float, Any]:
        s = X @ w
        s = s - np.maximum.reduceat(s, starts)[of]
        e = np.exp(s)
        all_, right = np.add.reduceat(e, starts), np.add.reduceat(e * good, starts) + 1e-300
        p, q = e / all_[of], e * good / right[of]
        return float(np.log(all_ / right).sum() + RIDGE / 2 * w @ w), X.T @ (p - q) + RIDGE * w

    found_w = optimize.minimize(loss, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 2000}).x
    return {clue: round(float(w), 2) for clue, w in zip([*names, *(["none"] if none else [])], found_w, strict=True)}


def fit_all(samples: dict[str, Sample]) -> dict[str, dict[str, float]]:
    """The weights of every role; that of no outcome as the weight of `none` with its sign turned."""
    weights = {
        "user": fit(samples["user"], none=True),
        "action": fit(samples["action"], none=True),
        "reward": fit(samples["reward"], none=False),
        "outcome": fit(samples["outcome"], none=True),
    }
    weights["outcome"]["none"] *= -1
    return weights


def write(weights: dict[str, dict[str, float]]) -> None:
    """`weights.py`."""
    lines = [
        '"""Weights of clues, as `benchmarks/init_roles.py --fit` found them; see `clues.py`."""',
        "",
        "WEIGHTS: dict[str, dict[str, float]] = {",
    ]
    for role, of in weights.items():
        lines += [f'    "{role}": {{', *(f'        "{clue}": {w:g},' for clue, w in sorted(of.items()) if w), "    },"]
    WEIGHTS.write_text("\n".join([*lines, "}", ""]), encoding="utf-8")


@dataclass
class Score:
    """How guesses turned out."""

    right: int = 0
    sure: int = 0
    asked: int = 0
    wrong: int = 0
    worse: list[str] = field(default_factory=list)


def judge(log: Drawn | tuple[Path, list[Any]], scores: dict[str, dict[str, Score]], name: str) -> None:
    """Guess the roles of one log, and count what is right, asked, and surely wrong."""
    if isinstance(log, Drawn):
        opened, user, action = Opened(log.columns), log.user, {log.action}
        rewards, kinds, outcomes = set(log.rewards), log.kind.split("|"), set(log.outcomes)
    else:
        opened, (actions, wanted, user), kinds, outcomes = Opened(log[0]), log[1], ["public files"], set()
        action, rewards = set(actions), set(wanted or [])
    found: dict[str, tuple[Any, bool, tuple[str, ...]]] = {}
    leaked: list[str] = []
    unsaid: list[str] = []
    with opened as source:
        rows, columns = describe(source)
        try:
            roles = guess_roles(source, rows, columns)
            found = {
                r: (roles.found[r].column, roles.found[r].sure, roles.found[r].others)
                for r in ("user", "action", "reward")
            }
            if not roles.repeats:
                found["user"] = (None, *found["user"][1:])
            if found["action"][0] in action:
                used = {g.column for g in roles.found.values()}
                leaked = [c for c in outcomes if c not in roles.later and c not in used]
                unsaid = [c for c in leaked if c not in roles.doubted]
        except what.NoActionError as error:
            found = {"action": (None, not error.near, error.near)}
        except LookupError as error:
            found = {"action": (str(error), True, ())}
    truth: dict[str, set[Any]] = {"user": {user}, "action": action, "reward": rewards}
    for kind in kinds:
        for role, (column, sure, others) in found.items():
            if role == "reward" and (found["action"][0] not in action or not rewards):
                continue
            score = scores.setdefault(role, {}).setdefault(kind, Score())
            if column in truth[role]:
                score.right += 1
                score.sure += sure
                continue
            score.asked += not sure
            score.wrong += sure
            asked = "" if sure else f", asked: {', '.join(others)}"
            score.worse.append(f"{name}: {role} {column} for {sorted(map(str, truth[role]))}{asked}")
        if outcomes and "reward" in found:
            score = scores.setdefault("outcomes out", {}).setdefault(kind, Score())
            score.right += not leaked
            score.sure += not leaked
            score.wrong += bool(unsaid)
            score.asked += bool(leaked) and not unsaid
            score.worse += [f"{name}: {each} is a feature" for each in leaked]


def main() -> None:
    """Fit, or judge and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--logs", type=int, default=400)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--fit", action="store_true")
    options.add_argument("--public", type=Path)
    options.add_argument("--worst", action="store_true", help="name what was wrong")
    given = options.parse_args()
    if given.fit:
        samples: dict[str, Sample] = collections.defaultdict(Sample)
        for number in range(given.logs):
            collect(draw(np.random.default_rng([given.seed + 1000, number])), samples)
        for log in (each for seed in (5, 6) for each in shapes(seed)):
            collect(log, samples)
        write(fit_all(samples))
        return
    scores: dict[str, dict[str, Score]] = {}
    for number in range(given.logs):
        judge(draw(np.random.default_rng([given.seed, number])), scores, f"drawn {number}")
    for log in shapes(given.seed) if given.logs else ():
        judge(log, scores, log.kind)
    if given.public is not None:
        for name, truth in json.loads((given.public / "truth.json").read_text()).items():
            judge((given.public / f"{name}.csv", truth), scores, name)
    kept: dict[str, Any] = {}
    for role, by in scores.items():
        print(f"\n{role}\n" + head("logs", "right", "of these sure", "wrong, but asked", "wrong, and called sure"))
        for kind, score in sorted(by.items()):
            all_ = score.right + score.asked + score.wrong
            kept[f"{role}, {kind}"] = [score.right, score.asked, score.wrong]
            if not kind.startswith("shape"):
                shares = [f"{part / all_:.1%}" for part in (score.right, score.sure, score.asked, score.wrong)]
                print(f"| {kind} ({all_}) | {' | '.join(shares)} |")
        if given.worst:
            print(*sorted({each for score in by.values() for each in score.worse}), sep="\n")
    keep("init_roles", scores=kept)


if __name__ == "__main__":
    main()
