"""How well a frontier's learner reads the users' past, and how much of a hidden type the past can tell at all.

    python benchmarks/past_encoder.py --forms summaries lags encoder --seeds 2 --users 20000

The world is *hidden* of `hidden_worlds.py`: two types of users, which the log does not tell. For every form of the
past and seed a learner is trained on the learn users of a log, and its policies are played in the world with new users.
For the days 1 to 14 and the days 15 to 28, the policies of two λ are mixed so that their true cost on these days is the
limit. So forms are compared at equal spend, without what measuring and certifying leave unspent. Every user's
probability of activity is added up instead of the activity, which has less noise.

These bound them: the best policy that looks at yesterday alone; the best that knows the type; and between them the
latter with the posterior of the type in its place, by Bayes' rule from the true probabilities and the whole past, or
its last 14 days. No policy can know more of the type than that.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from hidden_worlds import COUPONS, STRENGTH, WORLDS, People, Policy, World, summaries
from outlay.bundles.graph import policy_graph
from outlay.core.campaign import Campaign
from outlay.core.history import History
from outlay.core.network import NetworkArrays
from outlay.core.progress import silent
from outlay.core.schema import CLIP
from outlay.core.transitions import LEARN, Transitions
from outlay.jobs.prepare import prepare
from outlay.learning.heads import coordinates, largest_multiplier
from outlay.learning.two_part import without_amount_luck
from outlay.training.best_responses import Training, learn_all
from outlay.training.game import spread_rows

Floats = NDArray[np.float64]
GAMMA, DAYS, PLAYERS = 0.9, 28, 20_000
PARTS = slice(14), slice(14, DAYS)
PRICES = np.linspace(0.03, 0.15, 7)  # λ
HIDDEN = WORLDS["hidden"]
LAGS = World("lags", types=True, history=14, columns=("action", "reward", "coupon_cost"), summaries=("lags",))
FORMS: dict[str, tuple[World, str]] = {  # the world with its features, and lines of [train]
    "known": (WORLDS["known"], ""),
    "summaries": (WORLDS["hidden, past"], ""),
    "lags": (LAGS, ""),
    "encoder": (LAGS, 'encoder = "convolution"\n'),
}


def active(yesterday: NDArray[Any], type_: NDArray[Any] | int, action: NDArray[Any]) -> Floats:
    """Probability of activity in *hidden*."""
    base, pull = np.array([0.9, -0.9])[type_], np.array([0.3, 1.1])[type_]
    return np.asarray(1 / (1 + np.exp(0.9 - 1.2 * yesterday - base - pull * STRENGTH[action])))


def play(policy: Policy, users: int = PLAYERS, seed: int = 99) -> Floats:
    """`[DAYS, 2]` expected activity and cost of each day, of new users, half of each type."""
    people = People.draw(HIDDEN, users, seed)
    people.type = np.arange(users) % 2
    daily = np.empty((DAYS, 2))
    for day in range(DAYS):
        action = policy(people)
        chance = active(people.yesterday, people.type, action)
        daily[day] = chance.mean(), (chance * COUPONS[action]).mean()
        people.act(action)
    return daily


def at_limit(policy_of: Callable[[float], Policy], prices: Floats = PRICES) -> Floats:
    """`[2]` activity on days 1 to 14 and after them, of the mixture of two λ that costs the limit on these days."""
    daily = [play(policy_of(float(price))) for price in prices]
    found = []
    for part in PARTS:
        reward, cost = np.array([days[part].mean(axis=0) for days in daily]).T
        order = np.argsort(cost)
        found.append(np.interp(HIDDEN.at_most, cost[order], reward[order]))
    return np.array(found)


def exact_q(price: float) -> Floats:
    """`[2, 2, K]` (yesterday, type): (1−γ)·(activity − λ cost), where the type is known and the best action goes on."""
    yesterday, type_, action = np.indices((2, 2, len(COUPONS)))
    chance = active(yesterday, type_, action)
    value = np.zeros((2, 2))
    for _ in range(400):
        after = chance * value[1][None, :, None] + (1 - chance) * value[0][None, :, None]
        q = (1 - GAMMA) * chance * (1 - price * COUPONS) + GAMMA * after
        value = q.max(axis=2)
    return np.asarray(q)


def knowing(price: float) -> Policy:
    """The best policy that knows the type."""
    best = exact_q(price).argmax(axis=2)
    return lambda people: np.asarray(best[people.yesterday, people.type])


def unknowing(price: float) -> Policy:
    """The best policy that looks at yesterday alone: one of 16, found by their exact discounted values."""
    start = np.full((2, 2), 0.25)  # (yesterday, type)
    yesterday, type_ = np.indices((2, 2))
    best, most = np.zeros(2, np.int64), -np.inf
    for pair in np.ndindex(len(COUPONS), len(COUPONS)):
        action = np.array(pair)[yesterday]
        chance, share, total = active(yesterday, type_, action), start, 0.0
        for day in range(100):
            total += GAMMA**day * (share * chance * (1 - price * COUPONS[action])).sum()
            share = np.stack([(share * (1 - chance)).sum(axis=0), (share * chance).sum(axis=0)])
        if total > most:
            best, most = np.array(pair), total
    return lambda people: np.asarray(best[people.yesterday])


def filtering(price: float, days: int = DAYS) -> Policy:
    """The policy of `knowing` with the posterior of the type in its place, from the last `days`."""
    q = exact_q(price)
    told: list[tuple[Floats, ...]] = []
    yesterday: list[NDArray[np.int64]] = []

    def act(people: People) -> NDArray[np.int64]:
        if people.past:
            before, (action, acted, _) = yesterday.pop(), people.past[-1].T
            chance = [active(before, type_, np.searchsorted(COUPONS, action)) for type_ in (0, 1)]
            told.append(tuple(np.log(np.where(acted == 1, p, 1 - p)) for p in chance))
        yesterday.append(people.yesterday.copy())
        odds = sum((one - other for other, one in told[-days:]), np.zeros(len(people.type)))
        belief = 1 / (1 + np.exp(-odds))[:, None]
        now = people.yesterday
        return np.asarray((belief * q[now, 1] + (1 - belief) * q[now, 0]).argmax(axis=1))

    return act


def learned(data: Transitions, campaign: Campaign, learner: str, seed: int, folder: Path) -> NetworkArrays:
    """One training, as each fold of a frontier makes it."""
    rows = data.rows_of(LEARN)
    taught = without_amount_luck(data, seed)
    sample = spread_rows(rows)
    coords = coordinates(campaign, taught.outcome[sample], steady=data.steady)
    scaled = largest_multiplier(data.action[sample], taught.outcome[sample], coords, campaign.meta.discount)
    bound = scaled * coords.reward_scale / coords.scale
    training = Training(taught, campaign, coords, bound, rows, seed, folder / "checkpoints", False)
    return learn_all([learner], training, silent)[0].network


def network_policies(network: NetworkArrays, data: Transitions) -> Callable[[float], Policy]:
    """λ → the policy of a network's Q, on the features that the data has."""
    schema, history = data.schema, History.of(data.campaign)
    graph = policy_graph(network, len(schema.categorical), 2 * len(schema.numeric)).SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    mean, scale = (np.array([getattr(field, name) for field in schema.numeric]) for name in ("mean", "scale"))
    lookup = {field.name: np.array([*field.values.to_pylist(), ""]) for field in schema.categorical}

    def state(people: People) -> dict[str, NDArray[Any]]:
        table = {"yesterday": people.yesterday, "type": people.type}
        codes = [3 + np.argmax(table[name].astype(str)[:, None] == values[:-1], axis=1)
                 for name, values in lookup.items()]  # fmt: skip
        given = {"codes": np.stack(codes, axis=1).astype(np.int32)}
        if history is None:
            return given
        found = summaries(history, people).astype(np.float64)
        value = np.clip((np.where(np.isnan(found), mean, found) - mean) / scale, -CLIP, CLIP)
        both = np.stack([value, np.isnan(found)], axis=2).reshape(len(found), -1)
        return given | {"numbers": both.astype(np.float32)}

    def policy_of(price: float) -> Policy:
        def act(people: People) -> NDArray[np.int64]:
            (q,) = session.run(["q"], state(people))
            return np.asarray((q[:, :, 0] - price * q[:, :, 1]).argmax(axis=1))

        return act

    return policy_of


