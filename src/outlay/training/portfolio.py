"""What is said of learners that were pooled: which was taken, by how much, and whose policies are served.

Learners are ordered by how well they tell what actions do (`learning/effect_score.py`). Each one's own mixture is
chosen first, and that of a later one is taken only where it is better by more than noise (`choosing/choose.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from outlay.bundles.reference import forward
from outlay.choosing.choose import LearnerResult, Selection
from outlay.core.network import NetworkArrays
from outlay.core.transitions import Transitions
from outlay.learning.effect_score import EffectScore


def scores(networks: dict[str, NetworkArrays], judge: EffectScore, data: Transitions) -> dict[str, float]:
    """What each learner's effects on the day's reward explain for select users, the best first."""
    codes, numbers = data.features(judge.rows)
    found = {}
    for name, network in networks.items():
        outcome = forward(network, codes, numbers).outcome
        assert outcome is not None  # learners that are pooled all say what the day brings
        found[name] = judge.explained(outcome[:, :, 0])
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def by_learner(chosen: Selection) -> dict[str, float]:
    """The share of the users that policies of each learner have; constants have their own."""
    share: dict[str, float] = {}
    for kept, weight in zip(chosen.members, chosen.weights, strict=True):
        name = kept.policy.learner or "constants"
        share[name] = share.get(name, 0.0) + float(weight)
    return share


def won(
    standings: Sequence[Sequence[LearnerResult]], explained: Sequence[dict[str, float]], shares: dict[str, float]
) -> str:
    """Which learner won in each fold, by how much, and whose policies are served, in words."""
    told = []
    for number, (fold, effects) in enumerate(zip(standings, explained, strict=True)):
        where = f"fold {number + 1}: " if len(standings) > 1 else ""
        if not fold:
            told.append(f"{where}no learner keeps the limits by itself")
            continue
        first, *others = fold
        rest = ", ".join(f"{each.behind:+.2g} ±{1.96 * each.std_error:.1g} against {each.learner}" for each in others)
        best = ", ".join(f"{name} {share:.2%}" for name, share in effects.items())
        told.append(
            f"{where}{first.learner} is taken{f', {rest}' if rest else '; no other keeps the limits'}"
            f"{f' (effects explain of the reward: {best})' if best else ''}"
        )
    served = ", ".join(f"{name} {share:.0%}" for name, share in sorted(shares.items(), key=lambda pair: -pair[1]))
    return (
        f"Learners, each with its own best mixture on select users: {'. '.join(told)}. The one whose "
        f"effects explain most is taken unless another is better by more than noise. Users are served by: {served}."
    )
