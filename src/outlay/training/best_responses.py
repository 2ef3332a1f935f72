"""Best responses to every λ: what each kind of learner gives, from one training.

    found = learn_all(("trees", "orthogonal"), training, report)      # BestResponses of each learner, in this order

Learners that are pooled train side by side, each in a thread of its own: most of their time is spent in compiled code
that runs on one processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.arrays import NetworkArrays
from outlay.core.bodies import Trees
from outlay.core.campaign import Campaign
from outlay.core.cmdp import TabularCMDP
from outlay.core.errors import CampaignError
from outlay.core.progress import Progress
from outlay.core.transitions import LEARN, Transitions
from outlay.learning import checkpoint, orthogonal, orthogonal_policies, trees
from outlay.learning.effect_score import EffectScore
from outlay.learning.frontier import FrontierProgress, FrontierTraining, between
from outlay.learning.frontier import learn as learn_network
from outlay.learning.game import settings_of
from outlay.learning.heads import Coordinates
from outlay.learning.orthogonal import Orthogonal, OrthogonalProgress
from outlay.learning.plug_in import plug_in, respond, table_network
from outlay.learning.tabular import smoothed
from outlay.learning.trees import TreesTraining
from outlay.nets.group import ALONE, ProcessGroup
from outlay.nets.network import arrays
from outlay.ops.action_basis import smooth_basis

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class BestResponses:
    """The best responses of one learner to L values of λ.

    Attributes:
        learner: its name.
        network: holds the policies.
        policy: `[L]` which of the network's policies answers each λ; several λ may share one Q.
        multiplier: `[L, m]` λ, in reward units per unit of coordinate.
        critic: `[L, 1+m]` the learner's own estimates of them, as tables show them; None where it has none.
        steps: gradient steps.
        seconds_before: seconds of training before it was resumed.
        notes: what to tell the user.
        description: whose best responses they are, in words.
        exact: the best response to any λ `[m]`, as a network of one policy that has the hidden layers of `network`;
            None where the Q of the nearest λ has to answer.
        estimate: `[1+m]` the learner's estimate of the best response to any λ `[m]`, as tables show it; None where it
            has none.
        judge: held-out residuals that learners are compared on, where this learner provides them.
    """

    learner: str
    network: NetworkArrays
    policy: NDArray[np.int64]
    multiplier: Vector
    critic: Vector | None
    steps: int
    seconds_before: float
    notes: list[str]
    description: str
    exact: Callable[[Vector], NetworkArrays] | None = None
    estimate: Callable[[Vector], Vector] | None = None
    judge: EffectScore | None = None

    def response(self, multiplier: Vector) -> tuple[NetworkArrays, int]:
        """A network, and the index of its policy that answers any λ `[m]`."""
        if self.exact is not None:
            return self.exact(multiplier), 0
        unit = np.maximum(self.multiplier.max(axis=0), np.finfo(np.float64).tiny)
        nearest = np.linalg.norm((self.multiplier - multiplier) / unit, axis=1).argmin()
        return self.network, int(self.policy[nearest])


NetworkTraining = Orthogonal | FrontierTraining
Elsewhere = Callable[[str, NetworkTraining, Path, Progress], None]  # learner, its training, folder of its checkpoints


@dataclass(frozen=True)
class Training:
    """What learners of the same data share.

    Attributes:
        data: the transitions.
        campaign: limits and settings as used.
        coords: from heads to the coordinates of the limits.
        bound: `[m]` above which no λ is looked for.
        rows: `[n]` rows to learn from.
        seed: of everything random.
        folder: of the checkpoints.
        resume: whether to go on from them.
        elsewhere: trains the networks of a learner to the end on other machines, which leave its last checkpoint in a
            folder; None: they are trained here.
    """

    data: Transitions
    campaign: Campaign
    coords: Coordinates
    bound: Vector
    rows: NDArray[np.int64]
    seed: int
    folder: Path
    resume: bool
    elsewhere: Elsewhere | None = None

    @property
    def settings(self) -> tuple[Transitions, Any, Coordinates, Vector, int, NDArray[np.int64], int]:
        """The fields that every kind of training begins with."""
        return self.data, self.campaign.train, self.coords, self.bound, self.campaign.money, self.rows, self.seed

    def key(self, learner: str) -> dict[str, Any]:
        """What a checkpoint of the learner must agree with."""
        key = checkpoint.key_of(self.data, self.campaign, "frontier", learner, self.seed)
        return key | ({"folds": self.data.folds} if self.data.folds > 1 else {})


def learn_all(learners: Sequence[str], training: Training, report: Progress) -> list[BestResponses]:
    """Train the learners, several of them side by side; `report` is told the share of all that is done.

    Raises:
        CampaignError: if a setting does not suit a learner.
    """
    if len(learners) == 1:
        return [_learn(learners[0], training, training.folder, report)]
    training.folder.mkdir(exist_ok=True)
    shares, stopped, lock = dict.fromkeys(learners, 0.0), Event(), Lock()

    def told(learner: str, share: float, text: str) -> None:
        if stopped.is_set():
            raise _StoppedError
        with lock:
            shares[learner] = share
            report(sum(shares.values()) / len(shares), text)

    def learn(learner: str) -> BestResponses:
        try:
            return _learn(learner, training, training.folder / learner, partial(told, learner))
        except BaseException:
            stopped.set()  # the others end at their next report
            raise

    with ThreadPoolExecutor(len(learners)) as pool:
        running = [pool.submit(learn, learner) for learner in learners]
        try:
            found = [each.result() for each in running]
        except BaseException as error:
            stopped.set()
            if not isinstance(error, _StoppedError):
                raise
            reasons = [each.exception() for each in running]
            raise next(reason for reason in reasons if not isinstance(reason, _StoppedError | None)) from None
    return found


class _StoppedError(Exception):
    """Another learner failed, or the user has stopped the training."""


def counted(data: Transitions, campaign: Campaign, coords: Coordinates, model: TabularCMDP) -> BestResponses:
    """The exact best responses of the counted model."""
    assert data.states is not None
    basis = smooth_basis(data.actions, campaign.train.action_degree, campaign.meta.none)
    model = smoothed(model, data, LEARN, basis)
    multiplier, policies = plug_in(model, coords, data.states.allowed, campaign.money)
    assert data.state is not None
    share = np.bincount(data.state[data.rows_of(LEARN)], minlength=len(data.states)) / len(data.rows_of(LEARN))
    network = table_network(model, data.states, share, data.schema.sizes, multiplier, policies, coords)
    smooth = (
        ""
        if basis is None
        else (f", smoothed over the amounts by polynomials of degree {campaign.train.action_degree}")
    )
    note = (
        f"The log has {len(data.states)} distinct states, each met often enough to count: the counted model{smooth}, "
        "with exact best responses, instead of networks or trees (--oracle orthogonal, trees, bcq, edrr or ddqn)."
    )

    def exact(multiplier: Vector) -> NetworkArrays:
        assert data.states is not None
        policy = respond(model, coords, data.states.allowed, multiplier)
        return table_network(model, data.states, share, data.schema.sizes, multiplier[None], policy[None], coords)

    of = "the counted model, whose best responses are exact,"
    return BestResponses("tabular", network, np.arange(len(multiplier)), multiplier, None, 0, 0.0, [note], of, exact)


def _learn(learner: str, training: Training, folder: Path, report: Progress) -> BestResponses:
    """One learner, with checkpoints in the folder."""
    resume = training.resume and folder.exists()
    if learner == "trees":
        return _trees(TreesTraining(*training.settings), folder, training.key(learner), resume, report)
    networks = Networks.of(learner, training)
    if training.elsewhere is not None:
        training.elsewhere(learner, networks.training, folder, report)
        resume = True
    progress, before = networks.learn(folder, resume, report)
    if isinstance(networks.training, Orthogonal):
        return _orthogonal(networks.training, progress, before)
    return _networks(networks.training, learner, progress, before)


@dataclass(frozen=True)
class Networks:
    """A training of networks, with checkpoints.

    Attributes:
        training: what is trained.
        key: what a checkpoint must agree with.
    """

    training: NetworkTraining
    key: dict[str, Any]

    @classmethod
    def of(cls, learner: str, training: Training) -> Networks:
        """The networks of a learner.

        Raises:
            CampaignError: if a setting does not suit it.
        """
        campaign, settings, key = training.campaign, training.settings, training.key(learner)
        if learner != "orthogonal":
            oracle = settings_of(campaign.train, learner, campaign.meta.discount)  # type: ignore[arg-type]  # checked
            return cls(FrontierTraining(*settings, oracle), key)
        if not campaign.train.layers:
            raise CampaignError(
                "is empty; the orthogonal critic needs a hidden layer.",
                file=campaign.path,
                where="[train] layers",
                way_out="Write layers = [128, 64].",
            )
        return cls(Orthogonal(*settings), key)

    def learn(self, folder: Path, resume: bool, report: Progress, group: ProcessGroup = ALONE) -> tuple[Any, float]:
        """Train to the end; the last state, and the seconds that an earlier try took.

        Args:
            folder: of the checkpoints, which the first process of a group writes.
            resume: whether to go on from the last one.
            report: told the share of the steps.
            group: of processes that train together.
        """
        if isinstance(self.training, Orthogonal):
            return self._learn(
                checkpoint.load_orthogonal,
                orthogonal.learn,
                checkpoint.save_orthogonal,
                "networks: ",
                folder,
                resume,
                report,
                group,
            )
        return self._learn(
            checkpoint.load_frontier, learn_network, checkpoint.save_frontier, "", folder, resume, report, group
        )

    def _learn(
        self,
        load: Any,
        learn: Any,
        save: Any,
        before: str,
        folder: Path,
        resume: bool,
        report: Progress,
        group: ProcessGroup,
    ) -> tuple[Any, float]:
        training = self.training
        start = load(folder, training, self.key) if resume else training.begin()
        progress, seconds, saved = start, start.seconds, time.monotonic()
        for progress in learn(training, start, group):
            report(progress.step / training.steps, f"{before}{progress.step} of {training.steps} steps")
            if time.monotonic() - saved > checkpoint.EVERY_SECONDS and group.rank == 0:
                save(folder, progress, self.key)
                saved = time.monotonic()
        if group.rank == 0:
            save(folder, progress, self.key)
        return progress, seconds


def _networks(training: FrontierTraining, oracle: str, progress: FrontierProgress, before: float) -> BestResponses:
    network = arrays(progress.learner.critic.target, training.coords.spread)
    own = np.array([training.coords.shown(x, 1.0) for x in progress.own])
    top = " and ".join(f"{price:.3g}" for price in _last_but_one(progress.multipliers))
    note = f"One network answers {len(own)} λ, from 0 to {top}, where the cost stops falling."
    policy = np.arange(len(own))
    of = "this critic (the Q of the nearest λ, priced at theirs)"

    def estimate(multiplier: Vector) -> Vector:
        # Q is smooth in λ, and so is what it is worth.
        found: Vector = (between(progress.multipliers, multiplier[None]) @ own)[0]
        return found

    return BestResponses(
        oracle, network, policy, progress.multipliers, own, training.steps, before, [note], of, estimate=estimate
    )


def _orthogonal(training: Orthogonal, progress: OrthogonalProgress, before: float) -> BestResponses:
    found = orthogonal_policies.answers(training, progress)
    note = f"One network answers {len(found.multiplier)} λ."
    return _of_one_q(training.coords, found, "orthogonal", progress.best.step, before, note)


def _trees(training: TreesTraining, folder: Path, key: dict[str, Any], resume: bool, report: Progress) -> BestResponses:
    """Train, or take what was trained before."""
    began = time.perf_counter()
    if resume:
        network, judge, before = checkpoint.load_trees(folder, key)
    else:
        (network, judge), before = trees.learn(training, report), 0.0
        checkpoint.save_trees(folder, network, judge, time.perf_counter() - began, key)
    found = trees.answers(training, network)
    assert isinstance(network.body, Trees)
    note = f"{len(network.body.root):,} boosted trees answer {len(found.multiplier)} λ."
    return replace(_of_one_q(training.coords, found, "trees", 0, before, note), judge=judge)


def _of_one_q(
    coords: Coordinates, found: orthogonal_policies.Answers, learner: str, steps: int, before: float, note: str
) -> BestResponses:
    """The best responses of one Q, which answers all λ."""
    own = np.array([coords.shown(x, 1.0) for x in found.estimate])
    policy = np.zeros(len(own), np.int64)

    def estimate(multiplier: Vector) -> Vector:
        return coords.shown(found.estimate_at(multiplier[None])[0], 1.0)

    return BestResponses(
        learner, found.network, policy, found.multiplier, own, steps, before, [note], "this critic", estimate=estimate
    )


def _last_but_one(multipliers: Vector) -> list[float]:
    """λ_max of each limit: the last is the bound, for the cheapest policy."""
    return [float(np.unique(column)[-2]) for column in multipliers.T]
