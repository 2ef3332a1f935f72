"""The mean of boosted trees and of the orthogonal critic: one Q from both.

    Q(s, a) = ½ Q_trees(s, a) + ½ Q_networks(s, a)

Both learn the same estimate of the same rows, and err in different places: trees where effects are smooth in many
fields, networks where they change at a threshold. So the mean errs less than either (docs/frontier.md).

Source: averages of learners, Breiman (1996), "Stacked regressions", here with equal weights.
"""

from __future__ import annotations

from dataclasses import replace

from outlay.core.arrays import averaged, head_values, hidden_layers
from outlay.core.progress import Progress, within
from outlay.learning import orthogonal, trees
from outlay.learning.held_out import choice_rows
from outlay.learning.learner import BestResponses, Task
from outlay.learning.multipliers import LOOK_ROWS, Answers, answered

WITHOUT_LUCK = True

TREES = 0.2  # share of the time


def learn(task: Task, report: Progress) -> BestResponses:
    """Learn both, one after the other, and average them.

    Raises:
        CampaignError: if there is no hidden layer.
    """
    task.folder.mkdir(exist_ok=True)
    parts = {"trees": (trees, 0.0, TREES), "orthogonal": (orthogonal, TREES, 1.0)}
    bodied, layered = (
        learner.learn(replace(task, learner=name, folder=task.folder / name), within(report, begin, end))
        for name, (learner, begin, end) in parts.items()
    )
    return mean_of(task, bodied, layered)


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
