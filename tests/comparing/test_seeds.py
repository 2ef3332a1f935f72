"""What is kept of a training is what was measured: the mean over seeds of it has the same intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from outlay.choosing.measure import Measure
from outlay.comparing.contenders import PlannedTraining
from outlay.comparing.equal_spend import MethodValues
from outlay.comparing.results import MethodRow
from outlay.comparing.seeds import SeedOutcome, Seeds, mean_row
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.clusters import Clusters, by_cluster


@pytest.mark.parametrize("clustered", [False, True])
def test_kept_outcomes_have_the_intervals_of_those_that_were_measured(
    clustered: bool, habit_data: Transitions, tmp_path: Path
) -> None:
    """With ten clusters their quantiles are those of Student's t, which are wider by 15%."""
    fitted, clusters = Measure(habit_data, CERTIFY, None).old(), None
    if clustered:
        users = len(fitted.influence)
        clusters = Clusters(np.arange(users) % 10, 10)
        fitted = replace(fitted, influence=by_cluster(fitted.influence, clusters), clusters=clusters)
    row = MethodRow("frontier, counted", "rl", "total", "tabular", "frontier", seconds=1.5, stored_parameters=12.0)
    training = PlannedTraining("frontier", "tabular", 0, (row,))
    measured = SeedOutcome(row, MethodValues(fitted, {"reward": 0.5}), [(0, 12)], [(0, 12), (200, 24)])
    refused = replace(measured, row=replace(row, control="immediate", refused="too dear"), values=None)
    seeds = Seeds(tmp_path, habit_data.campaign, [training], most=1.0)
    seeds.keep(training, 0, [measured, refused])
    kept, without = seeds.outcomes(training, 0, clusters)
    assert (kept.row, kept.course, kept.original) == (measured.row, measured.course, measured.original)
    assert without == refused
    wanted = mean_row([replace(measured, values=MethodValues(fitted, None))], habit_data.campaign)
    assert kept.values is not None
    assert kept.values.truth == {"reward": 0.5}
    found = mean_row([replace(kept, values=MethodValues(kept.values.fitted, None))], habit_data.campaign)
    for target, figure in wanted.figures.items():
        assert found.figures[target].value == figure.value
        assert (found.figures[target].low, found.figures[target].high) == pytest.approx((figure.low, figure.high))
