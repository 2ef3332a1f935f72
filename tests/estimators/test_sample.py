from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from logs_in_memory import World, ragged

from outlay.core.transitions import CERTIFY, LEARN, SELECT
from outlay.estimators.linear.basis import Basis, CountedBasis, FeatureBasis
from outlay.estimators.linear.cells import PolicyMoves
from outlay.estimators.linear.sample import Sample
from outlay.estimators.panel import Panel
from outlay.estimators.path_sums import FoldValues


def bases(panel: Panel) -> list[Basis]:
    state = np.asarray(panel.state)
    return [CountedBasis(state, 3, 2), FeatureBasis(np.eye(3, dtype=np.float32)[state], 2)]


@pytest.mark.parametrize("drawn", [False, True])
def test_values_from_some_users_of_a_panel_are_those_of_a_panel_of_these_users(drawn: bool) -> None:
    for data in (World.drawn(4).log(150, 5, np.random.default_rng(1)), ragged(5, users=150)):
        rng = np.random.default_rng(0)
        by_state = rng.dirichlet(np.ones(2), size=3) if drawn else np.array([1, 0, 1])
        everybody, some = Panel.of(data, CERTIFY), np.arange(150) % 3 > 0
        users = data.users.copy()
        users["split"] = np.where(some, SELECT, LEARN)
        alone = Panel.of(replace(data, users=users), SELECT)
        for mine, its in zip(bases(everybody), bases(alone), strict=True):
            critics = []
            for sample in (Sample.of(everybody, mine).only(some), Sample.of(alone, its)):
                target = sample.panel.follow(by_state[np.asarray(sample.panel.state)])
                critics.append(FoldValues.of(sample, PolicyMoves.of(sample.panel, sample.log, target), 4, least_rows=2))
            for one, other in zip(critics[0].theta, critics[1].theta, strict=True):
                assert one == pytest.approx(other, abs=1e-6)
            for reg in ("inflation", "outcome"):
                one, other = (getattr(critic.stages[2].reg, reg) for critic in critics)
                assert one.max() == pytest.approx(other.max(), rel=1e-6)
