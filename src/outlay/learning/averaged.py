"""The mean of boosted trees and of the orthogonal critic: one Q from both.

    Q(s, a) = ½ Q_trees(s, a) + ½ Q_networks(s, a)

Both learn the same estimate of the same rows, and err in different places: trees where effects are smooth in many
fields, networks where they change at a threshold. So the mean errs less than either (docs/frontier.md).

Source: averages of learners, Breiman (1996), "Stacked regressions", here with equal weights.
"""

from __future__ import annotations

from dataclasses import replace

from outlay.core.arrays import averaged, head_values, hidden_layers
from outlay.learning.held_out import choice_rows
from outlay.learning.learner import BestResponses, Task
from outlay.learning.multipliers import LOOK_ROWS, Answers, answered


def mean_of(task: Task, bodied: BestResponses, layered: BestResponses) -> BestResponses:
    """The mean of what trees, `bodied`, and networks, `layered`, have learned."""
    network, data = averaged(layered.network, bodied.network), task.data
    rows = choice_rows(data, LOOK_ROWS, task.seed)
    q = head_values(hidden_layers(network, *data.features(rows)), network.head)
    q = q.reshape(len(rows), data.num_actions, network.num_heads)
    found = Answers(network, *answered(task.coords, task.bound, task.campaign.money, q, data.allowed(rows)))
    return replace(
        BestResponses.of_one_q(task.learner, found, task.coords, "The mean of trees and networks answers"),
        steps=layered.steps,
        seconds_before=bodied.seconds_before + layered.seconds_before,
    )