def main() -> None:
    """Print a line per training, and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=list(FORMS), metavar="FORM")
    parser.add_argument("--learners", nargs="+", default=["orthogonal"], choices=["orthogonal", "trees"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--days", type=int, default=14, help="of the log, and looked back")
    parser.add_argument("--train", default="", help="lines of [train], such as 'epochs = 8'")
    options = parser.parse_args()
    old = play(lambda people: people.rng.integers(len(COUPONS), size=len(people.type)))
    bounds = {
        "yesterday alone": at_limit(unknowing),
        "type known": at_limit(knowing),
        "posterior of the type": at_limit(filtering),
        "posterior from 14 days": at_limit(lambda price: filtering(price, 14)),
    }
    low, high = (gains(bounds[name], old) for name in ("yesterday alone", "type known"))
    print("| features | learner | seed | seconds | days 1–14 | days 15–28 | of what the type adds |")
    print("|---|---|---|---|---|---|---|")
    for name, daily in bounds.items():
        show((name, "exact", "", ""), gains(daily, old), low, high)
    for form in options.forms:
        for learner in options.learners:
            for seed in range(options.first, options.first + options.seeds):
                with tempfile.TemporaryDirectory() as folder:
                    found, seconds = run(form, learner, seed, options, Path(folder))
                show((form, learner, str(seed), f"{seconds:.0f}"), gains(found, old), low, high)


def run(form: str, learner: str, seed: int, options: Any, folder: Path) -> tuple[Floats, float]:
    """`[2]` activity of a trained policy at the limit, and the seconds of the training."""
    world, train = FORMS[form]
    path = replace(world, days=options.days, history=options.days * (world.history > 0)).write(
        folder / "log", options.users, seed
    )
    path.write_text(f"{path.read_text()}\n[train]\n{train}{options.train}\n")
    campaign = Campaign.load(path)
    prepare(campaign, folder / "data")
    data = Transitions.open(folder / "data")
    began = time.perf_counter()
    network = learned(data, campaign, learner, seed, folder)
    seconds = time.perf_counter() - began
    return at_limit(network_policies(network, data)), seconds


def gains(reward: Floats, old: Floats) -> Floats:
    """`[2]` more activity than the log's policy, relative: on days 1 to 14, and after them."""
    return np.array([new / old[part, 0].mean() - 1 for new, part in zip(reward, PARTS, strict=True)])


def show(what: tuple[str, ...], gain: Floats, low: Floats, high: Floats) -> None:
    """One line of the table."""
    share = (gain - low) / (high - low)
    told = (*what, *(f"{each:+.2%}" for each in gain), " and ".join(f"{each:.0%}" for each in share))
    print(f"| {' | '.join(told)} |", flush=True)


if __name__ == "__main__":
    main()
